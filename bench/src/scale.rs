//! The costs of scale: many names in a store, and many idle leases.

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
use crate::protocols::http::Http;
use crate::sample::lock_name;
use crate::service::processor_time;
use crate::{Result, fail};

/// Returns a client of a store in which this number of names has been used.
pub(crate) async fn filled_store(url: &str, names: usize) -> Result<Client> {
    let store = store::open(url).await?;
    store.init().await?;
    let client = Client::new(Arc::new(Engine::start(store.clone()).await?));
    let lease = client.lease(lock_name(0)).acquire().await?;
    let held = first_record(&store).await?;
    lease.release().await?;
    let free = first_record(&store).await?;
    fill(&store, names, [held, free]).await?;
    Ok(client)
}

/// Returns the record of the first name.
async fn first_record(store: &Arc<dyn Store>) -> Result<Arc<Record>> {
    match store.load(&[name(0)]).await?.value.remove(0) {
        Some(stored) => Ok(stored.record),
        None => fail("the store has no record of the first name"),
    }
}

fn name(number: usize) -> Name {
    Name::lock(lock_name(number)).expect("the name is valid")
}

/// Writes the held and then the free record of the first name under all other names, because a store that writes in place
/// leaves the space of the longer one. Names that are in use already are not changed.
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

/// Writes a record under each of these names if it still has this version. Returns the written names and their new versions.
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

/// Idle leases: each is renewed three times within its ttl of 30 s, with one request per renewal.
pub(crate) struct HeldLeases {
    streams: Vec<TcpStream>,
    holders: Vec<Http>,
    /// The index of the lease to renew next.
    next: usize,
}

impl HeldLeases {
    /// Acquires this number of leases.
    pub(crate) fn acquire(address: SocketAddr, leases: usize) -> Result<Self> {
        const CONNECTIONS: usize = 16;
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let (mut holders, mut out) = (Vec::new(), Vec::new());
        // On all connections in parallel; otherwise the first leases could expire before the last are acquired.
        for start in (0..leases).step_by(CONNECTIONS) {
            let acquired = holders.len();
            for (number, stream) in (start..leases).zip(&mut streams) {
                let mut http = Http::default();
                http.acquire(&lock_name(number), &mut out);
                stream.write_all(&out)?;
                out.clear();
                holders.push(http);
            }
            for (http, stream) in holders[acquired..].iter_mut().zip(&mut streams) {
                http.read(stream)?;
            }
        }
        Ok(Self {
            streams,
            holders,
            next: 0,
        })
    }

    /// Renews the leases for this time, and returns the fraction of one processor that the service used.
    pub(crate) fn renew(&mut self, process: u32, measured: Duration) -> Result<f64> {
        let interval = Duration::from_secs(10) / u32::try_from(self.holders.len())?;
        let (begin, used) = (Instant::now(), processor_time(process)?);
        let (mut due, mut out) = (begin, Vec::new());
        while begin.elapsed() < measured {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += interval;
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
