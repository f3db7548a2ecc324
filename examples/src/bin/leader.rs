//! Leader election: the global lock that the samples of Cosmos DB implement by hand, with its token.
//!
//! Each worker requests the lock with an id of its own, leads for a while, and resigns. While it leads, it repeats the
//! request with its token, which renews the lock. One worker is killed while it leads; another takes over after the ttl. The
//! token grows with each change of owner, and stays the same at each renewal.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin leader
//! cargo run -p leasehold-examples --bin leader -- --store 'cosmos://ACCOUNT/DATABASE/CONTAINER'
//! ```

use std::time::Duration;

use clap::Parser;
use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::{AcquireOutcome, AcquireRequest, Client, Error};
use leasehold_examples::{Fleet, Journal, Result, Setup, violated};

const WORKERS: usize = 3;
const TERMS: usize = 2;
const RENEWALS: usize = 3;
/// The time between two renewals.
const PAUSE: Duration = Duration::from_millis(250);

/// Leader election among several workers
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    setup: Setup,
    /// Time to live of the lock [default: the shortest that suits the store]
    #[arg(long, value_parser = leasehold::duration::parse)]
    ttl: Option<Duration>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match args.setup.worker() {
        Some(number) => work(number, &args).await,
        None => run_fleet(args.setup).await,
    }
}

/// Runs a worker, which leads for several terms.
async fn work(number: usize, args: &Args) -> Result<()> {
    let client = leasehold::connect(&args.setup.store()).await?;
    let ttl = args.setup.ttl(args.ttl).await?;
    let journal = args.setup.journal();
    let name = Name::lock(format!("{}lock1", args.setup.prefix()))?;
    for term in 0..TERMS {
        // Renews by repeating the request. (The client also renews the lease automatically; this shows how to do it by hand.)
        let renewal = AcquireRequest {
            name: name.clone(),
            nonce: Nonce::new(format!("worker-{number}-term-{term}"))?,
            owner: format!("worker-{number}").into(),
            ttl,
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        loop {
            let id = renewal.nonce.expose();
            let lock = client
                .lease(name.as_str())
                .nonce(id)
                .ttl(ttl)
                .wait_forever();
            // Cancelled at once if the lock is lost.
            let leading =
                lock.run(|lease| lead(&client, &journal, number, lease.fence(), renewal.clone()));
            match leading.await {
                Ok(term) => break term?,
                // The lock can be lost, for example if a disk is slower than the ttl: the worker runs for leader again.
                Err(Error::Expired | Error::Fenced) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    client.close().await;
    Ok(())
}

async fn lead(
    client: &Client,
    journal: &Journal,
    number: usize,
    token: Fence,
    mut renewal: AcquireRequest,
) -> Result<()> {
    journal.append(&format!("leads {number} {token}"))?;
    renewal.fence = Some(token);
    for _ in 0..RENEWALS {
        tokio::time::sleep(PAUSE).await;
        match client.leases().acquire(renewal.clone()).await? {
            AcquireOutcome::Granted(hold) => {
                journal.append(&format!("renews {number} {}", hold.grant.fence))?;
            }
            AcquireOutcome::Held(held) => return Err(Error::Held(held).into()),
        }
    }
    journal.append(&format!("resigns {number} {token}"))
}

/// Starts the workers, kills the second leader, and checks the journal.
async fn run_fleet(setup: Setup) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let setup = setup.with_folder(folder.path());
    let journal = setup.journal();
    let mut fleet = Fleet::start(&setup, WORKERS)?;
    let terms = |lines: &[Vec<String>]| lines.iter().filter(|line| line[0] == "leads").count();
    journal.wait_until(|lines| terms(lines) == 2).await?;
    let leader: usize = journal
        .read()
        .iter()
        .rfind(|line| line[0] == "leads")
        .ok_or("no worker led")?[1]
        .parse()?;
    fleet.kill(leader)?;
    println!("killed worker {leader} while it led");
    fleet.finish().await?;

    let (mut owner, mut token) = (String::new(), 0_u64);
    for line in journal.read() {
        let (action, worker, shown) = (&line[0], line[1].clone(), line[2].parse()?);
        println!("worker {worker} {action} with token {shown}");
        match action.as_str() {
            "leads" if shown <= token => {
                return violated("the token grows with each change of leader");
            }
            "leads" => (owner, token) = (worker, shown),
            _ if worker != owner => return violated("only the leader acts"),
            _ if shown != token => return violated("the token stays the same at each renewal"),
            _ => {}
        }
    }
    let led = terms(&journal.read());
    if led < WORKERS * TERMS - TERMS + 1 {
        return violated(format!(
            "every worker that was not killed leads {TERMS} times: {led} terms"
        ));
    }
    println!("{led} terms, and the token grew with each");
    Ok(())
}
