//! Accepts connections until told to stop, then lets them finish.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use leasehold::core::Text;
use leasehold::engine::Engine;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Config;
use crate::events::Hub;
use crate::metrics::Metrics;
use crate::purge;
use crate::service::Service;
use crate::stalled::{self, Unstalled};

/// How long to leave the listener alone when it cannot accept, as when all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves an engine until `shutdown` is ready; then accepts no more, closes the engine, so that everybody who waits
/// gets an answer, and returns once all requests are answered or [`Config::drain_timeout`] is over.
///
/// Meanwhile it deletes what nobody needs any more, as [`Config::purge`] says.
///
/// Dropping the future ends all connections at once.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    config: Config,
    shutdown: impl Future<Output = ()>,
) {
    let drain_timeout = config.drain_timeout;
    let mut background = JoinSet::new();
    if let Some(retention) = config.purge {
        background.spawn(purge::keep_purging(engine.clone(), retention, purge::SOON));
    }
    let events = Hub::new(engine.clone());
    let mut connections = Connections {
        service: Service {
            engine: engine.clone(),
            config: Arc::new(config),
            events: events.clone(),
            metrics: Arc::new(Metrics::new()),
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

    fn connect(&mut self, stream: TcpStream, peer: Text) {
        leasehold::host::tune(&stream);
        let service = self.service.clone();
        let (config, metrics) = (service.config.clone(), service.metrics.clone());
        let answer = service_fn(move |request| {
            let (service, peer) = (service.clone(), peer.clone());
            async move { Ok::<_, Infallible>(service.answer(request, peer).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(config.head_timeout)
            .max_header_size(config.max_head)
            .serve_connection(
                TokioIo::new(Unstalled::new(stream, config.write_timeout)),
                answer,
            );
        let connection = self.graceful.watch(connection);
        metrics.connected.count();
        self.open.spawn(async move {
            if let Err(error) = connection.await {
                if stalled::is_why(&error) {
                    metrics.stalled.count();
                }
                tracing::debug!(%error, "connection ended");
            }
            metrics.disconnected.count();
        });
    }
}
