//! TLS client connections with rustls.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::trust::Verifier;
use crate::{Error, Result};

/// A connection, with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The trusted certificates and the client's own, as paths of PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Trusted certificates: of authorities, or the server's own. By default those of the system.
    pub(crate) authorities: Option<String>,
    /// Requires `key`.
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

/// Creates a TLS connector from these files.
pub(crate) fn connector(files: &TlsFiles) -> Result<TlsConnector> {
    let (source, trusted) = match &files.authorities {
        Some(file) => (file.as_str(), certificates(file)?),
        None => (
            "this system",
            rustls_native_certs::load_native_certs().certs,
        ),
    };
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(trusted, &provider).map_err(|error| {
        Error::Denied(format!(
            "cannot use TLS: {source} has no trusted certificates ({error}): give a file with certificates as `ca`"
        ))
    })?;
    let unusable = |error: rustls::Error| Error::Denied(format!("cannot use TLS: {error}"));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => config
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(unusable)?,
        _ => config.with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Connects to a server. TLS errors have the kind [`io::ErrorKind::InvalidData`].
pub(crate) async fn connect(
    tls: Option<&TlsConnector>,
    host: &str,
    port: u16,
) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((host, port)).await?;
    crate::host::tune(&stream);
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|invalid| io::Error::new(io::ErrorKind::InvalidData, invalid))?;
    Ok(Box::new(tls.connect(name, stream).await?))
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| Error::Denied(format!("cannot read certificates from `{file}`: {error}")))
}

fn private_key(file: &str) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| Error::Denied(format!("cannot read the key from `{file}`: {error}")))
}
