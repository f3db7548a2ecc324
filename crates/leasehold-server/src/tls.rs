//! TLS, by rustls, with certificates that are read again when they change.

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
use crate::follow::{self, Followed};

/// How long a client may take to agree on a connection.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Where the service's certificates are, all of them PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The authorities whose certificates clients may show, if they may. What such a certificate allows is said by the
    /// [access file](crate::access).
    pub client_authorities: Option<PathBuf>,
}

/// What a client has shown.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    /// What it calls its owner: the subject's common name, and the alternative names.
    pub(crate) names: Vec<String>,
    /// Until it or one that it rests on expires. A connection may last longer, and so may a session of TLS that a client
    /// resumes without showing its certificate again.
    pub(crate) lifetime: Arc<Lifetime>,
}

/// TLS as these files say, and as they say again whenever they change. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    inner: Arc<Inner>,
}

struct Inner {
    files: TlsFiles,
    followed: Followed,
    acceptor: RwLock<TlsAcceptor>,
}

impl Tls {
    /// As these files say. Files that cannot be used are [`Error::Denied`].
    pub fn open(files: TlsFiles) -> Result<Self> {
        let authorities = files.client_authorities.clone();
        let paths = [files.certificate.clone(), files.key.clone()].into_iter();
        let followed = Followed::new(paths.chain(authorities).collect());
        let acceptor = RwLock::new(acceptor(&files)?);
        Ok(Self {
            inner: Arc::new(Inner {
                files,
                followed,
                acceptor,
            }),
        })
    }

    /// Follows the files for as long as it is polled. What is wrong with them is logged, and the certificates stay.
    pub(crate) async fn keep_reading(self) {
        follow::keep_looking(move || self.look_again()).await;
    }

    fn look_again(&self) {
        if !self.inner.followed.have_changed() {
            return;
        }
        match acceptor(&self.inner.files) {
            Ok(acceptor) => {
                tracing::info!("the certificates have changed");
                let current = self.inner.acceptor.write();
                *current.unwrap_or_else(PoisonError::into_inner) = acceptor;
            }
            Err(error) => tracing::error!(%error, "the certificates stay as they were"),
        }
    }

    /// Agrees with a client on a connection; also the certificate that it has shown.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<Arc<ClientCertificate>>)> {
        let acceptor = self.inner.acceptor.read();
        let acceptor = acceptor.unwrap_or_else(PoisonError::into_inner).clone();
        let stream = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await??;
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = shown.and_then(ClientCertificate::of).map(Arc::new);
        Ok((stream, certificate))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.inner.files).finish()
    }
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let wrong = |error: &dyn fmt::Display| Error::Denied(format!("TLS cannot be used: {error}"));
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?;
    let config = match &files.client_authorities {
        None => config.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path)?);
            // Who shows none may still have a token.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build();
            config.with_client_cert_verifier(verifier.map_err(|error| wrong(&error))?)
        }
    };
    let key = read_key(&files.key)
        .map_err(|error| wrong(&format!("no key in {}: {error}", files.key.display())))?;
    let mut config = config
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|error| wrong(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let why = match read_certificates(path) {
        Ok(found) if !found.is_empty() => return Ok(found),
        Ok(_) => "there is none".to_owned(),
        Err(error) => error.to_string(),
    };
    let path = path.display();
    Err(Error::Denied(format!(
        "TLS cannot be used: no certificate in {path}: {why}"
    )))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, pem::Error> {
    let bytes = follow::read(path).map_err(pem::Error::Io)?;
    PrivateKeyDer::from_pem_slice(&bytes)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let bytes = follow::read(path).map_err(pem::Error::Io)?;
    CertificateDer::pem_slice_iter(&bytes).collect()
}

impl ClientCertificate {
    /// Of a chain that was verified.
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
