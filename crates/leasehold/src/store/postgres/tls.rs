//! Server verification: `sslmode` as in libpq, with rustls.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{Error, Result, trust};

/// How the server is verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// No TLS.
    Plain,
    /// TLS if the server offers it, without verification.
    Prefer,
    /// TLS without verification.
    Encrypted,
    /// TLS with a certificate of one of these authorities.
    Authority(TrustedRoots),
    /// The same, for the host in the URL.
    Host(TrustedRoots),
}

/// The trusted authorities.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TrustedRoots {
    /// The system's.
    System,
    /// Those in a PEM file.
    File(String),
}

impl TlsMode {
    pub(super) fn parse(mode: Option<&str>, file: Option<String>) -> Result<Self> {
        let roots = match file.as_deref() {
            None | Some("system") => TrustedRoots::System,
            Some(file) => TrustedRoots::File(file.to_owned()),
        };
        match (mode, roots) {
            (Some("disable"), _) => Ok(Self::Plain),
            // As in libpq: with root certificates, `require` verifies the authority.
            (Some("require"), roots @ TrustedRoots::File(_)) => Ok(Self::Authority(roots)),
            (Some("require"), TrustedRoots::System) => Ok(Self::Encrypted),
            (Some("verify-ca"), roots) => Ok(Self::Authority(roots)),
            (Some("verify-full"), roots) => Ok(Self::Host(roots)),
            (None | Some("prefer"), _) => Ok(Self::Prefer),
            _ => Err(Error::invalid(
                "`sslmode` in the store URL is one of disable, prefer, require, verify-ca, verify-full",
            )),
        }
    }

    /// Creates the TLS connector.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect> {
        let provider = Arc::new(ring::default_provider());
        let verifier = match self {
            Self::Plain | Self::Prefer | Self::Encrypted => Verifier {
                trusted: None,
                any_host: true,
                provider: provider.clone(),
            },
            Self::Authority(roots) | Self::Host(roots) => Verifier {
                trusted: Some(roots.verifier(&provider)?),
                any_host: matches!(self, Self::Authority(_)),
                provider: provider.clone(),
            },
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Denied(format!("TLS cannot be used: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(config))
    }
}

impl TrustedRoots {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        match self {
            Self::System => Ok(rustls_native_certs::load_native_certs().certs),
            Self::File(path) => CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| {
                    Error::Denied(format!("`sslrootcert`: cannot read `{path}`: {error}"))
                }),
        }
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<trust::Verifier> {
        trust::Verifier::new(self.certificates()?, provider).map_err(|error| {
            let source = match self {
                Self::System => "this system",
                Self::File(path) => path,
            };
            Error::Denied(format!(
                "{source} has no certificates to trust ({error}): name a file with certificates in `sslrootcert`"
            ))
        })
    }
}

/// Verifies certificates as `sslmode` demands, and always that the server has the key of its certificate.
#[derive(Debug)]
struct Verifier {
    /// `None` if certificates are not verified.
    trusted: Option<trust::Verifier>,
    any_host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        match trusted.verify_server_cert(certificate, intermediates, host, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.any_host => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
