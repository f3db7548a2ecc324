//! Opens connections to a Redis server, with the TLS settings that all stores share.

use std::io;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisResult};
use tokio_rustls::TlsConnector;

use crate::tls::{self, Stream, TlsFiles};
use crate::{Error, Result};

/// Less than the engine's own timeout, so that the store's error is reported.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The address of a server, and how to connect to it.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    tls: Option<TlsConnector>,
}

impl Server {
    pub(super) fn new(server: ConnectionInfo, files: Option<&TlsFiles>) -> Result<Self> {
        let client = Client::open(server)
            .map_err(|_| Error::invalid("the store URL does not name a Redis server"))?;
        let tls = files.map(tls::connector).transpose()?;
        Ok(Self { client, tls })
    }

    pub(super) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// Opens a connection for many concurrent calls.
    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let Some(tls) = &self.tls else {
            let connect = self
                .client
                .get_multiplexed_async_connection_with_config(&config);
            return connect.await;
        };
        with_timeout(async {
            let settings = self.client.get_connection_info().redis_settings();
            let stream = self.encrypted(tls).await?;
            let connect = MultiplexedConnection::new_with_config(settings, stream, config);
            let (connection, driver) = connect.await?;
            tokio::spawn(driver);
            Ok(connection)
        })
        .await
    }

    /// Opens a connection that receives published messages.
    pub(super) async fn subscriber(&self) -> RedisResult<PubSub> {
        let Some(tls) = &self.tls else {
            return self.client.get_async_pubsub().await;
        };
        with_timeout(async {
            let settings = self.client.get_connection_info().redis_settings();
            PubSub::new(settings, self.encrypted(tls).await?).await
        })
        .await
    }

    async fn encrypted(&self, tls: &TlsConnector) -> io::Result<Box<dyn Stream>> {
        match self.address() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                tls::connect(Some(tls), host, *port).await
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

async fn with_timeout<T>(connecting: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    tokio::time::timeout(CONNECT_TIMEOUT, connecting)
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}
