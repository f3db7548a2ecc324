//! TLS, by rustls.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::options::Options;
use crate::{Error, Result};

/// What makes TLS connections, where they are asked for.
pub(super) fn connector(options: &Options) -> Result<Option<TlsConnector>> {
    if !options.tls {
        return Ok(None);
    }
    let mut roots = RootCertStore::empty();
    match &options.authorities {
        Some(file) => roots.add_parsable_certificates(certificates(file)?),
        None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    };
    let unusable = |error: rustls::Error| Error::Denied(format!("TLS cannot be used: {error}"));
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots);
    let config = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => config
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(unusable)?,
        _ => config.with_no_client_auth(),
    };
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| Error::Denied(format!("cannot read certificates from `{file}`: {error}")))
}

fn private_key(file: &str) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| Error::Denied(format!("cannot read a key from `{file}`: {error}")))
}
