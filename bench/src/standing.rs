//! What it costs to have many: names in a store, leases that are merely kept, locks in memory.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold::core::Name;
use leasehold::engine::Engine;
use leasehold::host::{Host as _, Machine};
use leasehold::store::{self, Store, Write, WriteId};

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
    client
        .lease(lock_name(0))
        .acquire()
        .await?
        .release()
        .await?;
    fill(&store, names).await?;
    Ok(client)
}

/// Gives many names the record that the first has: used once, and free.
async fn fill(store: &Arc<dyn Store>, names: usize) -> Result<()> {
    let name = |number| Name::lock(lock_name(number)).expect("a good name");
    let first = store.load(&[name(0)]).await?.value.remove(0);
    let Some(used) = first else {
        return fail("the store has forgotten the first name");
    };
    let batch = store.facts().batch;
    for start in (1..names).step_by(batch) {
        let writes = (start..names.min(start + batch)).map(|number| Write {
            name: name(number),
            expect: None,
            put: Some((WriteId(Machine.random()), used.record.clone())),
            body_changed: true,
        });
        store.swap(writes.collect()).await?;
    }
    Ok(())
}

/// The part of one processor that the service needs while so many leases are renewed three times in each ttl of 30 s,
/// every one by a request of its own.
pub(crate) fn renewing(
    address: SocketAddr,
    process: u32,
    leases: usize,
    measured: Duration,
) -> Result<f64> {
    const CONNECTIONS: usize = 16;
    let each = Duration::from_secs(10) / u32::try_from(leases)?;
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let (mut holders, mut out) = (Vec::new(), Vec::new());
    let ask = |stream: &mut TcpStream, http: &mut Http, out: &mut Vec<u8>| -> Result<()> {
        stream.write_all(out)?;
        out.clear();
        Ok(http.read(stream)?)
    };
    for number in 0..leases {
        let mut http = Http::default();
        http.acquire(&lock_name(number), &mut out);
        ask(&mut streams[number % CONNECTIONS], &mut http, &mut out)?;
        holders.push(http);
    }
    let (begin, used) = (Instant::now(), processor_time(process)?);
    let mut turn = 0;
    while begin.elapsed() < measured {
        let number = turn % leases;
        let due = begin + each * u32::try_from(turn)?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        holders[number].heartbeat(&lock_name(number), &mut out);
        ask(
            &mut streams[number % CONNECTIONS],
            &mut holders[number],
            &mut out,
        )?;
        turn += 1;
    }
    Ok((processor_time(process)? - used) / begin.elapsed().as_secs_f64())
}
