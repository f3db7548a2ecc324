//! What it costs to have many: names in a store, leases that are merely kept, locks in memory.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold::core::{Name, Record};
use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Store, Swapped, Version, Write, WriteId};

use crate::load::Protocol as _;
use crate::sample::lock_name;
use crate::service::processor_time;
use crate::speak::http::Http;
use crate::{Result, fail};

/// A client of a store in which so many names have been used.
pub(crate) async fn client_among(url: &str, names: usize) -> Result<Client> {
    let store = store::open(url).await?;
    store.init().await?;
    let client = Client::new(Arc::new(Engine::start(store.clone()).await?));
    let lease = client.lease(lock_name(0)).acquire().await?;
    let held = first(&store).await?;
    lease.release().await?;
    let free = first(&store).await?;
    fill(&store, names, [held, free]).await?;
    Ok(client)
}

/// The record of the first name.
async fn first(store: &Arc<dyn Store>) -> Result<Arc<Record>> {
    match store.load(&[name(0)]).await?.value.remove(0) {
        Some(stored) => Ok(stored.record),
        None => fail("the store has forgotten the first name"),
    }
}

fn name(number: usize) -> Name {
    Name::lock(lock_name(number)).expect("a good name")
}

/// Gives many names the records that the first has had, one after another as that had them: a store that writes in place
/// leaves room where there was a longer one. Names that are in use already stay as they are.
async fn fill(store: &Arc<dyn Store>, names: usize, records: [Arc<Record>; 2]) -> Result<()> {
    let batch = store.facts().batch;
    for start in (1..names).step_by(batch) {
        let mut versions: Vec<_> = (start..names.min(start + batch))
            .map(|number| (name(number), None))
            .collect();
        for record in &records {
            versions = put(store, versions, record).await?;
        }
    }
    Ok(())
}

/// Puts a record under each of these names that still has this version; which, and their versions then.
async fn put(
    store: &Arc<dyn Store>,
    versions: Vec<(Name, Option<Version>)>,
    record: &Arc<Record>,
) -> Result<Vec<(Name, Option<Version>)>> {
    let writes: Vec<_> = versions
        .into_iter()
        .map(|(name, expect)| Write {
            name,
            expect,
            put: Some((WriteId(Machine.random()), record.clone())),
            body_changed: true,
        })
        .collect();
    let swapped = store.swap(writes.clone()).await?.value;
    let written = writes.into_iter().zip(swapped);
    let written = written.filter_map(|(write, swapped)| match (write.put, swapped) {
        (Some((write_id, _)), Swapped::Written { tag }) => {
            let version = Version {
                write: write_id,
                tag,
            };
            Some((write.name, Some(version)))
        }
        _ => None,
    });
    Ok(written.collect())
}

/// Leases that are merely kept: each is renewed three times in its ttl of 30 s, by a request of its own.
pub(crate) struct Kept {
    streams: Vec<TcpStream>,
    holders: Vec<Http>,
    /// Which is renewed next.
    next: usize,
}

impl Kept {
    /// Takes so many.
    pub(crate) fn take(address: SocketAddr, leases: usize) -> Result<Self> {
        const CONNECTIONS: usize = 16;
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let (mut holders, mut out) = (Vec::new(), Vec::new());
        // On all connections at a time, or the first might be over before the last is taken.
        for start in (0..leases).step_by(CONNECTIONS) {
            let taken = holders.len();
            for (number, stream) in (start..leases).zip(&mut streams) {
                let mut http = Http::default();
                http.acquire(&lock_name(number), &mut out);
                stream.write_all(&out)?;
                out.clear();
                holders.push(http);
            }
            for (http, stream) in holders[taken..].iter_mut().zip(&mut streams) {
                http.read(stream)?;
            }
        }
        Ok(Self {
            streams,
            holders,
            next: 0,
        })
    }

    /// Renews them for so long: the part of one processor that the service needs for it.
    pub(crate) fn renew(&mut self, process: u32, measured: Duration) -> Result<f64> {
        let each = Duration::from_secs(10) / u32::try_from(self.holders.len())?;
        let (begin, used) = (Instant::now(), processor_time(process)?);
        let (mut due, mut out) = (begin, Vec::new());
        while begin.elapsed() < measured {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += each;
            let stream = self.next % self.streams.len();
            let (stream, http) = (&mut self.streams[stream], &mut self.holders[self.next]);
            http.heartbeat(&lock_name(self.next), &mut out);
            stream.write_all(&out)?;
            out.clear();
            http.read(stream)?;
            self.next = (self.next + 1) % self.holders.len();
        }
        Ok((processor_time(process)? - used) / begin.elapsed().as_secs_f64())
    }
}
