//! Accepts connections until shutdown, then drains them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::engine::Engine;
use leasehold::wire::{Problem, ProblemType};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinSet;

use crate::Config;
use crate::answer::{self, Answer, AnswerBody};
use crate::budget::{AnswerBudget, BudgetPermit, MAX_UNRESERVED_BYTES};
use crate::busy_poll::BusyPoll;
use crate::connections::{Connection, ConnectionLimiter, ConnectionLimits, PROBES};
use crate::events::Hub;
use crate::host::AllowedHosts;
use crate::http1;
use crate::metrics::{Metrics, RequestKind};
use crate::purge;
use crate::rejection::Rejection;
use crate::service::{Peer, Service};

/// The delay after a failed accept, such as when all file descriptors are in use.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// How long a request on a reserve connection waits for a slot. By then, a connection that becomes idle now can be displaced.
const PROMOTION_TIMEOUT: Duration = Duration::from_millis(1_200);
/// How often it tries to get a slot.
const PROMOTION_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves an engine until `shutdown` is ready. Then stops accepting connections and closes the engine, so that all waiters get
/// an answer. Returns when all requests are answered, or after [`Config::drain_timeout`].
///
/// While it runs, it purges unused records as [`Config::purge`] says, and reloads the files of [`Config::access`] and
/// [`Config::tls`] when they change.
///
/// Dropping the future closes all connections at once.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    mut config: Config,
    shutdown: impl Future<Output = ()>,
) {
    let limits = ConnectionLimits::new(&config);
    // Each waiter occupies a connection, so the waiters of one token may have at most half of them.
    config.limits.waits = config.limits.waits.min(limits.total.div_ceil(2));
    let answers = AnswerBudget::new(config.max_answer_bytes, limits);
    let limiter = ConnectionLimiter::new(limits, engine.host().clone());
    let (drain_timeout, traces) = (config.drain_timeout, config.traces.clone());
    let mut background = JoinSet::new();
    if let Some(retention) = config.purge {
        background.spawn(purge::keep_purging(
            engine.clone(),
            retention,
            purge::RETRY_DELAY,
        ));
    }
    let metrics = Arc::new(Metrics::new());
    let events = Hub::new(engine.clone());
    let (hub, counters) = (events.clone(), metrics.clone());
    background.spawn(async move { hub.history.count_minutes(&counters).await });
    let busy_poll: Arc<BusyPoll> = Arc::default();
    let committing = engine.clone();
    background.spawn(
        busy_poll
            .clone()
            .run(move || committing.is_store_thread_busy()),
    );
    if let Some(access) = &config.access {
        background.spawn(access.clone().keep_reading());
    }
    if let Some(audit) = &config.audit {
        background.spawn(audit.clone().keep_open());
    }
    if let Some(tls) = &config.tls {
        background.spawn(tls.clone().reload_on_change());
    }
    let closing: Arc<ShutdownSignal> = Arc::default();
    let hosts = AllowedHosts::new(&config, listener.local_addr().ok());
    let mut connections = Connections {
        service: Service {
            engine: engine.clone(),
            config: Arc::new(config),
            hosts: Arc::new(hosts),
            events: events.clone(),
            metrics,
            busy_poll,
            readiness: Arc::default(),
            connections: limiter,
            answers,
        },
        open: JoinSet::new(),
        closing: closing.clone(),
    };
    background.spawn(connections.service.clone().keep_checking_store());
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
        // Releases the grants that were not delivered meanwhile.
        engine.close().await;
    };
    if tokio::time::timeout(drain_timeout, drained).await.is_err() {
        tracing::warn!("drain timeout: some requests were not finished");
    }
    if let Some(traces) = traces {
        traces.close().await;
    }
}

/// Signals that the service shuts down.
#[derive(Default)]
pub(crate) struct ShutdownSignal {
    set: AtomicBool,
    notify: Notify,
}

impl ShutdownSignal {
    fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Returns a future that is ready when the signal is set, unless it already is: check [`is_set`](Self::is_set) too.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

struct Connections {
    service: Service,
    /// One task for each connection, ended on drop.
    open: JoinSet<()>,
    closing: Arc<ShutdownSignal>,
}

impl Connections {
    async fn accept(&mut self, listener: TcpListener) {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => self.connect(stream, address),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
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
            client_address: connection.address(),
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
                log_end(&metrics, http1::serve(client, stream).await);
            }),
            Some(tls) => self.open.spawn(async move {
                match tls.accept(stream).await {
                    Ok((stream, certificate)) => {
                        client.peer.certificate = certificate;
                        log_end(&metrics, http1::serve(client, stream).await);
                    }
                    Err(error) => tracing::debug!(%error, "TLS handshake failed"),
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
    pub(crate) closing: Arc<ShutdownSignal>,
}

impl Client {
    /// Admits a request for this path. On a reserve connection, a request other than a probe requires a slot. If it gets none
    /// in time, it is refused and its connection must be closed.
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
            tokio::time::sleep(PROMOTION_RETRY_DELAY).await;
        }
        Ok(())
    }

    fn refuse(&self, elapsed: Duration) -> Answer {
        let problem_type = ProblemType::TooManyRequests;
        let detail = "all connections of the service, or all that one address may have, are busy: retry later";
        let mut problem = Problem::new(problem_type, detail);
        problem.retry_after = Some(1_000);
        let metrics = &self.service.metrics;
        metrics.answered(RequestKind::Other, Some(problem_type), elapsed);
        answer::problem(&Rejection::from(problem))
    }

    /// Marks the connection as busy with a complete request, so that it is not closed before the answer.
    pub(crate) async fn begin(&self) {
        self.connection.slot().begin().await;
    }

    /// Reserves budget for a large answer that has none yet. Fails if there are too many unread answers; the connection is then
    /// closed.
    pub(crate) fn count(
        &self,
        body: &AnswerBody,
        bytes: usize,
    ) -> io::Result<Option<BudgetPermit>> {
        if bytes <= MAX_UNRESERVED_BYTES || body.has_permit() {
            return Ok(None);
        }
        let answers = &self.service.answers;
        let permit = answers.try_reserve(self.connection.address(), bytes);
        let too_many = || io::Error::other("too many unread answers");
        permit.map(Some).ok_or_else(too_many)
    }

    /// Returns whether the client may send another request.
    pub(crate) fn keeps_alive(&self) -> bool {
        !self.connection.is_reserved() && !self.closing.is_set()
    }
}

fn log_end(metrics: &Metrics, result: Result<(), http1::Failure>) {
    if let Err(error) = result {
        if http1::is_timeout(&*error) {
            metrics.stalled.count();
        }
        tracing::debug!(%error, "connection ended");
    }
}
