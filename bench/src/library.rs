//! Lock cycles with client libraries: Leasehold, and the `redis` crate with a script.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold::Client;

use crate::Result;
use crate::load::TIMEOUT;
use crate::protocols::redis::{ACQUIRE, RELEASE};
use crate::sample::{Sample, latencies, lock_name};

const WARM_UP: Duration = Duration::from_millis(200);

/// A library that can acquire and release locks.
pub(crate) trait Locks: Clone + Send + Sync + 'static {
    /// Acquires and releases a lock.
    fn cycle(&self, name: String) -> impl Future<Output = Result<()>> + Send;
}

impl Locks for Client {
    async fn cycle(&self, name: String) -> Result<()> {
        let lease = self.lease(name).acquire().await?;
        lease.release().await?;
        Ok(())
    }
}

/// A lock with the `redis` crate, with all tasks on one connection as its documentation suggests.
#[derive(Clone)]
pub(crate) struct RedisCrate {
    connection: redis::aio::MultiplexedConnection,
    scripts: Arc<(redis::Script, redis::Script)>,
}

impl RedisCrate {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let client = redis::Client::open(url)?;
        // The default timeout of half a second is too short for a machine with steal time.
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
        Ok(Self {
            connection: client
                .get_multiplexed_async_connection_with_config(&config)
                .await?,
            scripts: Arc::new((redis::Script::new(ACQUIRE), redis::Script::new(RELEASE))),
        })
    }
}

/// Returns the process id of a Redis server.
pub(crate) async fn redis_process(url: &str) -> Result<u32> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await?;
    let process = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    Ok(process.unwrap_or_default().trim().parse()?)
}

impl Locks for RedisCrate {
    async fn cycle(&self, name: String) -> Result<()> {
        let mut connection = self.connection.clone();
        let (acquire, release) = &*self.scripts;
        let nonce = crate::protocols::nonce();
        let lock = format!("l:{name}");
        let mut acquire = acquire.prepare_invoke();
        acquire.key(&lock).key(format!("f:{name}"));
        acquire.arg(&nonce).arg(30_000);
        let fence: u64 = acquire.invoke_async(&mut connection).await?;
        let mut release = release.prepare_invoke();
        release.key(&lock).arg(&nonce);
        let released: u64 = release.invoke_async(&mut connection).await?;
        assert!(fence > 0 && released == 1, "there is no contention");
        Ok(())
    }
}

/// Measures lock cycles of concurrent tasks. No two tasks use the same name.
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
            let (locks, numbers) = (locks.clone(), ScatteredNumbers::new(number, tasks, names));
            tokio::spawn(async move { cycle_until(&locks, numbers, begin, end).await })
        })
        .collect();
    let mut histogram = latencies()?;
    for task in running {
        histogram.add(task.await??)?;
    }
    Ok(Sample::new(measured, histogram))
}

async fn cycle_until(
    locks: &impl Locks,
    mut numbers: ScatteredNumbers,
    begin: Instant,
    end: Instant,
) -> Result<Histogram<u64>> {
    let mut histogram = latencies()?;
    loop {
        let started = Instant::now();
        locks.cycle(lock_name(numbers.next())).await?;
        let now = Instant::now();
        if now >= end {
            return Ok(histogram);
        }
        if now >= begin {
            histogram.saturating_record(u64::try_from((now - started).as_nanos())?);
        }
    }
}

/// The numbers of the names of one task, in an order in which consecutive names are not adjacent.
struct ScatteredNumbers {
    task: usize,
    tasks: usize,
    count: usize,
    position: usize,
}

impl ScatteredNumbers {
    fn new(task: usize, tasks: usize, names: usize) -> Self {
        Self {
            task,
            tasks,
            count: (names / tasks).max(1),
            position: task,
        }
    }

    fn next(&mut self) -> usize {
        // A prime step, so that every position is reached.
        self.position = (self.position + 7_368_787) % self.count;
        self.position * self.tasks + self.task
    }
}
