//! Certificates for servers, issued by an authority that is trusted only if configured.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme,
};

/// The files of a server with TLS in its folder, all PEM.
pub(crate) struct Files {
    /// The authority's certificate: a client that trusts it trusts the server.
    pub(crate) authority: PathBuf,
    /// The server's certificate, for `localhost` and `127.0.0.1`. Clients may use it too.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Certificate and key in one file.
    pub(crate) both: PathBuf,
}

impl Files {
    pub(crate) fn of(folder: &Path) -> Self {
        Self {
            authority: folder.join("ca.pem"),
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            both: folder.join("both.pem"),
        }
    }

    pub(crate) fn write(&self, self_signed: bool) -> io::Result<()> {
        let own = identity();
        let (authority, certificate, key) = match self_signed {
            true => (&own.self_signed, &own.self_signed, &own.self_signed_key),
            false => (&own.authority, &own.certificate, &own.key),
        };
        std::fs::write(&self.authority, authority)?;
        std::fs::write(&self.certificate, certificate)?;
        std::fs::write(&self.key, key)?;
        std::fs::write(&self.both, format!("{certificate}{key}"))
    }
}

/// Writes `ca.pem`, and `cert.pem` and `key.pem` for a server on `localhost` and `127.0.0.1`, into this folder.
pub fn certificates(folder: &Path) -> io::Result<()> {
    Files::of(folder).write(false)
}

/// Returns a self-signed certificate for `localhost` and `127.0.0.1`, as PEM.
pub fn self_signed() -> &'static str {
    &identity().self_signed
}

/// Starts a listener that only supports TLS, on loopback, for the lifetime of this process, and returns its port.
pub fn tls_only() -> u16 {
    let own = identity();
    let chain = CertificateDer::from_pem_slice(own.certificate.as_bytes())
        .expect("it was created just now");
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("it was created just now");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("the key matches the certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let session = ServerConnection::new(config.clone());
            let _ = session
                .expect("a valid configuration")
                .complete_io(&mut stream);
        }
    });
    port
}

/// Returns the configuration of a client that only probes whether a server is ready.
pub(crate) fn client() -> Arc<ClientConfig> {
    identity().client.clone()
}

struct Identity {
    authority: String,
    certificate: String,
    key: String,
    /// Its own authority, like one created by `openssl req -x509`.
    self_signed: String,
    self_signed_key: String,
    client: Arc<ClientConfig>,
}

/// Returns the certificates of this process, created at the first call.
fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| make().expect("keys can be created"))
}

fn make() -> Result<Identity, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let name = "an authority of Leasehold's tests";
    params.distinguished_name.push(DnType::CommonName, name);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let self_signed_key = KeyPair::generate()?;
    let self_signed = params.self_signed(&self_signed_key)?;
    Ok(Identity {
        authority: authority.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        self_signed: self_signed.pem(),
        self_signed_key: self_signed_key.serialize_pem(),
        client: client_of_any_server(),
    })
}

fn client_of_any_server() -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
    Arc::new(config.with_no_client_auth())
}

/// Trusts every server, because a probe connects only to servers that were just started here.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = self.0.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
