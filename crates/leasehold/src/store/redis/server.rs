//! Connections to a Redis, with TLS as every other store has it.

use std::io;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisResult};
use tokio_rustls::TlsConnector;

use crate::tls::{self, Files, Stream};
use crate::{Error, Result};

/// Below the engine's own timeout, so that the store's own error is reported.
const ANSWER: Duration = Duration::from_secs(4);
const CONNECT: Duration = Duration::from_secs(2);

/// Where a Redis is, and how to connect to it.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    tls: Option<TlsConnector>,
}

impl Server {
    pub(super) fn new(server: ConnectionInfo, files: Option<&Files>) -> Result<Self> {
        let client = Client::open(server).map_err(|_| {
            Error::invalid("the store URL names no Redis server that can be connected to")
        })?;
        let tls = files.map(tls::connector).transpose()?;
        Ok(Self { client, tls })
    }

    pub(super) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// A connection that many calls share.
    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER));
        let Some(tls) = &self.tls else {
            let connect = self
                .client
                .get_multiplexed_async_connection_with_config(&config);
            return connect.await;
        };
        in_time(async {
            let settings = self.client.get_connection_info().redis_settings();
            let stream = self.encrypted(tls).await?;
            let connect = MultiplexedConnection::new_with_config(settings, stream, config);
            let (connection, driver) = connect.await?;
            tokio::spawn(driver);
            Ok(connection)
        })
        .await
    }

    /// A connection that receives published messages.
    pub(super) async fn subscriber(&self) -> RedisResult<PubSub> {
        let Some(tls) = &self.tls else {
            return self.client.get_async_pubsub().await;
        };
        in_time(async {
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

async fn in_time<T>(connecting: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    tokio::time::timeout(CONNECT, connecting)
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}
