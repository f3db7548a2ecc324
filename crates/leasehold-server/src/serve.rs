//! Accepts connections until told to stop, then lets them finish.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::core::{BootTime, Text};
use leasehold::engine::Engine;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinSet;

use crate::Config;
use crate::awake::Awake;
use crate::converse;
use crate::events::Hub;
use crate::host::AllowedHosts;
use crate::metrics::Metrics;
use crate::purge;
use crate::seats::{Seat, Seats};
use crate::service::{Peer, Service};
use crate::stalled;

/// How long to leave the listener alone when it cannot accept, as when all file descriptors are in use or everybody is busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves an engine until `shutdown` is ready; then accepts no more, closes the engine, so that everybody who waits
/// gets an answer, and returns once all requests are answered or [`Config::drain_timeout`] is over.
///
/// Meanwhile it deletes what nobody needs any more, as [`Config::purge`] says, and follows the files of
/// [`Config::access`] and [`Config::tls`].
///
/// Dropping the future ends all connections at once.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    config: Config,
    shutdown: impl Future<Output = ()>,
) {
    let (drain_timeout, traces) = (config.drain_timeout, config.traces.clone());
    let mut background = JoinSet::new();
    if let Some(retention) = config.purge {
        background.spawn(purge::keep_purging(engine.clone(), retention, purge::SOON));
    }
    let metrics = Arc::new(Metrics::new());
    let events = Hub::new(engine.clone());
    let counting = (events.clone(), metrics.clone());
    background.spawn(async move { counting.0.history.keep_counting(&counting.1).await });
    let awake: Arc<Awake> = Arc::default();
    let committing = engine.clone();
    background.spawn(awake.clone().keep(move || committing.calls_apart()));
    if let Some(access) = &config.access {
        background.spawn(access.clone().keep_reading());
    }
    if let Some(audit) = &config.audit {
        background.spawn(audit.clone().keep_open());
    }
    if let Some(tls) = &config.tls {
        background.spawn(tls.clone().keep_reading());
    }
    let closing: Arc<Closing> = Arc::default();
    let hosts = AllowedHosts::new(&config, listener.local_addr().ok());
    let mut connections = Connections {
        service: Service {
            engine: engine.clone(),
            config: Arc::new(config),
            hosts: Arc::new(hosts),
            events: events.clone(),
            metrics,
            awake,
            readiness: Arc::default(),
        },
        open: JoinSet::new(),
        seats: Seats::default(),
        closing: closing.clone(),
    };
    background.spawn(connections.service.clone().keep_checking());
    {
        let accepting = pin!(connections.accept(listener));
        tokio::select! {
            () = shutdown => {}
            () = accepting => {}
        }
    }
    background.abort_all();
    events.close();
    closing.set();
    let Connections { mut open, .. } = connections;
    tracing::info!(connections = open.len(), "shutting down");
    let drained = async {
        let answered = async { while open.join_next().await.is_some() {} };
        tokio::join!(answered, engine.close());
        // Grants that nobody took meanwhile are given back.
        engine.close().await;
    };
    if tokio::time::timeout(drain_timeout, drained).await.is_err() {
        tracing::warn!("some requests were not finished in time");
    }
    if let Some(traces) = traces {
        traces.close().await;
    }
}

/// Whether the service ends.
#[derive(Default)]
pub(crate) struct Closing {
    set: AtomicBool,
    told: Notify,
}

impl Closing {
    fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// What is ready once it ends, unless it did so before.
    pub(crate) fn told(&self) -> Notified<'_> {
        self.told.notified()
    }
}

struct Connections {
    service: Service,
    /// One task for each connection; dropped, they end.
    open: JoinSet<()>,
    seats: Seats,
    closing: Arc<Closing>,
}

impl Connections {
    async fn accept(&mut self, listener: TcpListener) {
        let most = self.service.config.max_connections.max(1);
        loop {
            let full = self.open.len() >= most;
            let stuck = full && !self.make_room();
            tokio::select! {
                accepted = listener.accept(), if !full => match accepted {
                    Ok((stream, peer)) => self.connect(stream, peer.to_string().into()),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(ended) = self.open.join_next_with_id() => {
                    let task = ended.map_or_else(|error| error.id(), |(task, ())| task);
                    self.seats.remove(task);
                    self.service.metrics.disconnected.count();
                }
                () = tokio::time::sleep(ACCEPT_PAUSE), if stuck => {}
            }
        }
    }

    /// Closes a few connections that nobody uses; whether there were any.
    fn make_room(&self) -> bool {
        let Service {
            engine, metrics, ..
        } = &self.service;
        let closed = self.seats.make_room(engine.host().boot_time());
        (0..closed).for_each(|_| metrics.displaced.count());
        closed > 0
    }

    fn connect(&mut self, stream: TcpStream, address: Text) {
        leasehold::host::tune(&stream);
        let service = self.service.clone();
        let peer = Peer {
            address,
            certificate: None,
        };
        let seat = Seat::new(service.engine.host().boot_time());
        let metrics = service.metrics.clone();
        metrics.connected.count();
        let mut client = Client {
            service,
            peer,
            seat: seat.clone(),
            closing: self.closing.clone(),
        };
        let task = match &self.service.config.tls {
            None => self.open.spawn(async move {
                ended(&metrics, converse::serve(client, stream).await);
            }),
            Some(tls) => {
                let tls = tls.clone();
                self.open.spawn(async move {
                    match tls.accept(stream).await {
                        Ok((stream, certificate)) => {
                            client.peer.certificate = certificate;
                            ended(&metrics, converse::serve(client, stream).await);
                        }
                        Err(error) => tracing::debug!(%error, "no TLS with a client"),
                    }
                })
            }
        };
        self.seats.add(seat, task);
    }
}

/// Who is served on a connection.
pub(crate) struct Client {
    pub(crate) service: Service,
    pub(crate) peer: Peer,
    seat: Arc<Seat>,
    pub(crate) closing: Arc<Closing>,
}

impl Client {
    /// A request is here, and the connection stays until it is answered.
    pub(crate) async fn begin(&self) {
        if !self.seat.begin() {
            // The connection is being closed: nothing of this request happens.
            std::future::pending::<()>().await;
        }
    }

    /// It is answered.
    pub(crate) fn end(&self, now: BootTime) {
        self.seat.end(now);
    }
}

fn ended(metrics: &Metrics, how: Result<(), converse::Failure>) {
    if let Err(error) = how {
        if stalled::is_why(&*error) {
            metrics.stalled.count();
        }
        tracing::debug!(%error, "connection ended");
    }
}
