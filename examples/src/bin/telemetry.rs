//! Throttling: telemetry of many devices through several processes, with at most one alert per device and period.
//!
//! Every event above the threshold tries to pass the gate of its device before it sends an alert. Most are refused, and most
//! of these by the local cache, without a call of the store: the number of saved calls is printed.
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
use leasehold::{Client, Error, GateOutcome, store};
use leasehold_examples::{Fleet, Journal, Result, Setup, violated};
use tokio::task::JoinSet;

/// The number of events that one process handles concurrently.
const CONCURRENCY: usize = 16;

/// Throttling of alerts: at most one per device and period
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    setup: Setup,
    /// Number of events
    #[arg(long, default_value_t = 10_000)]
    events: usize,
    /// Number of devices
    #[arg(long, default_value_t = 200)]
    devices: u64,
    /// Number of processes
    #[arg(long, default_value_t = 4)]
    processes: usize,
    /// The period: at most one alert per device in this time
    #[arg(long, default_value = "2s", value_parser = leasehold::duration::parse)]
    every: Duration,
    /// Temperature from which an alert is sent; events have 60 to 99
    #[arg(long, default_value_t = 80)]
    too_hot: u64,
    /// Do not use the local cache: call the store for every event
    #[arg(long)]
    no_cache: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    match args.setup.worker() {
        Some(number) => handle_events(number, &args).await,
        None => run_fleet(args).await,
    }
}

/// A measurement of a device.
struct Event {
    device: u64,
    temperature: u64,
}

/// Returns an event: the same pseudo-random events in every run.
fn event(number: usize, devices: u64) -> Event {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Event {
        device: (mixed >> 40) % devices,
        temperature: 60 + (mixed >> 20) % 40,
    }
}

/// Runs a process, which handles its share of the events.
async fn handle_events(number: usize, args: &Args) -> Result<()> {
    let engine = Engine::start(store::open(&args.setup.store()).await?).await?;
    let client = Client::new(Arc::new(engine.clone()));
    let prefix = args.setup.prefix();
    let (mut hot, mut running) = (0_u64, JoinSet::<Result<()>>::new());
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
        let journal = args.setup.journal();
        running.spawn(async move {
            let sent = Machine.boot_time();
            match gate.pass().await {
                Ok(GateOutcome::Passed(pass)) => {
                    send_alert(&journal, device, temperature, sent, pass.fence())
                }
                // If the database is temporarily unavailable, one alert is lost, and the worker continues.
                Err(Error::Unavailable(why) | Error::Indeterminate(why)) => {
                    eprintln!("cannot send an alert for device {device}: {why}");
                    Ok(())
                }
                throttled => Ok(throttled.map(drop)?),
            }
        });
        if running.len() == CONCURRENCY {
            running
                .join_next()
                .await
                .ok_or("no event is being handled")???;
        }
    }
    while let Some(handled) = running.join_next().await {
        handled??;
    }
    args.setup
        .journal()
        .append(&format!("total {hot} {}", engine.stats().operations))?;
    engine.close().await;
    Ok(())
}

/// Sends an alert to the journal, with the times when the request was sent and answered, by the boot clock that all processes
/// of this machine share.
fn send_alert(
    journal: &Journal,
    device: u64,
    temperature: u64,
    sent: BootTime,
    fence: Fence,
) -> Result<()> {
    let (sent, answered) = (sent.as_micros(), Machine.boot_time().as_micros());
    journal.append(&format!(
        "alert {device} {fence} {sent} {answered} {temperature}"
    ))
}

/// An alert: the gate was passed at some time between request and answer.
#[derive(Debug)]
struct Alert {
    fence: u64,
    sent: u64,
    answered: u64,
}

/// Returns whether the alerts can have been a period apart, in the order of their fences.
fn are_a_period_apart(alerts: &mut [Alert], period: u64) -> bool {
    alerts.sort_unstable_by_key(|alert| alert.fence);
    let mut open = 0;
    alerts.iter().all(|alert| {
        let earliest = alert.sent.max(open);
        open = earliest + period;
        earliest <= alert.answered
    })
}

async fn run_fleet(args: Args) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let setup = args.setup.with_folder(folder.path());
    // Creates the table or the container once, before the processes start.
    store::open(&setup.store()).await?;
    Fleet::start(&setup, args.processes)?.finish().await?;

    let mut alerts: HashMap<u64, Vec<Alert>> = HashMap::new();
    let (mut hot, mut calls) = (0_u64, 0_u64);
    for line in setup.journal().read() {
        let (one, two): (u64, u64) = (line[1].parse()?, line[2].parse()?);
        match line[0].as_str() {
            "alert" => alerts.entry(one).or_default().push(Alert {
                fence: two,
                sent: line[3].parse()?,
                answered: line[4].parse()?,
            }),
            _ => (hot, calls) = (hot + one, calls + two),
        }
    }
    let period = u64::try_from(args.every.as_micros())?;
    for (device, alerts) in &mut alerts {
        if !are_a_period_apart(alerts, period) {
            return violated(format!("one alert per period: device {device}, {alerts:?}"));
        }
    }
    let hot_devices = (0..args.events).map(|number| event(number, args.devices));
    let hot_devices = hot_devices.filter(|event| event.temperature >= args.too_hot);
    let hot_devices: std::collections::HashSet<_> = hot_devices.map(|event| event.device).collect();
    if hot_devices.len() != alerts.len() {
        return violated("every device that is too hot sends an alert");
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
