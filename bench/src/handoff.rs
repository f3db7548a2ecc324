//! From hand to hand: how soon after a release, or after a holder's death, the next in line has the lock.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Result;
use crate::load::Protocol as _;
use crate::speak::etcd::Etcd;
use crate::speak::http::Http;

/// How many wait in line.
const WAITERS: usize = 8;

/// Release sent to next grant received, in microseconds, while a line of waiters is drained, so many times.
pub(crate) fn of_service(address: SocketAddr, rounds: usize) -> Result<Vec<f64>> {
    let mut line: Vec<_> = (0..=WAITERS)
        .map(|_| Waiter::connect(address))
        .collect::<Result<_>>()?;
    let mut usher = Waiter::connect(address)?;
    let mut took = Vec::new();
    for round in 0..rounds {
        let name = format!("hand-over-{round}");
        line[0].ask(&name, "30s")?;
        line[0].read()?;
        for (before, waiter) in line[1..].iter_mut().enumerate() {
            waiter.ask(&name, "30s")?;
            // So that they stand in this order.
            while usher.waiters(&name)? <= before {}
        }
        for place in 0..WAITERS {
            let sent = Instant::now();
            line[place].release(&name)?;
            line[place + 1].read()?;
            took.push(sent.elapsed().as_secs_f64() * 1e6);
            line[place].read()?;
        }
        line[WAITERS].release(&name)?;
        line[WAITERS].read()?;
    }
    Ok(took)
}

/// The same of etcd.
pub(crate) async fn of_etcd(port: u16, rounds: usize) -> Result<Vec<f64>> {
    let etcd = Etcd::connect(port).await?;
    let mut took = Vec::new();
    for round in 0..rounds {
        let name = format!("hand-over-{round}");
        let mut key = etcd.lock(&name).await?;
        let mut line = JoinSet::new();
        for _ in 0..WAITERS {
            // Whoever has the same lease would hold it already.
            let (waiter, name) = (etcd.other().await?, name.clone());
            line.spawn(async move { waiter.lock(&name).await });
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for _ in 0..WAITERS {
            let sent = Instant::now();
            let leaving = {
                let etcd = etcd.clone();
                tokio::spawn(async move { etcd.unlock(&key).await })
            };
            key = line.join_next().await.expect("somebody waits")??;
            took.push(sent.elapsed().as_secs_f64() * 1e6);
            leaving.await??;
        }
        etcd.unlock(&key).await?;
    }
    Ok(took)
}

/// How much later than the end of a dead holder's ttl its successor has the lock, in microseconds; below zero would
/// be too early. So many pairs at once, spread over a second.
pub(crate) fn after_death(address: SocketAddr, pairs: usize) -> Result<Vec<f64>> {
    const TTL: Duration = Duration::from_millis(1_000);
    let pairs = (0..pairs).map(|number| {
        std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(move || -> Result<f64> {
                std::thread::sleep(Duration::from_millis(number as u64 * 7 % 1_000));
                let name = format!("after-death-{number}");
                let mut dead = Waiter::connect(address)?;
                let mut next = Waiter::connect(address)?;
                let sent = Instant::now();
                dead.ask(&name, "1s")?;
                dead.read()?;
                drop(dead);
                next.ask(&name, "1s")?;
                next.read()?;
                let took = sent.elapsed();
                next.release(&name)?;
                next.read()?;
                Ok((took.as_secs_f64() - TTL.as_secs_f64()) * 1e6)
            })
            .map_err(Into::into)
    });
    let pairs: Vec<_> = pairs.collect::<Result<_>>()?;
    pairs
        .into_iter()
        .map(|pair| pair.join().expect("no panic"))
        .collect()
}

struct Waiter {
    stream: TcpStream,
    http: Http,
}

impl Waiter {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self {
            stream,
            http: Http::default(),
        })
    }

    fn ask(&mut self, name: &str, ttl: &str) -> Result<()> {
        let mut out = Vec::new();
        Http::wait_for(name, 20, ttl, &mut out);
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

    /// How many wait for a lock.
    fn waiters(&mut self, name: &str) -> Result<usize> {
        let mut out = Vec::new();
        Http::look(name, &mut out);
        self.stream.write_all(&out)?;
        self.read()?;
        Ok(self.http.waiters)
    }
}
