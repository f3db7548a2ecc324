//! TLS with rustls, and certificates that are reloaded when they change.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::{Error, Result};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::access::Lifetime;
use crate::file_watch::{self, WatchedFiles};

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The PEM files of the service's certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The service's certificate and the intermediate ones.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities whose client certificates are accepted, if any. The [access file](crate::access) says what each
    /// certificate allows.
    pub client_authorities: Option<PathBuf>,
}

/// A client's verified certificate.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    /// The subject's common name and the alternative names.
    pub(crate) names: Vec<String>,
    /// Ends when a certificate of the chain expires. A connection may last longer, and so may a TLS session that a client resumes
    /// without sending its certificate again.
    pub(crate) lifetime: Arc<Lifetime>,
}

/// The TLS configuration, reloaded when its files change. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    inner: Arc<Inner>,
}

struct Inner {
    files: TlsFiles,
    followed: WatchedFiles,
    acceptor: RwLock<TlsAcceptor>,
}

impl Tls {
    /// Loads the files. Fails with [`Error::Denied`] if they cannot be used.
    pub fn open(files: TlsFiles) -> Result<Self> {
        let authorities = files.client_authorities.clone();
        let paths = [files.certificate.clone(), files.key.clone()].into_iter();
        let followed = WatchedFiles::new(paths.chain(authorities).collect());
        let acceptor = RwLock::new(acceptor(&files)?);
        Ok(Self {
            inner: Arc::new(Inner {
                files,
                followed,
                acceptor,
            }),
        })
    }

    /// Reloads the files when they change, while this future is polled. On failure, logs the error and keeps the certificates.
    pub(crate) async fn reload_on_change(self) {
        file_watch::run_periodically(move || self.reload_if_changed()).await;
    }

    fn reload_if_changed(&self) {
        if !self.inner.followed.have_changed() {
            return;
        }
        match acceptor(&self.inner.files) {
            Ok(acceptor) => {
                tracing::info!("certificates reloaded");
                let current = self.inner.acceptor.write();
                *current.unwrap_or_else(PoisonError::into_inner) = acceptor;
            }
            Err(error) => {
                tracing::error!(%error, "cannot reload the certificates: the old ones stay in use");
            }
        }
    }

    /// Performs the TLS handshake. Also returns the client's certificate, if it sent one.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<Arc<ClientCertificate>>)> {
        let acceptor = self.inner.acceptor.read();
        let acceptor = acceptor.unwrap_or_else(PoisonError::into_inner).clone();
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
        let chain = stream.get_ref().1.peer_certificates();
        let certificate = chain.and_then(ClientCertificate::of).map(Arc::new);
        Ok((stream, certificate))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.inner.files).finish()
    }
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let unusable = |error: &dyn fmt::Display| Error::Denied(format!("cannot set up TLS: {error}"));
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let config = match &files.client_authorities {
        None => config.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path)?);
            // A client without a certificate may still have a token.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build();
            config.with_client_cert_verifier(verifier.map_err(|error| unusable(&error))?)
        }
    };
    let key = read_key(&files.key).map_err(|error| {
        let path = files.key.display();
        unusable(&format!("no key in {path}: {error}; give a PEM file"))
    })?;
    let mut config = config
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let reason = match read_certificates(path) {
        Ok(found) if !found.is_empty() => return Ok(found),
        Ok(_) => "the file has none".to_owned(),
        Err(error) => error.to_string(),
    };
    let path = path.display();
    Err(Error::Denied(format!(
        "cannot set up TLS: no certificate in {path}: {reason}; give a PEM file"
    )))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, pem::Error> {
    let bytes = file_watch::read(path).map_err(pem::Error::Io)?;
    PrivateKeyDer::from_pem_slice(&bytes)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let bytes = file_watch::read(path).map_err(pem::Error::Io)?;
    CertificateDer::pem_slice_iter(&bytes).collect()
}

impl ClientCertificate {
    /// Reads the first certificate of a verified chain.
    fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
        let mut until = Timestamp::MAX;
        for certificate in chain {
            let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
            let expires = certificate.validity().not_after.timestamp();
            until = until.min(Timestamp::from_second(expires).unwrap_or(Timestamp::MAX));
        }
        Some(Self {
            names: names(&certificate),
            lifetime: Arc::new(Lifetime::new(Some(until))),
        })
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let common = certificate.subject().iter_common_name();
    let mut names: Vec<_> = common
        .filter_map(|name| Some(name.as_str().ok()?.to_owned()))
        .collect();
    if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
        let texts = alternative
            .value
            .general_names
            .iter()
            .filter_map(|name| match name {
                GeneralName::DNSName(text)
                | GeneralName::URI(text)
                | GeneralName::RFC822Name(text) => Some((*text).to_owned()),
                _ => None,
            });
        names.extend(texts);
    }
    names
}
