//! Puts of one item through several engines while answers are lost: a put that another one has followed is not written
//! again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Error;
use leasehold::core::{Hash, Name, Operation, Outcome, Put};
use leasehold::engine::{Engine, Patience};

use super::start_engine;
use super::store::{Mutation, Server};
use super::world::{Machine, World};

const ENGINES: u64 = 3;
const PUTS: u64 = 40;

/// What producers were told of their puts.
#[derive(Default)]
struct Told {
    done: BTreeSet<Hash>,
    not_done: BTreeSet<Hash>,
}

/// Puts by several producers, each with a nonce of its own. What is wrong with what was stored, if anything is.
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
    let told = Arc::<Mutex<Told>>::default();
    let mut producers = Vec::new();
    for number in 0..ENGINES {
        let engine = start_engine(&server, &Machine::new(&world, 0)).await;
        producers.push(tokio::spawn(produce(
            world.clone(),
            engine,
            number,
            told.clone(),
        )));
    }
    for producer in producers {
        producer.await.map_err(|error| error.to_string())?;
    }
    server.heal();
    // Whatever is still on its way arrives.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let stored = server.log().into_iter().map(|version| version.record.put);
    check(stored.flatten(), &told.lock().expect("not poisoned"))
}

async fn produce(world: Arc<World>, engine: Engine, producer: u64, told: Arc<Mutex<Told>>) {
    let item = Name::lock("item").expect("a name");
    for number in 0..PUTS {
        tokio::time::sleep(world.span(0, 60)).await;
        let nonce = Hash::of(&[&producer.to_le_bytes(), &number.to_le_bytes()]);
        let put = Operation::Put(Put {
            state: "READY".into(),
            body: Some(format!("{producer}.{number}").into()),
            nonce: Some(nonce),
        });
        let answer = engine.perform(&item, put, Patience::NONE).await;
        let mut told = told.lock().expect("not poisoned");
        match answer.map(|reply| reply.take().0) {
            Ok(Outcome::Put) => told.done.insert(nonce),
            Err(Error::Unavailable(_)) => told.not_done.insert(nonce),
            Err(Error::Indeterminate(_)) => continue,
            other => panic!("a put was answered with {other:?}"),
        };
    }
}

/// Each put was written once or not at all, as its caller was told.
fn check(stored: impl Iterator<Item = Hash>, told: &Told) -> Result<(), String> {
    let mut written = BTreeSet::new();
    let mut last = None;
    for put in stored {
        if last.replace(put) != Some(put) && !written.insert(put) {
            return Err(format!("the put {put} was written again over a later one"));
        }
    }
    match (
        told.done.difference(&written).next(),
        told.not_done.intersection(&written).next(),
    ) {
        (None, None) => Ok(()),
        wrong => Err(format!(
            "acknowledged and lost, or denied and done: {wrong:?}"
        )),
    }
}
