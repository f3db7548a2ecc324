//! A seeded simulation of several engines on one store, with the faults of networks and servers, skewed and drifting
//! clocks, and clients that perform random operations.
//!
//! Time is simulated and all randomness comes from a seed, so that a run can be repeated exactly:
//! `LEASEHOLD_SEED=7 cargo test --features conformance --test simulation`. `LEASEHOLD_SEEDS=10000` runs more seeds.
//!
//! The tests check that the history of each name is linearizable against the pure core (`linear.rs`), that clients never
//! believe at the same time that they hold an exclusive lease, and that fences only increase.

mod calls;
mod client;
mod history;
mod linear;
mod puts;
mod store;
mod untracked;
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

/// The maximum drift of clocks in parts per million: just within the tolerance of 500.
const DRIFT: u64 = 499;

/// The configuration of a simulation.
#[derive(Clone, Copy)]
struct Scenario {
    mutation: Mutation,
    clock: StoreClock,
}

/// The behaviour of the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreClock {
    Steady,
    /// Steps mostly exceed the margin.
    Steps,
    /// Many steps are smaller than the margin.
    SmallSteps,
    /// The rate changes repeatedly.
    Slews,
}

/// The maximum slew of chrony, in parts per million.
const MAX_SLEW: i64 = 83_333;

const CORRECT_STORE: Scenario = Scenario {
    mutation: Mutation::None,
    clock: StoreClock::Steady,
};

/// The result of a simulation.
struct Run {
    verdict: Result<(), String>,
    trace: Vec<String>,
    calls: usize,
}

fn simulate(seed: u64, scenario: Scenario) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run(seed, scenario))
}

async fn run(seed: u64, scenario: Scenario) -> Run {
    let world = World::new(seed);
    let is_embedded = world.chance(50);
    // The clock of an embedded store is this machine's, and is not slewed.
    let is_embedded =
        is_embedded && matches!(scenario.clock, StoreClock::Steady | StoreClock::Steps);
    let margin = Duration::from_millis(if is_embedded { 0 } else { 250 });
    // All engines of an embedded store share its clock.
    let drift = if is_embedded { 0 } else { DRIFT };
    let server = Server::new(&world, margin, scenario.mutation);
    let history = Arc::new(History::default());
    let names: Vec<_> = ["one", "shared"]
        .map(|name| Name::lock(name).expect("a valid name"))
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
                is_long_running: matches!(
                    scenario.clock,
                    StoreClock::SmallSteps | StoreClock::Slews
                ),
            };
            clients.push(client);
        }
    }
    let observer = start_observer(&world, &server, &history, &names, drift).await;
    let faults = tokio::spawn(inject_faults(
        world.clone(),
        server.clone(),
        scenario.clock,
        margin,
    ));
    let running: Vec<_> = clients
        .into_iter()
        .map(|client| tokio::spawn(client.run(25)))
        .collect();
    let mut verdict = Ok(());
    for client in running {
        // Far longer than all operations of a client may take.
        let joined = tokio::time::timeout(Duration::from_secs(600), client).await;
        let result = match joined {
            Ok(joined) => joined.map_err(|panicked| format!("a client panicked: {panicked}")),
            Err(_) => Err("a client got no answer".to_owned()),
        };
        verdict = verdict.and(result);
    }
    faults.abort();
    server.end_faults();
    // All delayed requests arrive.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for name in &names {
        verdict = verdict.and(check_final_state(&observer, name, scenario).await);
    }
    let entries = history.entries.lock().expect("not poisoned").clone();
    let verdict =
        verdict.and_then(|()| check(&entries, &server, &history, &names, scenario, margin));
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

/// Starts a client that performs operations only at the end, but whose engine runs from the beginning.
async fn start_observer(
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
        is_long_running: false,
    }
}

/// Makes the server unavailable repeatedly, and steps or slews its clock.
async fn inject_faults(
    world: Arc<World>,
    server: Arc<Server>,
    clock: StoreClock,
    margin: Duration,
) {
    let between =
        |min: i64, max: i64| min + world.draw(|random| random.below((max - min) as u64 + 1)) as i64;
    loop {
        tokio::time::sleep(world.duration(500, 6_000)).await;
        if clock == StoreClock::Steady || world.chance(60) {
            server.become_unavailable(world.duration(50, 2_500));
            continue;
        }
        match clock {
            StoreClock::Steady => {}
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

/// Reads a name after all faults, and checks that it can be acquired again in bounded time.
async fn check_final_state(
    observer: &Client,
    name: &Name,
    scenario: Scenario,
) -> Result<(), String> {
    observer.show(name).await;
    let acquire = Operation::Acquire(Acquire {
        nonce: Hash::of(&[b"observer"]),
        owner: "observer".into(),
        principal: None,
        ttl: Duration::from_secs(2),
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    });
    // The maximum ttl, the maximum error of a clock, and an unused reservation.
    let wait = match scenario.clock {
        StoreClock::Steady => 15_000,
        _ => 60_000,
    };
    match observer.perform(name, acquire, wait).await {
        Some((Outcome::Granted(_), _)) => Ok(()),
        other => Err(format!(
            "{name} cannot be acquired after all faults: {other:?}"
        )),
    }
}

fn check(
    entries: &[history::Entry],
    server: &Server,
    history: &History,
    names: &[Name],
    scenario: Scenario,
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
        if scenario.clock == StoreClock::Steady {
            linear::check(&entries, &log, server, margin)?;
        }
    }
    Ok(())
}

/// Returns the seeds to run: `LEASEHOLD_SEED` alone, or as many as `LEASEHOLD_SEEDS` or the default says.
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

/// Runs seeds on all processors. Panics with the trace of the lowest seed that fails.
fn check_seeds(seeds: std::ops::Range<u64>, scenario: Scenario) {
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
                    let run = simulate(seed, scenario);
                    calls.fetch_add(run.calls as u64, Ordering::Relaxed);
                    if let Err(problem) = &run.verdict {
                        let problem = problem.clone();
                        failures
                            .lock()
                            .expect("not poisoned")
                            .push((seed, problem, run.trace));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("not poisoned");
    failures.sort_by_key(|(seed, ..)| *seed);
    if let Some((seed, problem, trace)) = failures.into_iter().next() {
        let file = std::env::temp_dir().join(format!("leasehold-simulation-{seed}.txt"));
        let written = std::fs::write(&file, trace.join("\n"));
        panic!("LEASEHOLD_SEED={seed} repeats this (trace: {file:?} {written:?})\n{problem}");
    }
    println!(
        "{} calls of {} seeds",
        calls.into_inner(),
        seeds.end - seeds.start
    );
}

#[test]
fn histories_are_linearizable() {
    check_seeds(seeds(300), CORRECT_STORE);
}

#[test]
fn steps_of_the_stores_clock_overlap_no_holders() {
    check_seeds(
        seeds(100),
        Scenario {
            clock: StoreClock::Steps,
            ..CORRECT_STORE
        },
    );
}

#[test]
fn small_steps_of_the_stores_clock_overlap_no_holders() {
    check_seeds(
        seeds(150),
        Scenario {
            clock: StoreClock::SmallSteps,
            ..CORRECT_STORE
        },
    );
}

#[test]
fn slew_of_the_stores_clock_overlaps_no_holders() {
    check_seeds(
        seeds(150),
        Scenario {
            clock: StoreClock::Slews,
            ..CORRECT_STORE
        },
    );
}

#[test]
fn puts_are_written_once() {
    for seed in seeds(200) {
        if let Err(problem) = puts::simulate(seed) {
            panic!("LEASEHOLD_SEED={seed} repeats this: {problem}");
        }
    }
}

#[test]
fn seed_reproduces_its_run_exactly() {
    for seed in seeds(20) {
        let (one, other) = (
            simulate(seed, CORRECT_STORE).trace,
            simulate(seed, CORRECT_STORE).trace,
        );
        for (line, (one, other)) in one.iter().zip(&other).enumerate() {
            assert_eq!(one, other, "line {line} of seed {seed}");
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

/// The control: the checks fail on a store that breaks its contract.
#[test]
fn broken_stores_are_detected() {
    for mutation in [
        Mutation::IgnoreVersions,
        Mutation::LoseWrites,
        Mutation::DenyWrites,
        Mutation::ReadStale,
    ] {
        let scenario = Scenario {
            mutation,
            ..CORRECT_STORE
        };
        let found = (0..20).find(|seed| simulate(*seed, scenario).verdict.is_err());
        assert!(found.is_some(), "not detected: {mutation:?}");
    }
}
