//! A critical section that is timed by the database: workers with wall clocks that are two hours apart.
//!
//! Each worker reads a counter, pauses, and writes it back, under a lease. Half of the workers run with a wall clock that is
//! an hour fast, the others with one that is an hour slow. No increment is lost, because only the clock of the database
//! counts. With `--unlocked`, as a control, increments are lost.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin critical_section
//! cargo run -p leasehold-examples --bin critical_section -- --store 'cosmos://ACCOUNT/DATABASE/CONTAINER'
//! ```

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use leasehold_examples::{Fleet, Result, Setup, violated};
use leasehold_testbed::wall_clock_off_by;

const WORKERS: usize = 4;
const ROUNDS: usize = 10;

/// A critical section of workers whose wall clocks are two hours apart
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    setup: Setup,
    /// Time to live of the lease [default: the shortest that suits the store]
    #[arg(long, value_parser = leasehold::duration::parse)]
    ttl: Option<Duration>,
    /// Enter the critical section without a lease
    #[arg(long)]
    unlocked: bool,
    #[arg(long, hide = true)]
    counter: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match (args.setup.worker(), &args.counter) {
        (Some(_), Some(counter)) => work(&args, counter).await,
        _ => run_fleet(args).await,
    }
}

async fn work(args: &Args, counter: &Path) -> Result<()> {
    let client = leasehold::connect(&args.setup.store()).await?;
    let ttl = args.setup.ttl(args.ttl).await?;
    let name = format!("{}critical-section", args.setup.prefix());
    let clock = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    args.setup.journal().append(&format!("clock {clock}"))?;
    for _ in 0..ROUNDS {
        if args.unlocked {
            increment(counter).await?;
        } else {
            let section = client.lease(&name).ttl(ttl).wait_forever();
            section.run(|_| increment(counter)).await??;
        }
    }
    client.close().await;
    Ok(())
}

/// Increments the counter in a way that is not atomic.
async fn increment(counter: &Path) -> Result<()> {
    let number: usize = std::fs::read_to_string(counter)?.trim().parse()?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    let next = counter.with_extension(std::process::id().to_string());
    std::fs::write(&next, (number + 1).to_string())?;
    Ok(std::fs::rename(next, counter)?)
}

async fn run_fleet(args: Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let counter = folder.path().join("counter");
    std::fs::write(&counter, "0")?;
    let setup = args.setup.with_folder(folder.path());
    let fleet = Fleet::start_with(&setup, WORKERS, |number, worker| {
        worker.arg("--counter").arg(&counter);
        let offset = if number % 2 == 0 { "+3600s" } else { "-3600s" };
        worker.envs(wall_clock_off_by(offset).unwrap_or_default());
    })?;
    fleet.finish().await?;
    let clocks: Vec<u64> = setup
        .journal()
        .read()
        .iter()
        .filter_map(|line| line[1].parse().ok())
        .collect();
    let difference = clocks
        .iter()
        .max()
        .zip(clocks.iter().min())
        .map_or(0, |(max, min)| max - min);
    match wall_clock_off_by("") {
        Ok(_) if difference < 7_000 => return violated("the wall clocks differ by two hours"),
        Ok(_) => println!("the wall clocks of the workers differed by {difference} s"),
        Err(missing) => println!("{missing}; the wall clocks of the workers agreed"),
    }
    let (counted, expected): (usize, _) = (
        std::fs::read_to_string(&counter)?.parse()?,
        WORKERS * ROUNDS,
    );
    println!("counted to {counted} of {expected}");
    if counted != expected {
        return violated("no increment is lost");
    }
    Ok(())
}
