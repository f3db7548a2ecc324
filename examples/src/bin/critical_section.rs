//! A critical section whose time is the database's: workers whose clocks are an hour apart.
//!
//! Each worker reads a counter, thinks, and writes it back, under a lease. Half of them run with a wall clock that is
//! an hour fast, the others with one that is an hour slow: no increment is lost, since only the database's time counts.
//! Then the same without the lease, as a control: increments are lost.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin critical_section
//! cargo run -p leasehold-examples --bin critical_section -- --store 'cosmos://ACCOUNT/DATABASE/CONTAINER'
//! ```

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use leasehold_examples::{Fleet, Result, Stage, broken};
use leasehold_testbed::wall_clock_off_by;

const WORKERS: usize = 4;
const ROUNDS: usize = 10;

/// A critical section, entered by workers whose clocks are an hour apart
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    stage: Stage,
    /// How long the lease outlives its holder; what suits the store unless given
    #[arg(long, value_parser = leasehold::duration::parse)]
    ttl: Option<Duration>,
    /// Enters without a lease
    #[arg(long)]
    unlocked: bool,
    #[arg(long, hide = true)]
    counter: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match (args.stage.worker(), &args.counter) {
        (Some(_), Some(counter)) => work(&args, counter).await,
        _ => conduct(args).await,
    }
}

async fn work(args: &Args, counter: &Path) -> Result<()> {
    let client = leasehold::connect(&args.stage.store()).await?;
    let ttl = args.stage.ttl(args.ttl).await?;
    let name = format!("{}critical-section", args.stage.prefix());
    let clock = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    args.stage.journal().append(&format!("clock {clock}"))?;
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

/// Not atomic at all.
async fn increment(counter: &Path) -> Result<()> {
    let number: usize = std::fs::read_to_string(counter)?.trim().parse()?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    let next = counter.with_extension(std::process::id().to_string());
    std::fs::write(&next, (number + 1).to_string())?;
    Ok(std::fs::rename(next, counter)?)
}

async fn conduct(args: Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let counter = folder.path().join("counter");
    std::fs::write(&counter, "0")?;
    let stage = args.stage.within(folder.path());
    let fleet = Fleet::start_with(&stage, WORKERS, |number, worker| {
        worker.arg("--counter").arg(&counter);
        let off = if number % 2 == 0 { "+3600s" } else { "-3600s" };
        worker.envs(wall_clock_off_by(off).unwrap_or_default());
    })?;
    fleet.finish().await?;
    let clocks: Vec<u64> = stage
        .journal()
        .read()
        .iter()
        .filter_map(|line| line[1].parse().ok())
        .collect();
    let apart = clocks
        .iter()
        .max()
        .zip(clocks.iter().min())
        .map_or(0, |(max, min)| max - min);
    match wall_clock_off_by("") {
        Ok(_) if apart < 7_000 => return broken("their clocks are two hours apart"),
        Ok(_) => println!("the workers' clocks were {apart} s apart"),
        Err(missing) => println!("{missing}; the workers' clocks agreed"),
    }
    let (counted, expected): (usize, _) = (
        std::fs::read_to_string(&counter)?.parse()?,
        WORKERS * ROUNDS,
    );
    println!("counted to {counted} of {expected}");
    if counted != expected {
        return broken("no increment is lost");
    }
    Ok(())
}
