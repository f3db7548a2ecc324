//! Several workers, one leads: the global lock that Cosmos DB's samples build by hand, with its token.
//!
//! Each worker asks for the lock by an id of its own, leads for a while, and resigns. While it leads it asks again now
//! and then, showing its token, and keeps it. One of them is killed while it leads: after the ttl another follows. The
//! token grows with each change of owner and stays at each renewal.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin leader
//! cargo run -p leasehold-examples --bin leader -- --store 'cosmos://ACCOUNT/DATABASE/CONTAINER'
//! ```

use std::time::Duration;

use clap::Parser;
use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::{AcquireRequest, Acquired, Client, Error};
use leasehold_examples::{Fleet, Journal, Result, Stage, broken};

const WORKERS: usize = 3;
const TERMS: usize = 2;
const RENEWALS: usize = 3;
/// Between two renewals by hand.
const PAUSE: Duration = Duration::from_millis(250);

/// Several workers, one leads
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    stage: Stage,
    /// How long the lock outlives its leader; what suits the store unless given
    #[arg(long, value_parser = leasehold::duration::parse)]
    ttl: Option<Duration>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match args.stage.worker() {
        Some(number) => work(number, &args).await,
        None => conduct(args.stage).await,
    }
}

/// One worker: leads when its turn comes.
async fn work(number: usize, args: &Args) -> Result<()> {
    let client = leasehold::connect(&args.stage.store()).await?;
    let ttl = args.stage.ttl(args.ttl).await?;
    let journal = args.stage.journal();
    let name = Name::lock(format!("{}lock1", args.stage.prefix()))?;
    for term in 0..TERMS {
        // Renews by asking again. (The lease is renewed by itself, too: this is how it is done by hand.)
        let again = AcquireRequest {
            name: name.clone(),
            nonce: Nonce::new(format!("worker-{number}-term-{term}"))?,
            owner: format!("worker-{number}").into(),
            ttl,
            mode: Mode::Exclusive,
            fence: None,
            wait: Duration::ZERO,
        };
        loop {
            let id = again.nonce.expose();
            let lock = client
                .lease(name.as_str())
                .nonce(id)
                .ttl(ttl)
                .wait_forever();
            // Cancelled at once if the lock is lost.
            let led =
                lock.run(|lease| lead(&client, &journal, number, lease.fence(), again.clone()));
            match led.await {
                Ok(led) => break led?,
                // As when a disk takes longer than the ttl: the former leader stands again.
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
    mut again: AcquireRequest,
) -> Result<()> {
    journal.append(&format!("leads {number} {token}"))?;
    again.fence = Some(token);
    for _ in 0..RENEWALS {
        tokio::time::sleep(PAUSE).await;
        match client.leases().acquire(again.clone()).await? {
            Acquired::Granted(hold) => {
                journal.append(&format!("renews {number} {}", hold.grant.fence))?;
            }
            Acquired::Held(held) => return Err(Error::Held(held).into()),
        }
    }
    journal.append(&format!("resigns {number} {token}"))
}

/// Starts the workers, kills the one that leads second, and looks at what they wrote.
async fn conduct(stage: Stage) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stage = stage.within(folder.path());
    let journal = stage.journal();
    let mut fleet = Fleet::start(&stage, WORKERS)?;
    let terms = |lines: &[Vec<String>]| lines.iter().filter(|line| line[0] == "leads").count();
    journal.wait_until(|lines| terms(lines) == 2).await?;
    let leader: usize = journal
        .read()
        .iter()
        .rfind(|line| line[0] == "leads")
        .ok_or("nobody led")?[1]
        .parse()?;
    fleet.kill(leader)?;
    println!("killed worker {leader} while it led");
    fleet.finish().await?;

    let (mut owner, mut token) = (String::new(), 0_u64);
    for line in journal.read() {
        let (deed, who, shown) = (&line[0], line[1].clone(), line[2].parse()?);
        println!("worker {who} {deed} with token {shown}");
        match deed.as_str() {
            "leads" if shown <= token => return broken("the token grows with each change"),
            "leads" => (owner, token) = (who, shown),
            _ if who != owner => return broken("only the leader acts"),
            _ if shown != token => return broken("the token stays at each renewal"),
            _ => {}
        }
    }
    let led = terms(&journal.read());
    if led < WORKERS * TERMS - TERMS + 1 {
        return broken(format!(
            "every worker that lives leads {TERMS} times: {led} terms"
        ));
    }
    println!("{led} terms, and the token grew with each");
    Ok(())
}
