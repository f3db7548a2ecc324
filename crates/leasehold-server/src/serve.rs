//! Accepts connections until told to stop, then lets them finish.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::engine::Engine;
use leasehold::wire::{Problem, Trouble};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinSet;

use crate::Config;
use crate::answer::{self, Answer, AnswerBody};
use crate::awake::Awake;
use crate::budget::{AnswerBudget, Reserved, UNCOUNTED_BYTES};
use crate::connections::{Connection, ConnectionLimiter, ConnectionLimits, PROBES};
use crate::events::Hub;
use crate::host::AllowedHosts;
use crate::http1;
use crate::metrics::{Asked, Metrics};
use crate::purge;
use crate::refused::Refused;
use crate::service::{Peer, Service};

/// How long to pause when no connection can be accepted, as when all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a request on a connection of the reserve waits for a slot: a connection that falls idle now can be displaced by then.
const PROMOTION_TIMEOUT: Duration = Duration::from_millis(1_200);
/// How often it tries.
const PROMOTION_PAUSE: Duration = Duration::from_millis(50);

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
    mut config: Config,
    shutdown: impl Future<Output = ()>,
) {
    let limits = ConnectionLimits::new(&config);
    // Who waits has a connection: one token never has more than half of them.
    config.limits.waits = config.limits.waits.min(limits.total.div_ceil(2));
    let answers = AnswerBudget::new(config.max_answer_bytes, limits);
    let limiter = ConnectionLimiter::new(limits, engine.host().clone());
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
            connections: limiter,
            answers,
        },
        open: JoinSet::new(),
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
    notify: Notify,
}

impl Closing {
    fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Ready once it ends, unless it did so before.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

struct Connections {
    service: Service,
    /// One task for each connection; dropped, they end.
    open: JoinSet<()>,
    closing: Arc<Closing>,
}

impl Connections {
    async fn accept(&mut self, listener: TcpListener) {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => self.connect(stream, address),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = self.open.join_next() => self.service.metrics.disconnected.count(),
            }
        }
    }

    fn connect(&mut self, stream: TcpStream, address: SocketAddr) {
        leasehold::host::tune(&stream);
        let service = self.service.clone();
        let connection = service.connections.admit(address.ip());
        let number = connection.number();
        service.metrics.connected.count();
        let peer = Peer {
            address: address.to_string().into(),
            counted_as: connection.address(),
            certificate: None,
        };
        let metrics = service.metrics.clone();
        let tls = service.config.tls.clone();
        let mut client = Client {
            service,
            peer,
            connection,
            closing: self.closing.clone(),
        };
        let task = match tls {
            None => self.open.spawn(async move {
                ended(&metrics, http1::serve(client, stream).await);
            }),
            Some(tls) => self.open.spawn(async move {
                match tls.accept(stream).await {
                    Ok((stream, certificate)) => {
                        client.peer.certificate = certificate;
                        ended(&metrics, http1::serve(client, stream).await);
                    }
                    Err(error) => tracing::debug!(%error, "no TLS with a client"),
                }
            }),
        };
        self.service.connections.set_task(number, task);
    }
}

/// The client of a connection.
pub(crate) struct Client {
    pub(crate) service: Service,
    pub(crate) peer: Peer,
    pub(crate) connection: Connection,
    pub(crate) closing: Arc<Closing>,
}

impl Client {
    /// Whether a request for this path is performed. On a connection of the reserve that takes a slot, unless it is a probe;
    /// without one in time the request is refused, and its connection is to be closed.
    pub(crate) async fn admit(&self, path: &str) -> Result<(), Answer> {
        if !self.connection.is_reserved() || PROBES.contains(&path) {
            return Ok(());
        }
        let arrival = Instant::now();
        while !self.connection.promote() {
            if arrival.elapsed() >= PROMOTION_TIMEOUT {
                self.connection.count_refused();
                return Err(self.refuse(arrival.elapsed()));
            }
            tokio::time::sleep(PROMOTION_PAUSE).await;
        }
        Ok(())
    }

    fn refuse(&self, took: Duration) -> Answer {
        let trouble = Trouble::TooManyRequests;
        let detail =
            "all connections of the service, or all that one address may have, are busy: try again";
        let mut problem = Problem::new(trouble, detail);
        problem.retry_after = Some(1_000);
        let metrics = &self.service.metrics;
        metrics.answered(Asked::Other, Some(trouble), took);
        answer::problem(&Refused::from(problem))
    }

    /// A complete request is here: the connection stays until it is answered.
    pub(crate) async fn begin(&self) {
        self.connection.slot().begin().await;
    }

    /// Counts a large answer that is not in the budget yet. Without room for it the connection ends: there are too many
    /// answers that are not read.
    pub(crate) fn count(&self, body: &AnswerBody, bytes: usize) -> io::Result<Option<Reserved>> {
        if bytes <= UNCOUNTED_BYTES || body.is_reserved() {
            return Ok(None);
        }
        let counted = self.service.answers.count(self.connection.address(), bytes);
        let too_many = || io::Error::other("too many answers are not read");
        counted.map(Some).ok_or_else(too_many)
    }

    /// Whether the client may send another request.
    pub(crate) fn keeps_alive(&self) -> bool {
        !self.connection.is_reserved() && !self.closing.is_set()
    }
}

fn ended(metrics: &Metrics, how: Result<(), http1::Failure>) {
    if let Err(error) = how {
        if http1::is_timeout(&*error) {
            metrics.stalled.count();
        }
        tracing::debug!(%error, "connection ended");
    }
}
