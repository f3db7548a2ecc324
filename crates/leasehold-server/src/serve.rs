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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Config;
use crate::service::Service;

/// How long to leave the listener alone when it cannot accept, as when all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves an engine until `shutdown` is ready; then accepts no more, closes the engine, so that everybody who waits
/// gets an answer, and returns once all requests are answered or [`Config::drain_timeout`] is over.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    config: Config,
    shutdown: impl Future<Output = ()>,
) {
    let config = Arc::new(config);
    let connections = GracefulShutdown::new();
    let service = Service {
        engine: engine.clone(),
        config: config.clone(),
    };
    {
        let accepting = pin!(accept(listener, &service, &connections));
        let shutdown = pin!(shutdown);
        tokio::select! {
            () = shutdown => {}
            () = accepting => {}
        }
    }
    tracing::info!(connections = connections.count(), "shutting down");
    let drained = async {
        tokio::join!(connections.shutdown(), engine.close());
        // Grants that nobody took meanwhile are given back.
        engine.close().await;
    };
    if tokio::time::timeout(config.drain_timeout, drained)
        .await
        .is_err()
    {
        tracing::warn!("some requests were not finished in time");
    }
}

async fn accept(listener: TcpListener, service: &Service, connections: &GracefulShutdown) {
    let room = Arc::new(Semaphore::new(service.config.max_connections));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let peer = Text::from(peer.to_string());
                connect(stream, peer, service.clone(), connections, permit);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn connect(
    stream: TcpStream,
    peer: Text,
    service: Service,
    connections: &GracefulShutdown,
    permit: OwnedSemaphorePermit,
) {
    leasehold::host::tune(&stream);
    let config = service.config.clone();
    let answer = service_fn(move |request| {
        let (service, peer) = (service.clone(), peer.clone());
        async move { Ok::<_, Infallible>(service.answer(request, peer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_header_size(config.max_head)
        .serve_connection(TokioIo::new(stream), answer);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
        drop(permit);
    });
}
