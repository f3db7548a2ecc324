//! Brings batches of spans to the collector.

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

/// How long a batch may take to be taken in.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer that is read: a collector says little.
const ANSWER_BYTES: usize = 64 * 1024;

/// Sends, over a connection for each batch: there is one every few seconds.
#[derive(Debug)]
pub(super) struct Sender {
    runtime: Handle,
    /// Where the collector is.
    host: String,
    port: u16,
    authority: HeaderValue,
    tls: Option<Arc<ClientConfig>>,
    /// Whether the last batch was not taken in: only changes are logged.
    failing: AtomicBool,
}

impl Sender {
    /// To this collector; or what is wrong with its URL.
    pub(super) fn new(uri: &Uri) -> Result<Self, HttpError> {
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err("give `http://HOST:PORT` or `https://HOST:PORT`".into()),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("what lets us in belongs into OTEL_EXPORTER_OTLP_HEADERS".into());
        }
        if uri.query().is_some() {
            return Err("it has parameters".into());
        }
        let default = if secure { 443 } else { 80 };
        Ok(Self {
            runtime: Handle::try_current()?,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(default),
            authority: HeaderValue::from_str(authority.as_str())?,
            tls: secure.then(tls).transpose()?,
            failing: AtomicBool::new(false),
        })
    }

    fn note(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let failure = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(answer.status().to_string()),
            Err(error) => Some(error.to_string()),
        };
        let failing = failure.is_some();
        if self.failing.swap(failing, Ordering::Relaxed) == failing {
            return;
        }
        let collector = &self.authority;
        match failure {
            Some(error) => tracing::warn!(?collector, error, "traces cannot be sent"),
            None => tracing::info!(?collector, "traces are sent again"),
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
        // The thread that asks is the SDK's own, and has no runtime.
        let sending = self.runtime.spawn(async move {
            let exchanging = exchange(host, port, tls, request);
            tokio::time::timeout(PATIENCE, exchanging).await?
        });
        let answer = sending.await.unwrap_or_else(|error| Err(error.into()));
        self.note(&answer);
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
        return talk(stream, request).await;
    };
    let name = ServerName::try_from(host)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    talk(stream, request).await
}

async fn talk<S>(stream: S, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let (head, body) = sender
            .send_request(request.map(Full::new))
            .await?
            .into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    // The connection ends after the answer, or with an error that the answer has too.
    tokio::join!(answer, connection).0
}

/// TLS with a collector that the system's authorities vouch for.
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

    /// Sends to a collector with a certificate of this name; whether it is trusted is up to the roots.
    async fn sent(
        roots: impl FnOnce(&mut RootCertStore, &CertifiedKey<rcgen::KeyPair>),
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
        let mut trusted = RootCertStore::empty();
        roots(&mut trusted, &own);
        let mut sender =
            Sender::new(&format!("https://localhost:{port}").parse().unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted)
            .with_no_client_auth();
        sender.tls = Some(Arc::new(config));
        sender.send_bytes(Request::new(Bytes::new())).await
    }

    #[tokio::test]
    async fn a_collector_must_be_vouched_for() {
        let trusting = sent(|roots, own| roots.add(own.cert.der().clone()).unwrap()).await;
        assert_eq!(trusting.unwrap().status(), StatusCode::ACCEPTED);
        let error = sent(|_, _| ()).await.unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
}
