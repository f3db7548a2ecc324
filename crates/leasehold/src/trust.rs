//! Verification of server certificates.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Trusts a server certificate that a trusted authority issued, or that is itself a trusted certificate.
///
/// An ordinary self-signed certificate declares itself an authority, and webpki accepts no authority's certificate as
/// a server's. If that, or an unknown issuer, is the only objection, the certificate is looked up among the trusted
/// ones. It is then accepted for the hosts that it names while it is valid; webpki checks validity before.
#[derive(Debug)]
pub(crate) struct Verifier {
    authorities: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Creates a verifier. Fails if the list is empty.
    pub(crate) fn new(
        trusted: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let authorities =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        Ok(Self {
            authorities: authorities.build()?,
            trusted,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.authorities
                .verify_server_cert(certificate, intermediates, host, ocsp, now);
        match verified {
            Err(error) if has_unknown_issuer(&error) && self.trusted.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, host)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Returns whether the only objection is that no trusted authority issued the certificate. webpki checks that last.
fn has_unknown_issuer(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    /// Verifies a self-signed certificate for `localhost` that is trusted itself.
    fn verified(host: &'static str, now: UnixTime) -> Result<ServerCertVerified, Error> {
        let pem = leasehold_testbed::self_signed().as_bytes();
        let certificate = CertificateDer::from_pem_slice(pem).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier::new(vec![certificate.clone()], &provider).unwrap();
        let host = ServerName::try_from(host).unwrap();
        verifier.verify_server_cert(&certificate, &[], &host, &[], now)
    }

    #[test]
    fn named_certificate_is_trusted_for_its_hosts_while_it_is_valid() {
        let now = UnixTime::now();
        assert!(verified("localhost", now).is_ok());
        let elsewhere = verified("db.example", now);
        let is_named = |error: &Error| format!("{error:?}").contains("NotValidForName");
        assert!(elsewhere.as_ref().is_err_and(is_named), "{elsewhere:?}");
        let late = UnixTime::since_unix_epoch(Duration::from_secs(3_000 * 31_556_952));
        let late = verified("localhost", late);
        let is_expired = |error: &Error| format!("{error:?}").contains("Expired");
        assert!(late.as_ref().is_err_and(is_expired), "{late:?}");
    }
}
