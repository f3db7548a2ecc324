//! Lock cycles by libraries: ours, and the `redis` crate with the script that people write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::Client;

use crate::Result;
use crate::load::SILENCE;
use crate::sample::{Sample, latencies, lock_name};
use crate::speak::redis::{ACQUIRE, RELEASE};

const WARM_UP: Duration = Duration::from_millis(200);

/// Something that can take a lock and let go of it again.
pub(crate) trait Locks: Clone + Send + Sync + 'static {
    /// One cycle.
    fn cycle(&self, name: String) -> impl Future<Output = Result<()>> + Send;
}

impl Locks for Client {
    async fn cycle(&self, name: String) -> Result<()> {
        let lease = self.lease(name).acquire().await?;
        lease.release().await?;
        Ok(())
    }
}

/// The lock of the `redis` crate's users, all tasks on one connection as its documentation suggests.
#[derive(Clone)]
pub(crate) struct RedisCrate {
    connection: redis::aio::MultiplexedConnection,
    scripts: Arc<(redis::Script, redis::Script)>,
}

impl RedisCrate {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let client = redis::Client::open(url)?;
        // By itself it gives up after half a second, which neighbours may take away.
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(SILENCE));
        Ok(Self {
            connection: client
                .get_multiplexed_async_connection_with_config(&config)
                .await?,
            scripts: Arc::new((redis::Script::new(ACQUIRE), redis::Script::new(RELEASE))),
        })
    }
}

/// The process of a Redis.
pub(crate) async fn redis_process(url: &str) -> Result<u32> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let about: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await?;
    let process = about
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    Ok(process.unwrap_or_default().trim().parse()?)
}

impl Locks for RedisCrate {
    async fn cycle(&self, name: String) -> Result<()> {
        let mut connection = self.connection.clone();
        let (acquire, release) = &*self.scripts;
        let nonce = crate::speak::nonce();
        let lock = format!("l:{name}");
        let mut taking = acquire.prepare_invoke();
        taking.key(&lock).key(format!("f:{name}"));
        taking.arg(&nonce).arg(30_000);
        let fence: u64 = taking.invoke_async(&mut connection).await?;
        let mut leaving = release.prepare_invoke();
        leaving.key(&lock).arg(&nonce);
        let released: u64 = leaving.invoke_async(&mut connection).await?;
        assert!(fence > 0 && released == 1, "nobody else wants it");
        Ok(())
    }
}

/// Lock cycles of so many tasks. The names of a task are its own.
pub(crate) async fn cycles(
    locks: &impl Locks,
    tasks: usize,
    names: usize,
    measured: Duration,
) -> Result<Sample> {
    let begin = Instant::now() + WARM_UP;
    let end = begin + measured;
    let running: Vec<_> = (0..tasks)
        .map(|number| {
            let (locks, pick) = (locks.clone(), Scattered::new(number, tasks, names));
            tokio::spawn(async move { cycle_until(&locks, pick, begin, end).await })
        })
        .collect();
    let mut seen = latencies()?;
    for task in running {
        seen.add(task.await??)?;
    }
    Ok(Sample::new(measured, seen))
}

async fn cycle_until(
    locks: &impl Locks,
    mut pick: Scattered,
    begin: Instant,
    end: Instant,
) -> Result<Histogram<u64>> {
    let mut seen = latencies()?;
    loop {
        let started = Instant::now();
        locks.cycle(lock_name(pick.next())).await?;
        let now = Instant::now();
        if now >= end {
            return Ok(seen);
        }
        if now >= begin {
            seen.saturating_record(u64::try_from((now - started).as_nanos())?);
        }
    }
}

/// Every so many-th name, in an order without neighbours.
struct Scattered {
    number: usize,
    of: usize,
    count: usize,
    at: usize,
}

impl Scattered {
    fn new(number: usize, of: usize, names: usize) -> Self {
        Self {
            number,
            of,
            count: (names / of).max(1),
            at: number,
        }
    }

    fn next(&mut self) -> usize {
        // A prime, so that it comes round to all of them.
        self.at = (self.at + 7_368_787) % self.count;
        self.at * self.of + self.number
    }
}
