//! A store behind a faulty network, on a failing server, with a log of all committed versions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{Name, Record, Stamp, Time};
use leasehold::store::memory::Memory;
use leasehold::store::{Answer, Facts, Page, Query, Store, Stored, Swapped, Write};
use leasehold::{Error, Result};

use super::world::{Machine, Moment, World};

/// A committed version of a record.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: Name,
    pub(crate) at: Moment,
    pub(crate) record: Arc<Record>,
}

/// A deliberate bug of the store, which the checks must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A correct store behind a faulty network.
    None,
    /// Some writes ignore the expected version.
    IgnoreVersions,
    /// Some writes are acknowledged but not committed.
    LoseWrites,
    /// Some committed writes are reported as failed.
    DenyWrites,
    /// Some reads return an earlier version.
    ReadStale,
}

/// The server.
pub(crate) struct Server {
    world: Arc<World>,
    memory: Memory,
    clock: Arc<Machine>,
    margin: Duration,
    mutation: Mutation,
    log: Mutex<Vec<Version>>,
    faults_ended: AtomicBool,
    /// The end of its outage, in true microseconds.
    unavailable_until: AtomicU64,
}

/// A time in 2026, in microseconds.
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
            faults_ended: AtomicBool::new(false),
            unavailable_until: AtomicU64::new(0),
            world: world.clone(),
        })
    }

    /// Ends all faults. Requests that were delayed before still arrive.
    pub(crate) fn end_faults(&self) {
        self.faults_ended.store(true, Ordering::Relaxed);
    }

    /// Starts an outage of this length.
    pub(crate) fn become_unavailable(&self, length: Duration) {
        let until = self.world.micros() + length.as_micros() as u64;
        self.unavailable_until.store(until, Ordering::Relaxed);
        self.world
            .note(format!("the server is unavailable until {until}"));
    }

    /// Steps its clock.
    pub(crate) fn step_clock(&self, by_us: i64) {
        self.clock.step(by_us);
        self.world
            .note(format!("the server's clock steps by {by_us} µs"));
    }

    /// Slews its clock from now on.
    pub(crate) fn slew_clock(&self, per_million: i64) {
        self.clock.slew(per_million);
        self.world
            .note(format!("the server's clock is slewed by {per_million} ppm"));
    }

    /// Returns all committed versions in order.
    pub(crate) fn log(&self) -> Vec<Version> {
        self.log.lock().expect("not poisoned").clone()
    }

    /// Returns the store's time at a true time, if its clock was never stepped.
    pub(crate) fn store_time(&self, micros: u64) -> Time {
        let boot_at_zero = {
            use leasehold::host::Host as _;
            self.clock.boot_time().as_micros() - self.world.micros()
        };
        Time::from_micros(EPOCH + boot_at_zero + micros)
    }

    fn is_unavailable(&self) -> bool {
        !self.faults_ended.load(Ordering::Relaxed)
            && self.world.micros() < self.unavailable_until.load(Ordering::Relaxed)
    }

    /// Commits one batch.
    async fn apply(&self, mut writes: Vec<Write>) -> Answer<Vec<Swapped>> {
        if self.mutation == Mutation::IgnoreVersions && self.world.chance(20) {
            for write in &mut writes {
                let current = self.memory.load(std::slice::from_ref(&write.name)).await;
                let current = current.expect("memory answers").value.remove(0);
                write.expect = current.map(|stored| stored.version);
            }
        }
        if self.mutation == Mutation::LoseWrites && self.world.chance(10) {
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

/// The network between one engine and the server.
pub(crate) struct Connection {
    server: Arc<Server>,
    facts: Facts,
}

/// How the network delivers a request.
enum Delivery {
    Normal,
    /// It has no effect, and the error says so.
    Refused,
    /// It has no effect, but the error is ambiguous.
    Dropped,
    /// It takes effect, but its answer is lost.
    Unanswered,
    /// It takes effect long after the caller's timeout.
    Late,
    /// It is sent twice, and the answer is that of the second time.
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

    fn draw_delivery(&self) -> Delivery {
        let server = &self.server;
        if server.faults_ended.load(Ordering::Relaxed) {
            return Delivery::Normal;
        }
        if server.is_unavailable() {
            return if server.world.chance(70) {
                Delivery::Refused
            } else {
                Delivery::Dropped
            };
        }
        match server.world.draw(|random| random.below(100)) {
            0..=2 => Delivery::Refused,
            3..=5 => Delivery::Dropped,
            6..=10 => Delivery::Unanswered,
            11..=13 => Delivery::Late,
            14..=16 => Delivery::Repeated,
            _ => Delivery::Normal,
        }
    }

    /// Delays a request or an answer, mostly briefly.
    async fn delay(&self) {
        let world = &self.server.world;
        let is_slow = !self.server.faults_ended.load(Ordering::Relaxed) && world.chance(10);
        let delay = if is_slow {
            world.duration(20, 900)
        } else {
            world.duration(0, 8)
        };
        tokio::time::sleep(delay).await;
    }

    /// Returns an ambiguous error after a delay, or never.
    async fn lose_answer<T>(&self) -> Result<T> {
        let world = &self.server.world;
        if world.chance(40) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(world.duration(0, 300)).await;
        Err(Error::Indeterminate("the connection was reset".into()))
    }

    /// Skews the time of an answer by up to the margin, as if each came from another front end.
    fn with_skew<T>(&self, mut answer: Answer<T>) -> Answer<T> {
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
        self.delay().await;
        match self.draw_delivery() {
            Delivery::Normal | Delivery::Repeated => {}
            Delivery::Refused => {
                return Err(Error::Unavailable("the server is unavailable".into()));
            }
            Delivery::Dropped | Delivery::Unanswered | Delivery::Late => {
                return self.lose_answer().await;
            }
        }
        let mut answer = self.server.memory.load(names).await?;
        if self.server.mutation == Mutation::ReadStale && self.server.world.chance(20) {
            for (name, stored) in names.iter().zip(&mut answer.value) {
                let log = self.server.log.lock().expect("not poisoned");
                let mut versions = log.iter().rev().filter(|version| version.name == *name);
                if let (Some(stored), Some(older)) = (stored, versions.nth(1)) {
                    stored.record = older.record.clone();
                }
            }
        }
        let answer = self.with_skew(answer);
        self.delay().await;
        Ok(answer)
    }

    async fn swap(&self, writes: Vec<Write>) -> Result<Answer<Vec<Swapped>>> {
        self.delay().await;
        let delivery = self.draw_delivery();
        let delay = match delivery {
            Delivery::Refused => {
                return Err(Error::Unavailable("the server is unavailable".into()));
            }
            Delivery::Dropped => return self.lose_answer().await,
            Delivery::Late => self.server.world.duration(100, 8_000),
            Delivery::Normal | Delivery::Unanswered | Delivery::Repeated => Duration::ZERO,
        };
        let is_repeated = matches!(delivery, Delivery::Repeated);
        // The server commits a request that has arrived, even if its caller has given up.
        let server = self.server.clone();
        let committed = tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if is_repeated {
                server.apply(writes.clone()).await;
            }
            server.apply(writes).await
        });
        if !matches!(delivery, Delivery::Normal | Delivery::Repeated) {
            return self.lose_answer().await;
        }
        let answer = committed.await.expect("the server does not panic");
        if self.server.mutation == Mutation::DenyWrites && self.server.world.chance(10) {
            return Err(Error::Unavailable("nothing was written".into()));
        }
        let answer = self.with_skew(answer);
        self.delay().await;
        Ok(answer)
    }

    async fn find(&self, query: &Query) -> Result<Answer<Page>> {
        self.server.memory.find(query).await
    }
}
