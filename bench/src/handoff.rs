//! Hand-off and takeover: the time from a release, or from the expiry of a dead holder, to the next grant.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Result;
use crate::load::Protocol as _;
use crate::protocols::etcd::Etcd;
use crate::protocols::http::Http;

/// The length of the wait queue.
const WAITERS: usize = 8;

/// Measures the times from sending a release to receiving the next grant, in microseconds, while a queue of waiters is
/// drained in each round.
pub(crate) fn of_service(address: SocketAddr, rounds: usize) -> Result<Vec<f64>> {
    let mut queue: Vec<_> = (0..=WAITERS)
        .map(|_| Contender::connect(address))
        .collect::<Result<_>>()?;
    let mut observer = Contender::connect(address)?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let name = format!("hand-off-{round}");
        queue[0].request(&name, "30s")?;
        queue[0].read()?;
        for (before, waiter) in queue[1..].iter_mut().enumerate() {
            waiter.request(&name, "30s")?;
            // Ensures that the waiters queue in this order.
            while observer.waiters(&name)? <= before {}
        }
        for position in 0..WAITERS {
            let sent = Instant::now();
            queue[position].release(&name)?;
            queue[position + 1].read()?;
            times.push(sent.elapsed().as_secs_f64() * 1e6);
            queue[position].read()?;
        }
        queue[WAITERS].release(&name)?;
        queue[WAITERS].read()?;
    }
    Ok(times)
}

/// Measures the same times on etcd.
pub(crate) async fn of_etcd(port: u16, rounds: usize) -> Result<Vec<f64>> {
    let etcd = Etcd::connect(port).await?;
    let mut times = Vec::new();
    for round in 0..rounds {
        let name = format!("hand-off-{round}");
        let mut key = etcd.lock(&name).await?;
        let mut queue = JoinSet::new();
        for _ in 0..WAITERS {
            // A contender with the same etcd lease would hold the lock already.
            let (waiter, name) = (etcd.contender().await?, name.clone());
            queue.spawn(async move { waiter.lock(&name).await });
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for _ in 0..WAITERS {
            let sent = Instant::now();
            let release = {
                let etcd = etcd.clone();
                tokio::spawn(async move { etcd.unlock(&key).await })
            };
            key = queue.join_next().await.expect("a waiter is left")??;
            times.push(sent.elapsed().as_secs_f64() * 1e6);
            release.await??;
        }
        etcd.unlock(&key).await?;
    }
    Ok(times)
}

/// Measures the delays of takeovers after the ttl of a dead holder, in microseconds; a negative delay would be a takeover
/// that is too early. The pairs of holder and waiter run in parallel, spread over a second.
pub(crate) fn takeover_delays(address: SocketAddr, pairs: usize) -> Result<Vec<f64>> {
    const TTL: Duration = Duration::from_millis(1_000);
    let pairs = (0..pairs).map(|number| {
        std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(move || -> Result<f64> {
                std::thread::sleep(Duration::from_millis(number as u64 * 7 % 1_000));
                let name = format!("takeover-{number}");
                let mut holder = Contender::connect(address)?;
                let mut waiter = Contender::connect(address)?;
                let sent = Instant::now();
                holder.request(&name, "1s")?;
                holder.read()?;
                drop(holder);
                waiter.request(&name, "1s")?;
                waiter.read()?;
                let elapsed = sent.elapsed();
                waiter.release(&name)?;
                waiter.read()?;
                Ok((elapsed.as_secs_f64() - TTL.as_secs_f64()) * 1e6)
            })
            .map_err(Into::into)
    });
    let pairs: Vec<_> = pairs.collect::<Result<_>>()?;
    pairs
        .into_iter()
        .map(|pair| pair.join().expect("no panic"))
        .collect()
}

struct Contender {
    stream: TcpStream,
    http: Http,
}

impl Contender {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self {
            stream,
            http: Http::default(),
        })
    }

    fn request(&mut self, name: &str, ttl: &str) -> Result<()> {
        let mut out = Vec::new();
        Http::acquire_waiting(name, 20, ttl, &mut out);
        Ok(self.stream.write_all(&out)?)
    }

    fn release(&mut self, name: &str) -> Result<()> {
        let mut out = Vec::new();
        self.http.release(name, &mut out);
        Ok(self.stream.write_all(&out)?)
    }

    fn read(&mut self) -> Result<()> {
        Ok(self.http.read(&mut self.stream)?)
    }

    /// Returns the number of waiters of a lock.
    fn waiters(&mut self, name: &str) -> Result<usize> {
        let mut out = Vec::new();
        Http::show(name, &mut out);
        self.stream.write_all(&out)?;
        self.read()?;
        Ok(self.http.waiters)
    }
}
