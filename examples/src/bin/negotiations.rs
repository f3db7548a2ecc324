//! A connector fleet works through contract negotiations by their state.
//!
//! Each connector claims a few negotiations of a state, takes each one step further, and moves it on to the next state
//! together with letting go, in one write. One connector is killed in the middle: after the lease its negotiations are
//! picked up by others. Nothing is processed by two at once, and nothing is lost.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin negotiations
//! ```

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use clap::Parser;
use leasehold::core::{Fence, Name};
use leasehold::{Client, Error, Lease, ListRequest, Listing, UpdateRequest};
use leasehold_examples::{Fleet, Journal, Result, Stage, broken};
use tokio::task::JoinSet;

/// What becomes of a negotiation.
const STATES: [&str; 3] = ["REQUESTED", "AGREED", "FINALIZED"];

/// A fleet works through negotiations by state
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    stage: Stage,
    /// How many negotiations
    #[arg(long, default_value_t = 60)]
    items: usize,
    /// Through how many connectors
    #[arg(long, default_value_t = 3)]
    connectors: usize,
    /// How many of them are killed in the middle, and started again
    #[arg(long, default_value_t = 1)]
    kills: usize,
    /// How long a negotiation outlives the connector that has it; what suits the store unless given
    #[arg(long, value_parser = leasehold::duration::parse)]
    ttl: Option<Duration>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match args.stage.worker() {
        Some(number) => connector(number, &args).await,
        None => conduct(args).await,
    }
}

/// One connector: claims what is next for each state, until everything has come to its end.
async fn connector(number: usize, args: &Args) -> Result<()> {
    let client = leasehold::connect(&args.stage.store()).await?;
    let ttl = args.stage.ttl(args.ttl).await?;
    let me = format!("{number}:{}", std::process::id());
    loop {
        match round(&client, &me, &args.stage, ttl).await {
            Ok(true) => break,
            Ok(false) => {}
            // Nothing happened: the store is away or busy, and will be back.
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

/// Claims a few of each state. Whether there is nothing left to do.
async fn round(client: &Client, me: &str, stage: &Stage, ttl: Duration) -> Result<bool> {
    let (journal, prefix) = (stage.journal(), stage.prefix());
    for step in STATES.windows(2) {
        let claim = client.claim(step[0]).prefix(&prefix).limit(10);
        for negotiation in claim.ttl(ttl).await? {
            process(&negotiation, me, step, &journal).await?;
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

/// Takes a negotiation one step further, unless its lease is lost on the way: then it is somebody else's to take.
async fn process(lease: &Lease, me: &str, step: &[&str], journal: &Journal) -> Result<()> {
    let (name, fence) = (lease.name().as_str(), lease.fence());
    journal.append(&format!("begins {name} {} {me} {fence}", step[0]))?;
    let lost = tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(5)) => false,
        _ = lease.lost() => true,
    };
    journal.append(&format!("stops {name} {} {me} {fence}", step[0]))?;
    if lost {
        return Ok(());
    }
    let history = format!("{} {}@{fence}", lease.body(), step[0]);
    match lease.complete().state(step[1]).body(history).await {
        // If it was not written, it comes back after the ttl.
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

/// Puts the negotiations, starts the fleet, kills connectors that have some, and looks at what became of them.
async fn conduct(args: Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stage = args.stage.clone().within(folder.path());
    let client = leasehold::connect(&stage.store()).await?;
    let prefix = stage.prefix();
    put_all(&client, &prefix, args.items).await?;
    let journal = stage.journal();
    let mut fleet = Fleet::start(&stage, args.connectors)?;
    for killed in 1..=args.kills {
        let enough = 2 * args.items * killed / (args.kills + 1);
        let (number, victim) = stop_in_the_middle(&fleet, &journal, enough).await?;
        fleet.kill(number)?;
        journal.append(&format!("killed {victim}"))?;
        println!("killed connector {victim} in the middle of its work");
        fleet.revive(&stage, number)?;
    }
    fleet.finish().await?;

    let last = STATES[2];
    check_bodies(&list(&client, &prefix, last, 1_000).await?, args.items)?;
    let taken_over = check_journal(&journal.read())?;
    check_zombies(&client, &taken_over).await?;
    let (items, over) = (args.items, taken_over.len());
    println!("{items} negotiations are {last}, {over} steps were taken over from the dead");
    client.close().await;
    Ok(())
}

/// All together: what is put at once is written in batches.
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

/// Waits until so much was written, and stops a connector that is in the middle of something: which one.
async fn stop_in_the_middle(
    fleet: &Fleet,
    journal: &Journal,
    enough: usize,
) -> Result<(usize, String)> {
    loop {
        journal.wait_until(|lines| lines.len() > enough).await?;
        let lines = journal.read();
        let last = lines.iter().rfind(|line| line[0] == "begins");
        let victim = last.ok_or("nothing began")?[3].clone();
        let number = victim.split(':').next().unwrap_or_default().parse()?;
        fleet.pause(number)?;
        // It may have gone on until it was stopped.
        let lines = journal.read();
        let its_last = lines.iter().rfind(|line| line.get(3) == Some(&victim));
        if its_last.is_some_and(|line| line[0] == "begins") {
            return Ok((number, victim));
        }
        fleet.resume(number)?;
    }
}

/// Each negotiation went through each state exactly once.
fn check_bodies(finished: &Listing, items: usize) -> Result<()> {
    if finished.leases.len() != items {
        let there = finished.leases.len();
        return broken(format!("nothing is lost: {there} of {items} are there"));
    }
    for (name, view) in &finished.leases {
        let history = view.record.body.split_whitespace().skip(1);
        let steps: Vec<_> = history.filter_map(|step| step.split('@').next()).collect();
        if steps != STATES[..2] {
            return broken(format!("{name} takes each step once: {}", view.record.body));
        }
    }
    Ok(())
}

/// What a connector had in hand when it died, by its fence.
struct Orphan {
    name: Name,
    fence: Fence,
}

/// Nobody began what another had in hand, except what the dead had.
fn check_journal(lines: &[Vec<String>]) -> Result<Vec<Orphan>> {
    let dead = lines.iter().filter(|line| line[0] == "killed");
    let dead: HashSet<_> = dead.map(|line| line[1].as_str()).collect();
    let mut in_hand: HashMap<(&str, &str), (&str, u64)> = HashMap::new();
    let mut orphans = Vec::new();
    for line in lines.iter().filter(|line| line[0] != "killed") {
        let step = (line[1].as_str(), line[2].as_str());
        let (worker, fence) = (line[3].as_str(), line[4].parse()?);
        if line[0] == "stops" {
            in_hand.remove(&step);
            continue;
        }
        match in_hand.insert(step, (worker, fence)) {
            Some((other, _)) if !dead.contains(other) => {
                return broken(format!("{step:?} is in the hands of {other} and {worker}"));
            }
            Some((_, earlier)) if fence <= earlier => {
                return broken(format!("{step:?} passed on with a lower fence"));
            }
            Some((_, earlier)) => orphans.push(Orphan {
                name: Name::lock(step.0)?,
                fence: Fence::new(earlier).ok_or("a fence")?,
            }),
            None => {}
        }
    }
    Ok(orphans)
}

/// Whoever wakes up from the dead cannot finish what has passed on.
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
            other => return broken(format!("a stale fence is refused: {other:?}")),
        }
    }
    Ok(())
}
