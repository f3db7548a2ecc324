//! Accepts connections until told to stop, then lets them finish.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use leasehold::core::Text;
use leasehold::engine::Engine;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Config;
use crate::events::Hub;
use crate::metrics::Metrics;
use crate::purge;
use crate::service::{Peer, Service};
use crate::stalled::{self, Unstalled};

/// How long to leave the listener alone when it cannot accept, as when all file descriptors are in use.
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
    if let Some(access) = &config.access {
        background.spawn(access.clone().keep_reading());
    }
    if let Some(audit) = &config.audit {
        background.spawn(audit.clone().keep_open());
    }
    if let Some(tls) = &config.tls {
        background.spawn(tls.clone().keep_reading());
    }
    let mut connections = Connections {
        service: Service {
            engine: engine.clone(),
            config: Arc::new(config),
            events: events.clone(),
            metrics,
        },
        open: JoinSet::new(),
        graceful: GracefulShutdown::new(),
    };
    {
        let accepting = pin!(connections.accept(listener));
        tokio::select! {
            () = shutdown => {}
            () = accepting => {}
        }
    }
    background.abort_all();
    events.close();
    let Connections { open, graceful, .. } = connections;
    tracing::info!(connections = open.len(), "shutting down");
    let drained = async {
        tokio::join!(graceful.shutdown(), engine.close());
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

struct Connections {
    service: Service,
    /// One task for each connection; dropped, they end.
    open: JoinSet<()>,
    graceful: GracefulShutdown,
}

impl Connections {
    async fn accept(&mut self, listener: TcpListener) {
        let most = self.service.config.max_connections.max(1);
        loop {
            tokio::select! {
                accepted = listener.accept(), if self.open.len() < most => match accepted {
                    Ok((stream, peer)) => self.connect(stream, peer.to_string().into()),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = self.open.join_next() => {}
            }
        }
    }

    fn connect(&mut self, stream: TcpStream, address: Text) {
        leasehold::host::tune(&stream);
        let service = self.service.clone();
        let mut peer = Peer {
            address,
            certificate: None,
        };
        let metrics = service.metrics.clone();
        metrics.connected.count();
        let Some(tls) = &self.service.config.tls else {
            let connection = self.graceful.watch(connection(service, stream, peer));
            self.open
                .spawn(async move { ended(&metrics, connection.await) });
            return;
        };
        let (tls, watcher) = (tls.clone(), self.graceful.watcher());
        self.open.spawn(async move {
            let how = match tls.accept(stream).await {
                Ok((stream, certificate)) => {
                    peer.certificate = certificate;
                    watcher.watch(connection(service, stream, peer)).await
                }
                Err(error) => {
                    tracing::debug!(%error, "no TLS with a client");
                    Ok(())
                }
            };
            ended(&metrics, how);
        });
    }
}

/// A connection that is served.
fn connection<S>(
    service: Service,
    stream: S,
    peer: Peer,
) -> impl GracefulConnection<Error = hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = service.config.clone();
    let answer = service_fn(move |request| {
        let (service, peer) = (service.clone(), peer.clone());
        async move { Ok::<_, Infallible>(service.answer(request, peer).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_header_size(config.max_head)
        .serve_connection(
            TokioIo::new(Unstalled::new(stream, config.write_timeout)),
            answer,
        )
}

fn ended(metrics: &Metrics, how: Result<(), hyper::Error>) {
    if let Err(error) = how {
        if stalled::is_why(&error) {
            metrics.stalled.count();
        }
        tracing::debug!(%error, "connection ended");
    }
    metrics.disconnected.count();
}
