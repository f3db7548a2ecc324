//! A fleet of connectors processes contract negotiations by their state.
//!
//! Each connector claims a few negotiations in a state, processes each, and moves it to the next state and releases it in one
//! write. One connector is killed while it works: after the ttl, other connectors claim its negotiations. No negotiation is
//! processed by two connectors at the same time, and none is lost.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin negotiations
//! ```

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use clap::Parser;
use leasehold::core::{Fence, Name};
use leasehold::{Client, Error, Lease, ListRequest, Listing, UpdateRequest};
use leasehold_examples::{Fleet, Journal, Result, Setup, violated};
use tokio::task::JoinSet;

/// The states of a negotiation, in order.
const STATES: [&str; 3] = ["REQUESTED", "AGREED", "FINALIZED"];

/// A fleet that processes negotiations by their state
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    setup: Setup,
    /// Number of negotiations
    #[arg(long, default_value_t = 60)]
    items: usize,
    /// Number of connectors
    #[arg(long, default_value_t = 3)]
    connectors: usize,
    /// Number of connectors that are killed while they work, and restarted
    #[arg(long, default_value_t = 1)]
    kills: usize,
    /// Time to live of a claim [default: the shortest that suits the store]
    #[arg(long, value_parser = leasehold::duration::parse)]
    ttl: Option<Duration>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match args.setup.worker() {
        Some(number) => connector(number, &args).await,
        None => run_fleet(args).await,
    }
}

/// Runs a connector, which claims and processes negotiations until all are final.
async fn connector(number: usize, args: &Args) -> Result<()> {
    let client = leasehold::connect(&args.setup.store()).await?;
    let ttl = args.setup.ttl(args.ttl).await?;
    let id = format!("{number}:{}", std::process::id());
    loop {
        match process_batch(&client, &id, &args.setup, ttl).await {
            Ok(true) => break,
            Ok(false) => {}
            // The store is temporarily unavailable, and nothing was changed.
            Err(error) if is_unavailable(&*error) => tokio::time::sleep(ttl / 10).await,
            Err(error) => return Err(error),
        }
    }
    client.close().await;
    Ok(())
}

fn is_unavailable(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(Error::Unavailable(_)))
}

/// Claims and processes a few negotiations in each state. Returns whether all are final.
async fn process_batch(
    client: &Client,
    connector: &str,
    setup: &Setup,
    ttl: Duration,
) -> Result<bool> {
    let (journal, prefix) = (setup.journal(), setup.prefix());
    for step in STATES.windows(2) {
        let claim = client.claim(step[0]).prefix(&prefix).limit(10);
        for negotiation in claim.ttl(ttl).await? {
            process(&negotiation, connector, step, &journal).await?;
        }
    }
    all_are_final(client, &prefix).await
}

async fn all_are_final(client: &Client, prefix: &str) -> Result<bool> {
    for state in &STATES[..2] {
        if !list(client, prefix, state, 1).await?.leases.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Processes a negotiation, unless its lease is lost meanwhile: then another connector processes it.
async fn process(lease: &Lease, connector: &str, step: &[&str], journal: &Journal) -> Result<()> {
    let (name, fence) = (lease.name().as_str(), lease.fence());
    journal.append(&format!("begins {name} {} {connector} {fence}", step[0]))?;
    let is_lost = tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(5)) => false,
        _ = lease.lost() => true,
    };
    journal.append(&format!("stops {name} {} {connector} {fence}", step[0]))?;
    if is_lost {
        return Ok(());
    }
    let history = format!("{} {}@{fence}", lease.body(), step[0]);
    match lease.complete().state(step[1]).body(history).await {
        // If it was not written, the negotiation is claimed again after the ttl.
        Ok(()) | Err(Error::Fenced | Error::Expired | Error::Indeterminate(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn list(client: &Client, prefix: &str, state: &str, limit: usize) -> Result<Listing> {
    let request = ListRequest {
        prefix: prefix.to_owned(),
        state: Some(state.into()),
        limit,
        ..ListRequest::default()
    };
    Ok(client.leases().list(request).await?)
}

/// Creates the negotiations, starts the fleet, kills connectors while they work, and checks the results.
async fn run_fleet(args: Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let setup = args.setup.clone().with_folder(folder.path());
    let client = leasehold::connect(&setup.store()).await?;
    let prefix = setup.prefix();
    put_all(&client, &prefix, args.items).await?;
    let journal = setup.journal();
    let mut fleet = Fleet::start(&setup, args.connectors)?;
    for killed in 1..=args.kills {
        let min_lines = 2 * args.items * killed / (args.kills + 1);
        let (number, victim) = pause_working_connector(&fleet, &journal, min_lines).await?;
        fleet.kill(number)?;
        journal.append(&format!("killed {victim}"))?;
        println!("killed connector {victim} while it worked");
        fleet.restart(&setup, number)?;
    }
    fleet.finish().await?;

    let last = STATES[2];
    check_bodies(&list(&client, &prefix, last, 1_000).await?, args.items)?;
    let orphans = check_journal(&journal.read())?;
    check_zombies(&client, &orphans).await?;
    let (items, takeovers) = (args.items, orphans.len());
    println!(
        "{items} negotiations are {last}, {takeovers} steps were taken over from dead connectors"
    );
    client.close().await;
    Ok(())
}

/// Creates the negotiations concurrently, so that they are written in batches.
async fn put_all(client: &Client, prefix: &str, items: usize) -> Result<()> {
    let mut puts = JoinSet::new();
    for number in 0..items {
        let put = client.put(format!("{prefix}negotiation-{number}"));
        puts.spawn(put.state(STATES[0]).body("offer").into_future());
    }
    while let Some(put) = puts.join_next().await {
        put??;
    }
    Ok(())
}

/// Waits for this many journal lines, and pauses a connector that is processing a negotiation. Returns its number and id.
async fn pause_working_connector(
    fleet: &Fleet,
    journal: &Journal,
    min_lines: usize,
) -> Result<(usize, String)> {
    loop {
        journal.wait_until(|lines| lines.len() > min_lines).await?;
        let lines = journal.read();
        let last = lines.iter().rfind(|line| line[0] == "begins");
        let victim = last.ok_or("no connector has begun")?[3].clone();
        let number = victim.split(':').next().unwrap_or_default().parse()?;
        fleet.pause(number)?;
        // The connector may have continued until it was paused.
        let lines = journal.read();
        let last = lines.iter().rfind(|line| line.get(3) == Some(&victim));
        if last.is_some_and(|line| line[0] == "begins") {
            return Ok((number, victim));
        }
        fleet.resume(number)?;
    }
}

/// Checks that each negotiation went through each state exactly once.
fn check_bodies(finished: &Listing, items: usize) -> Result<()> {
    if finished.leases.len() != items {
        let found = finished.leases.len();
        return violated(format!("no negotiation is lost: found {found} of {items}"));
    }
    for (name, view) in &finished.leases {
        let history = view.record.body.split_whitespace().skip(1);
        let steps: Vec<_> = history.filter_map(|step| step.split('@').next()).collect();
        if steps != STATES[..2] {
            return violated(format!(
                "{name} goes through each state once: {}",
                view.record.body
            ));
        }
    }
    Ok(())
}

/// A claim of a connector that was killed.
struct Orphan {
    name: Name,
    fence: Fence,
}

/// Checks that no connector began a step that another was processing, unless that one was killed. Returns the orphaned claims.
fn check_journal(lines: &[Vec<String>]) -> Result<Vec<Orphan>> {
    let dead = lines.iter().filter(|line| line[0] == "killed");
    let dead: HashSet<_> = dead.map(|line| line[1].as_str()).collect();
    let mut active: HashMap<(&str, &str), (&str, u64)> = HashMap::new();
    let mut orphans = Vec::new();
    for line in lines.iter().filter(|line| line[0] != "killed") {
        let step = (line[1].as_str(), line[2].as_str());
        let (worker, fence) = (line[3].as_str(), line[4].parse()?);
        if line[0] == "stops" {
            active.remove(&step);
            continue;
        }
        match active.insert(step, (worker, fence)) {
            Some((other, _)) if !dead.contains(other) => {
                return violated(format!(
                    "only one connector processes {step:?}: {other} and {worker}"
                ));
            }
            Some((_, earlier)) if fence <= earlier => {
                return violated(format!(
                    "the fence of {step:?} grows: {fence} after {earlier}"
                ));
            }
            Some((_, earlier)) => orphans.push(Orphan {
                name: Name::lock(step.0)?,
                fence: Fence::new(earlier).ok_or("the journal has an invalid fence")?,
            }),
            None => {}
        }
    }
    Ok(orphans)
}

/// Checks that a zombie cannot complete a negotiation that another connector took over.
async fn check_zombies(client: &Client, orphans: &[Orphan]) -> Result<()> {
    for Orphan { name, fence } in orphans {
        let late = UpdateRequest {
            name: name.clone(),
            fence: *fence,
            body: Some("written by a zombie".into()),
            state: None,
            then_release: true,
        };
        match client.leases().update(late).await {
            Err(Error::Fenced | Error::Expired) => {}
            other => return violated(format!("a stale fence is refused: {other:?}")),
        }
    }
    Ok(())
}
