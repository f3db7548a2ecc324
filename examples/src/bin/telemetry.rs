//! Telemetry of many devices through several processes: never two alerts per device per period.
//!
//! Every event above the threshold wants to send an alert, through a gate by the name of its device. Most are refused,
//! and most of those by the process's own memory, without asking the store: how many calls that saved is printed.
//!
//! ```sh
//! cargo run -p leasehold-examples --bin telemetry
//! cargo run -p leasehold-examples --bin telemetry -- --no-cache
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use leasehold::core::{BootTime, Fence};
use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::{Client, Error, Gated, store};
use leasehold_examples::{Fleet, Journal, Result, Stage, broken};
use tokio::task::JoinSet;

/// Events that one process handles at a time.
const AT_ONCE: usize = 16;

/// Telemetry through several processes: at most one alert per device and period
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    stage: Stage,
    /// How many events
    #[arg(long, default_value_t = 10_000)]
    events: usize,
    /// Of how many devices
    #[arg(long, default_value_t = 200)]
    devices: u64,
    /// Through how many processes
    #[arg(long, default_value_t = 4)]
    processes: usize,
    /// At most one alert per device in this time
    #[arg(long, default_value = "2s", value_parser = leasehold::duration::parse)]
    every: Duration,
    /// An alert is due from this temperature: events have 60 to 99
    #[arg(long, default_value_t = 80)]
    too_hot: u64,
    /// Ask the store every time
    #[arg(long)]
    no_cache: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match args.stage.worker() {
        Some(number) => listen(number, &args).await,
        None => conduct(args).await,
    }
}

/// What a device measured.
struct Event {
    device: u64,
    temperature: u64,
}

/// The same events in every run, in no order that anybody would notice.
fn event(number: usize, devices: u64) -> Event {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Event {
        device: (mixed >> 40) % devices,
        temperature: 60 + (mixed >> 20) % 40,
    }
}

/// One process: handles its share of the events.
async fn listen(number: usize, args: &Args) -> Result<()> {
    let engine = Engine::start(store::open(&args.stage.store()).await?).await?;
    let client = Client::new(Arc::new(engine.clone()));
    let prefix = args.stage.prefix();
    let (mut hot, mut under_way) = (0_u64, JoinSet::<Result<()>>::new());
    for number in (number..args.events).step_by(args.processes) {
        let Event {
            device,
            temperature,
        } = event(number, args.devices);
        if temperature < args.too_hot {
            continue;
        }
        hot += 1;
        let mut gate = client
            .gate(format!("{prefix}device-{device}"))
            .every(args.every);
        if args.no_cache {
            gate = gate.cache_for(Duration::ZERO);
        }
        let journal = args.stage.journal();
        under_way.spawn(async move {
            let asked = Machine.boot_time();
            match gate.pass().await {
                Ok(Gated::Passed(pass)) => {
                    notify(&journal, device, temperature, asked, pass.fence())
                }
                // A database that is too busy for once costs an alert, not the worker.
                Err(Error::Unavailable(why) | Error::Indeterminate(why)) => {
                    eprintln!("device {device}: no alert: {why}");
                    Ok(())
                }
                throttled => Ok(throttled.map(drop)?),
            }
        });
        if under_way.len() == AT_ONCE {
            under_way.join_next().await.ok_or("one is under way")???;
        }
    }
    while let Some(handled) = under_way.join_next().await {
        handled??;
    }
    args.stage
        .journal()
        .append(&format!("asked {hot} {}", engine.stats().operations))?;
    engine.close().await;
    Ok(())
}

/// Sends an alert; here, to the journal, with when the gate was asked and passed by the machine's clock since its start:
/// all processes here have the same.
fn notify(
    journal: &Journal,
    device: u64,
    temperature: u64,
    asked: BootTime,
    fence: Fence,
) -> Result<()> {
    let (asked, passed) = (asked.as_micros(), Machine.boot_time().as_micros());
    journal.append(&format!(
        "alert {device} {fence} {asked} {passed} {temperature}"
    ))
}

/// An alert that was sent: the gate was passed somewhere between question and answer.
#[derive(Debug)]
struct Alert {
    fence: u64,
    asked: u64,
    passed: u64,
}

/// Whether they can all have been a period apart, in the order of their fences.
fn are_apart(alerts: &mut [Alert], period: u64) -> bool {
    alerts.sort_unstable_by_key(|alert| alert.fence);
    let mut open = 0;
    alerts.iter().all(|alert| {
        let earliest = alert.asked.max(open);
        open = earliest + period;
        earliest <= alert.passed
    })
}

async fn conduct(args: Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stage = args.stage.within(folder.path());
    // Makes the table or the container once, before everybody wants it.
    store::open(&stage.store()).await?;
    Fleet::start(&stage, args.processes)?.finish().await?;

    let mut alerts: HashMap<u64, Vec<Alert>> = HashMap::new();
    let (mut hot, mut calls) = (0_u64, 0_u64);
    for line in stage.journal().read() {
        let (one, two): (u64, u64) = (line[1].parse()?, line[2].parse()?);
        match line[0].as_str() {
            "alert" => alerts.entry(one).or_default().push(Alert {
                fence: two,
                asked: line[3].parse()?,
                passed: line[4].parse()?,
            }),
            _ => (hot, calls) = (hot + one, calls + two),
        }
    }
    let period = u64::try_from(args.every.as_micros())?;
    for (device, alerts) in &mut alerts {
        if !are_apart(alerts, period) {
            return broken(format!("one alert per period: device {device}, {alerts:?}"));
        }
    }
    let hot_devices = (0..args.events).map(|number| event(number, args.devices));
    let hot_devices = hot_devices.filter(|event| event.temperature >= args.too_hot);
    let hot_devices: std::collections::HashSet<_> = hot_devices.map(|event| event.device).collect();
    if hot_devices.len() != alerts.len() {
        return broken("every device that is too hot is heard of");
    }
    let sent: usize = alerts.values().map(Vec::len).sum();
    println!(
        "{hot} events were too hot: {sent} alerts for {} devices",
        alerts.len()
    );
    println!(
        "{calls} store calls: the cache saved {} of {hot}",
        hot.saturating_sub(calls)
    );
    Ok(())
}
