//! A store that does all that a network and a failing server do, and remembers what really happened.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{Name, Record, Stamp, Time};
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};
use leasehold::{Error, Result};

use super::world::{Machine, Moment, World};

/// A version that a record really had.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: Name,
    pub(crate) at: Moment,
    pub(crate) record: Arc<Record>,
}

/// What the store does wrong on purpose, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Nothing: an honest store on a bad network.
    None,
    /// It sometimes writes without looking at the version.
    IgnoresVersions,
    /// It sometimes acknowledges what it has not written.
    LosesWrites,
    /// It sometimes says that nothing was written when something was.
    LiesAboutFailure,
    /// It sometimes answers with what a record was before.
    ReadsThePast,
}

/// The server.
pub(crate) struct Server {
    world: Arc<World>,
    memory: Memory,
    clock: Arc<Machine>,
    margin: Duration,
    mutation: Mutation,
    log: Mutex<Vec<Version>>,
    healed: AtomicBool,
    /// Until then it is away, in true microseconds.
    away_until: AtomicU64,
}

/// 2026, in microseconds.
const EPOCH: u64 = 1_780_000_000_000_000;

impl Server {
    pub(crate) fn new(world: &Arc<World>, margin: Duration, mutation: Mutation) -> Arc<Self> {
        let clock = Machine::new(world, 0);
        Arc::new(Self {
            memory: Memory::with_clock(clock.clone(), Time::from_micros(EPOCH)),
            clock,
            margin,
            mutation,
            log: Mutex::default(),
            healed: AtomicBool::new(false),
            away_until: AtomicU64::new(0),
            world: world.clone(),
        })
    }

    /// From now on nothing goes wrong any more, but for what is still on its way.
    pub(crate) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
    }

    /// Is away for a while.
    pub(crate) fn go_away(&self, span: Duration) {
        let until = self.world.micros() + span.as_micros() as u64;
        self.away_until.store(until, Ordering::Relaxed);
        self.world.note(format!("server away until {until}"));
    }

    /// Steps its clock.
    pub(crate) fn step_clock(&self, by_us: i64) {
        self.clock.step(by_us);
        self.world.note(format!("server's clock steps by {by_us}"));
    }

    /// Slews its clock from now on.
    pub(crate) fn slew_clock(&self, per_million: i64) {
        self.clock.slew(per_million);
        self.world
            .note(format!("server's clock is slewed by {per_million} ppm"));
    }

    /// Every version that was really written, in order.
    pub(crate) fn log(&self) -> Vec<Version> {
        self.log.lock().expect("not poisoned").clone()
    }

    /// The store's time at a true time, if its clock was never stepped.
    pub(crate) fn store_time(&self, micros: u64) -> Time {
        let boot_at_zero = {
            use leasehold::host::Host as _;
            self.clock.boot_time().as_micros() - self.world.micros()
        };
        Time::from_micros(EPOCH + boot_at_zero + micros)
    }

    fn is_away(&self) -> bool {
        !self.healed.load(Ordering::Relaxed)
            && self.world.micros() < self.away_until.load(Ordering::Relaxed)
    }

    /// Really writes one batch.
    async fn apply(&self, mut writes: Vec<Write>) -> Answer<Vec<Swapped>> {
        if self.mutation == Mutation::IgnoresVersions && self.world.chance(20) {
            for write in &mut writes {
                let current = self.memory.load(std::slice::from_ref(&write.name)).await;
                let current = current.expect("memory answers").value.remove(0);
                write.expect = current.map(|stored| stored.version);
            }
        }
        if self.mutation == Mutation::LosesWrites && self.world.chance(10) {
            let stamp = self.memory.load(&[]).await.expect("memory answers").stamp;
            let value = writes
                .iter()
                .map(|_| Swapped::Written { tag: None })
                .collect();
            return Answer { value, stamp };
        }
        let answer = self
            .memory
            .swap(writes.clone())
            .await
            .expect("memory answers");
        for (write, swapped) in writes.into_iter().zip(&answer.value) {
            if let (Swapped::Written { .. }, Some((id, record))) = (swapped, write.put) {
                let at = self.world.moment();
                self.world.note(format!(
                    "written {} {id} fence {}",
                    write.name, record.fence
                ));
                self.log.lock().expect("not poisoned").push(Version {
                    name: write.name,
                    at,
                    record,
                });
            }
        }
        answer
    }
}

/// One engine's way to the server.
pub(crate) struct Connection {
    server: Arc<Server>,
    facts: Facts,
}

/// What becomes of a request.
enum Fate {
    Good,
    /// Nothing happens, and that is known.
    Refused,
    /// Nothing happens, and nobody can tell.
    Dropped,
    /// It happens, but no answer arrives: an error, or nothing at all.
    Unanswered,
    /// It happens long after everybody has given up.
    Late,
    /// It is sent twice, and the answer is the second one.
    Repeated,
}

impl Connection {
    pub(crate) fn new(server: &Arc<Server>) -> Arc<Self> {
        let (batch, in_flight) = server
            .world
            .draw(|random| (1 + random.below(8), 1 + random.below(3)));
        Arc::new(Self {
            server: server.clone(),
            facts: Facts {
                margin: server.margin,
                batch: batch as usize,
                in_flight: in_flight as usize,
                poll: Duration::from_millis(200),
            },
        })
    }

    fn fate(&self) -> Fate {
        let server = &self.server;
        if server.healed.load(Ordering::Relaxed) {
            return Fate::Good;
        }
        if server.is_away() {
            return if server.world.chance(70) {
                Fate::Refused
            } else {
                Fate::Dropped
            };
        }
        match server.world.draw(|random| random.below(100)) {
            0..=2 => Fate::Refused,
            3..=5 => Fate::Dropped,
            6..=10 => Fate::Unanswered,
            11..=13 => Fate::Late,
            14..=16 => Fate::Repeated,
            _ => Fate::Good,
        }
    }

    /// One way through the network: mostly fast.
    async fn travel(&self) {
        let world = &self.server.world;
        let slow = !self.server.healed.load(Ordering::Relaxed) && world.chance(10);
        let span = if slow {
            world.span(20, 900)
        } else {
            world.span(0, 8)
        };
        tokio::time::sleep(span).await;
    }

    /// No answer: an error after a while, or silence.
    async fn silence<T>(&self) -> Result<T> {
        let world = &self.server.world;
        if world.chance(40) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(world.span(0, 300)).await;
        Err(Error::Indeterminate("the connection was reset".into()))
    }

    /// Each answer may come from another front end, whose clock is off by up to the margin.
    fn stamped<T>(&self, mut answer: Answer<T>) -> Answer<T> {
        let margin = self.server.margin.as_micros() as u64;
        let skew = self.server.world.draw(|random| random.below(margin + 1));
        answer.stamp = Stamp {
            time: answer.stamp.time + Duration::from_micros(skew),
            ..answer.stamp
        };
        answer
    }
}

#[async_trait]
impl Store for Connection {
    fn facts(&self) -> Facts {
        self.facts
    }

    async fn load(&self, names: &[Name]) -> Result<Answer<Vec<Option<Stored>>>> {
        self.travel().await;
        match self.fate() {
            Fate::Good | Fate::Repeated => {}
            Fate::Refused => return Err(Error::Unavailable("the server is away".into())),
            Fate::Dropped | Fate::Unanswered | Fate::Late => return self.silence().await,
        }
        let mut answer = self.server.memory.load(names).await?;
        if self.server.mutation == Mutation::ReadsThePast && self.server.world.chance(20) {
            for (name, stored) in names.iter().zip(&mut answer.value) {
                let log = self.server.log.lock().expect("not poisoned");
                let mut versions = log.iter().rev().filter(|version| version.name == *name);
                if let (Some(stored), Some(older)) = (stored, versions.nth(1)) {
                    stored.record = older.record.clone();
                }
            }
        }
        let answer = self.stamped(answer);
        self.travel().await;
        Ok(answer)
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.travel().await;
        let fate = self.fate();
        let late = match fate {
            Fate::Refused => return Err(Error::Unavailable("the server is away".into())),
            Fate::Dropped => return self.silence().await,
            Fate::Late => self.server.world.span(100, 8_000),
            Fate::Good | Fate::Unanswered | Fate::Repeated => Duration::ZERO,
        };
        let is_repeated = matches!(fate, Fate::Repeated);
        // On the server nobody knows whether the caller still waits: what has arrived is carried out.
        let server = self.server.clone();
        let carried_out = tokio::spawn(async move {
            tokio::time::sleep(late).await;
            if is_repeated {
                server.apply(writes.clone()).await;
            }
            server.apply(writes).await
        });
        if !matches!(fate, Fate::Good | Fate::Repeated) {
            return self.silence().await;
        }
        let answer = carried_out.await.expect("the server does not panic");
        if self.server.mutation == Mutation::LiesAboutFailure && self.server.world.chance(10) {
            return Err(Error::Unavailable("nothing was written, honestly".into()));
        }
        let answer = self.stamped(answer);
        self.travel().await;
        Ok(answer)
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.server.memory.find(query).await
    }
}
