//! Puts of one item through several engines while answers are lost: a put is not written again over a later one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Error;
use leasehold::core::{Hash, Name, Operation, Outcome, Put};
use leasehold::engine::{Engine, WaitLimit};

use super::start_engine;
use super::store::{Mutation, Server};
use super::world::{Machine, World};

const ENGINES: u64 = 3;
const PUTS: u64 = 40;

/// The answers that producers received to their puts.
#[derive(Default)]
struct Answers {
    acknowledged: BTreeSet<Hash>,
    denied: BTreeSet<Hash>,
}

/// Simulates puts by several producers, each with its own nonce. Returns an error if a put was lost or written twice.
pub(crate) fn simulate(seed: u64) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run(seed))
}

async fn run(seed: u64) -> Result<(), String> {
    let world = World::new(seed);
    let server = Server::new(&world, Duration::from_millis(250), Mutation::None);
    let answers = Arc::<Mutex<Answers>>::default();
    let mut producers = Vec::new();
    for number in 0..ENGINES {
        let engine = start_engine(&server, &Machine::new(&world, 0)).await;
        producers.push(tokio::spawn(produce(
            world.clone(),
            engine,
            number,
            answers.clone(),
        )));
    }
    for producer in producers {
        producer.await.map_err(|error| error.to_string())?;
    }
    server.end_faults();
    // All delayed requests arrive.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let stored = server.log().into_iter().map(|version| version.record.put);
    check(stored.flatten(), &answers.lock().expect("not poisoned"))
}

async fn produce(world: Arc<World>, engine: Engine, producer: u64, answers: Arc<Mutex<Answers>>) {
    let item = Name::lock("item").expect("a valid name");
    for number in 0..PUTS {
        tokio::time::sleep(world.duration(0, 60)).await;
        let nonce = Hash::of(&[&producer.to_le_bytes(), &number.to_le_bytes()]);
        let put = Operation::Put(Put {
            state: "READY".into(),
            body: Some(format!("{producer}.{number}").into()),
            nonce: Some(nonce),
        });
        let answer = engine.perform(&item, put, WaitLimit::NONE).await;
        let mut answers = answers.lock().expect("not poisoned");
        match answer.map(|reply| reply.take().0) {
            Ok(Outcome::Put) => answers.acknowledged.insert(nonce),
            Err(Error::Unavailable(_)) => answers.denied.insert(nonce),
            Err(Error::Indeterminate(_)) => continue,
            other => panic!("a put was answered with {other:?}"),
        };
    }
}

/// Checks that each acknowledged put was written once, and no denied one.
fn check(stored: impl Iterator<Item = Hash>, answers: &Answers) -> Result<(), String> {
    let mut written = BTreeSet::new();
    let mut last = None;
    for put in stored {
        if last.replace(put) != Some(put) && !written.insert(put) {
            return Err(format!("the put {put} was written again over a later one"));
        }
    }
    match (
        answers.acknowledged.difference(&written).next(),
        answers.denied.intersection(&written).next(),
    ) {
        (None, None) => Ok(()),
        wrong => Err(format!(
            "acknowledged but not written, or denied but written: {wrong:?}"
        )),
    }
}
