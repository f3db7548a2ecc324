//! Sends batches of spans to the collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::http::Uri;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;

/// How long sending a batch may take, including its answer.
const BATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// An HTTP client with one connection per batch, because there is only one batch every few seconds.
#[derive(Debug)]
pub(super) struct Sender {
    runtime: Handle,
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<Arc<ClientConfig>>,
    /// Whether the last batch failed: only changes are logged.
    is_failing: AtomicBool,
}

impl Sender {
    /// Returns a sender to the collector at `uri`, or the reason why the URL is invalid.
    pub(super) fn new(uri: &Uri) -> Result<Self, HttpError> {
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err("give `http://HOST:PORT` or `https://HOST:PORT`".into()),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it contains credentials: set OTEL_EXPORTER_OTLP_HEADERS instead".into());
        }
        if uri.query().is_some() {
            return Err("it has parameters: remove them".into());
        }
        let default_port = if is_tls { 443 } else { 80 };
        Ok(Self {
            runtime: Handle::try_current()?,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(default_port),
            authority: HeaderValue::from_str(authority.as_str())?,
            tls: is_tls.then(tls).transpose()?,
            is_failing: AtomicBool::new(false),
        })
    }

    /// Logs when sending begins to fail, and when it succeeds again.
    fn log_change(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let failure = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(answer.status().to_string()),
            Err(error) => Some(error.to_string()),
        };
        let is_failing = failure.is_some();
        if self.is_failing.swap(is_failing, Ordering::Relaxed) == is_failing {
            return;
        }
        let collector = &self.authority;
        match failure {
            Some(error) => tracing::warn!(?collector, error, "cannot send traces"),
            None => tracing::info!(?collector, "traces can be sent again"),
        }
    }
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let target = request.uri().path_and_query().cloned();
        *request.uri_mut() = target.unwrap_or(PathAndQuery::from_static("/")).into();
        let headers = request.headers_mut();
        headers.insert(HOST, self.authority.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let (host, port, tls) = (self.host.clone(), self.port, self.tls.clone());
        // The SDK calls this on a thread of its own, without a runtime.
        let sending = self.runtime.spawn(async move {
            let exchange = exchange(host, port, tls, request);
            tokio::time::timeout(BATCH_TIMEOUT, exchange).await?
        });
        let answer = sending.await.unwrap_or_else(|error| Err(error.into()));
        self.log_change(&answer);
        answer
    }
}

async fn exchange(
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    let Some(tls) = tls else {
        return send(stream, request).await;
    };
    let name = ServerName::try_from(host)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    send(stream, request).await
}

async fn send<S>(stream: S, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let (head, body) = sender
            .send_request(request.map(Full::new))
            .await?
            .into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES)
            .collect()
            .await?
            .to_bytes();
        Ok(Response::from_parts(head, body))
    };
    // The connection ends after the answer, or with the same error as the answer.
    tokio::join!(answer, connection).0
}

/// Returns a TLS configuration that trusts the system's certificate authorities.
fn tls() -> Result<Arc<ClientConfig>, HttpError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::ServerConfig;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Sends a batch to a collector with a self-signed certificate, which `trust` may add to the trusted ones.
    async fn send_to_collector(
        trust: impl FnOnce(&mut RootCertStore, &CertifiedKey<rcgen::KeyPair>),
    ) -> Result<Response<Bytes>, HttpError> {
        let own = generate_simple_self_signed(["localhost".into()]).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let key = own.signing_key.serialize_der().try_into().unwrap();
        let config = config.with_single_cert(vec![own.cert.der().clone()], key);
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut roots = RootCertStore::empty();
        trust(&mut roots, &own);
        let mut sender =
            Sender::new(&format!("https://localhost:{port}").parse().unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        sender.tls = Some(Arc::new(config));
        sender.send_bytes(Request::new(Bytes::new())).await
    }

    #[tokio::test]
    async fn collector_certificate_must_be_trusted() {
        let answer =
            send_to_collector(|roots, own| roots.add(own.cert.der().clone()).unwrap()).await;
        assert_eq!(answer.unwrap().status(), StatusCode::ACCEPTED);
        let error = send_to_collector(|_, _| ()).await.unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
}
