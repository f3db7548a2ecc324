//! A seeded simulation: several engines on one store that fails in every way a network and a server can, with skewed
//! and drifting clocks, and clients that do anything. Everything happens in simulated time and by one seed, so a run can
//! be repeated exactly: `LEASEHOLD_SEED=7 cargo test --features conformance --test simulation`.
//! `LEASEHOLD_SEEDS=10000` runs more of them.
//!
//! Checked are the real histories: linearizability per name against the pure core (`linear.rs`), that no two clients
//! ever believe at once what only one may, and that fences only grow.

mod calls;
mod client;
mod history;
mod linear;
mod puts;
mod store;
mod unfollowed;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::{Acquire, Fence, Hash, Mode, Name, Operation, Outcome};
use leasehold::engine::{Config, Engine};

use client::Client;
use history::History;
use store::{Connection, Mutation, Server};
use world::{Machine, World};

/// By how much clocks run off, in parts per million: just within the 500 that are allowed for.
const DRIFT: u64 = 499;

/// What a simulation is to be like.
#[derive(Clone, Copy)]
struct Plan {
    mutation: Mutation,
    clock: StoreClock,
}

/// What the store's clock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreClock {
    Runs,
    /// It steps, mostly by more than the margin.
    Steps,
    /// It often steps by less than the margin.
    SmallSteps,
    /// It is slewed, now faster and now slower.
    Slews,
}

/// The most that chrony slews by, in parts per million.
const MAX_SLEW: i64 = 83_333;

const HONEST: Plan = Plan {
    mutation: Mutation::None,
    clock: StoreClock::Runs,
};

/// How it went.
struct Run {
    verdict: Result<(), String>,
    trace: Vec<String>,
    calls: usize,
}

fn simulate(seed: u64, plan: Plan) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run(seed, plan))
}

async fn run(seed: u64, plan: Plan) -> Run {
    let world = World::new(seed);
    let embedded = world.chance(50);
    // The clock of an embedded store is this machine's, and is not slewed.
    let embedded = embedded && matches!(plan.clock, StoreClock::Runs | StoreClock::Steps);
    let margin = Duration::from_millis(if embedded { 0 } else { 250 });
    // A store without a margin is embedded: all have one clock.
    let drift = if margin.is_zero() { 0 } else { DRIFT };
    let server = Server::new(&world, margin, plan.mutation);
    let history = Arc::new(History::default());
    let names: Vec<_> = ["one", "shared"]
        .map(|name| Name::lock(name).expect("a name"))
        .into();
    let engines = 1 + world.draw(|random| random.below(3)) as usize;
    let mut clients = Vec::new();
    for _ in 0..engines {
        let machine = Machine::new(&world, drift);
        let engine = start_engine(&server, &machine).await;
        for _ in 0..2 {
            let client = Client {
                number: clients.len(),
                world: world.clone(),
                machine: machine.clone(),
                engine: engine.clone(),
                history: history.clone(),
                names: names.clone(),
                holding: None,
                nonces: 0,
                quiet: matches!(plan.clock, StoreClock::SmallSteps | StoreClock::Slews),
            };
            clients.push(client);
        }
    }
    let last = last_client(&world, &server, &history, &names, drift).await;
    let weather = tokio::spawn(weather(world.clone(), server.clone(), plan.clock, margin));
    let running: Vec<_> = clients
        .into_iter()
        .map(|client| tokio::spawn(client.run(25)))
        .collect();
    let mut verdict = Ok(());
    for client in running {
        // Far longer than all that they ask may take: whoever is not done by then never gets an answer.
        let done = tokio::time::timeout(Duration::from_secs(600), client).await;
        let ended = match done {
            Ok(joined) => joined.map_err(|panicked| format!("a client failed: {panicked}")),
            Err(_) => Err("a client waits for ever".to_owned()),
        };
        verdict = verdict.and(ended);
    }
    weather.abort();
    server.heal();
    // Whatever is still on its way arrives.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for name in &names {
        verdict = verdict.and(ends_well(&last, name, plan).await);
    }
    let entries = history.entries.lock().expect("not poisoned").clone();
    let verdict = verdict.and_then(|()| check(&entries, &server, &history, &names, plan, margin));
    Run {
        verdict,
        trace: world.trace(),
        calls: entries.len(),
    }
}

async fn start_engine(server: &Arc<Server>, machine: &Arc<Machine>) -> Engine {
    let connection = Connection::new(server);
    let mut config = Config::default();
    config.timeout = Duration::from_secs(2);
    loop {
        let started = Engine::start_with(connection.clone(), machine.clone(), config.clone()).await;
        if let Ok(engine) = started {
            return engine;
        }
    }
}

/// One that only looks in the end, but was there from the beginning.
async fn last_client(
    world: &Arc<World>,
    server: &Arc<Server>,
    history: &Arc<History>,
    names: &[Name],
    drift: u64,
) -> Client {
    let machine = Machine::new(world, drift);
    Client {
        number: 99,
        world: world.clone(),
        engine: start_engine(server, &machine).await,
        machine,
        history: history.clone(),
        names: names.to_vec(),
        holding: None,
        nonces: 0,
        quiet: false,
    }
}

/// The server goes away now and then; its clock steps or is slewed, if it is to.
async fn weather(world: Arc<World>, server: Arc<Server>, clock: StoreClock, margin: Duration) {
    let between = |least: i64, most: i64| {
        least + world.draw(|random| random.below((most - least) as u64 + 1)) as i64
    };
    loop {
        tokio::time::sleep(world.span(500, 6_000)).await;
        if clock == StoreClock::Runs || world.chance(60) {
            server.go_away(world.span(50, 2_500));
            continue;
        }
        match clock {
            StoreClock::Runs => {}
            StoreClock::Steps => server.step_clock(between(-10_000_000, 9_999_999)),
            StoreClock::SmallSteps => {
                let margin = margin.as_micros() as i64;
                server.step_clock(between(-margin, margin));
            }
            StoreClock::Slews => {
                let rates = [-MAX_SLEW, between(-MAX_SLEW, MAX_SLEW), 0, MAX_SLEW];
                server.slew_clock(world.draw(|random| *random.pick(&rates)));
            }
        }
    }
}

/// In the end a name shows what was written last, and can be taken again in bounded time.
async fn ends_well(last: &Client, name: &Name, plan: Plan) -> Result<(), String> {
    last.show(name).await;
    let acquire = Operation::Acquire(Acquire {
        nonce: Hash::of(&[b"the last"]),
        owner: "the last".into(),
        principal: None,
        ttl: Duration::from_secs(2),
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    });
    // The longest ttl, what a clock may be off by, and a reservation that nobody uses.
    let patience = match plan.clock {
        StoreClock::Runs => 15_000,
        _ => 60_000,
    };
    match last.perform(name, acquire, patience).await {
        Some((Outcome::Granted(_), _)) => Ok(()),
        other => Err(format!("{name} cannot be taken in the end: {other:?}")),
    }
}

fn check(
    entries: &[history::Entry],
    server: &Server,
    history: &History,
    names: &[Name],
    plan: Plan,
    margin: Duration,
) -> Result<(), String> {
    history::check_beliefs(&history.beliefs.lock().expect("not poisoned"))?;
    let log = server.log();
    for name in names {
        let entries: Vec<_> = entries
            .iter()
            .filter(|entry| entry.name == *name)
            .cloned()
            .collect();
        let log: Vec<_> = log
            .iter()
            .filter(|version| version.name == *name)
            .cloned()
            .collect();
        linear::check_fences(&entries, &log)?;
        if plan.clock == StoreClock::Runs {
            linear::check(&entries, &log, server, margin)?;
        }
    }
    Ok(())
}

/// The seeds to run: `LEASEHOLD_SEED` alone, or the first so many.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |variable| {
        std::env::var(variable)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    match number("LEASEHOLD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LEASEHOLD_SEEDS").unwrap_or(default),
    }
}

/// Runs seeds on all processors; panics with the trace of the lowest that fails.
fn all_hold(seeds: std::ops::Range<u64>, plan: Plan) {
    let (next, calls) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let failures = std::sync::Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !failures.lock().expect("not poisoned").is_empty() {
                        return;
                    }
                    let run = simulate(seed, plan);
                    calls.fetch_add(run.calls as u64, Ordering::Relaxed);
                    if let Err(why) = &run.verdict {
                        let why = why.clone();
                        failures
                            .lock()
                            .expect("not poisoned")
                            .push((seed, why, run.trace));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("not poisoned");
    failures.sort_by_key(|(seed, ..)| *seed);
    if let Some((seed, why, trace)) = failures.into_iter().next() {
        let file = std::env::temp_dir().join(format!("leasehold-simulation-{seed}.txt"));
        let written = std::fs::write(&file, trace.join("\n"));
        panic!("LEASEHOLD_SEED={seed} repeats this (trace: {file:?} {written:?})\n{why}");
    }
    println!(
        "{} calls of {} seeds",
        calls.into_inner(),
        seeds.end - seeds.start
    );
}

#[test]
fn histories_are_linearizable() {
    all_hold(seeds(300), HONEST);
}

#[test]
fn a_step_of_the_stores_clock_overlaps_nobody() {
    all_hold(
        seeds(100),
        Plan {
            clock: StoreClock::Steps,
            ..HONEST
        },
    );
}

#[test]
fn small_steps_of_the_stores_clock_overlap_no_holders() {
    all_hold(
        seeds(150),
        Plan {
            clock: StoreClock::SmallSteps,
            ..HONEST
        },
    );
}

#[test]
fn slew_of_the_stores_clock_overlaps_no_holders() {
    all_hold(
        seeds(150),
        Plan {
            clock: StoreClock::Slews,
            ..HONEST
        },
    );
}

#[test]
fn puts_are_written_once() {
    for seed in seeds(200) {
        if let Err(why) = puts::simulate(seed) {
            panic!("LEASEHOLD_SEED={seed} repeats this: {why}");
        }
    }
}

#[test]
fn a_seed_reproduces_exactly() {
    for seed in seeds(20) {
        let (one, other) = (simulate(seed, HONEST).trace, simulate(seed, HONEST).trace);
        for (line, (one, other)) in one.iter().zip(&other).enumerate() {
            assert_eq!(one, other, "line {line} of seed {seed}");
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

/// A check that never fails checks nothing: a store that breaks its promise is found out.
#[test]
fn broken_stores_are_found_out() {
    for mutation in [
        Mutation::IgnoresVersions,
        Mutation::LosesWrites,
        Mutation::LiesAboutFailure,
        Mutation::ReadsThePast,
    ] {
        let plan = Plan { mutation, ..HONEST };
        let found = (0..20).find(|seed| simulate(*seed, plan).verdict.is_err());
        assert!(found.is_some(), "nobody notices a store that {mutation:?}");
    }
}
