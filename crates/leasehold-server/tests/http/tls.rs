//! TLS: certificates of the service and of its clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Error, Remote};
use leasehold_server::{Tls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::common::{Answer, PATIENCE};
use crate::guarded::Guarded;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A folder of PEM files.
struct Papers(TempDir);

impl Papers {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new authority, whose certificate is in this file.
    fn authority(&self, file: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, file);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(self.path(file), authority.pem()).unwrap();
        authority
    }

    /// A certificate by this authority, in `NAME.pem` with its key in `NAME.key`.
    fn issue(&self, authority: &Authority, name: &str, common: &str, alternative: &[SanType]) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = alternative.to_vec();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        // The certificate last: a service that reads between the two keeps what it has.
        replace(&self.path(&format!("{name}.key")), &key.serialize_pem());
        replace(&self.path(&format!("{name}.pem")), &certificate.pem());
    }

    fn issue_server(&self, authority: &Authority) {
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        self.issue(authority, "server", "server", &[address]);
    }

    fn files(&self, client_authorities: Option<&str>) -> TlsFiles {
        TlsFiles {
            certificate: self.path("server.pem"),
            key: self.path("server.key"),
            client_authorities: client_authorities.map(|file| self.path(file)),
        }
    }

    /// A URL that trusts this authority, and shows this certificate.
    fn url(&self, guarded: &Guarded, authority: &str, shown: Option<&str>) -> String {
        let authority = self.path(authority);
        let mut url = format!(
            "https://{}?ca={}",
            guarded.server.address,
            authority.display()
        );
        if let Some(name) = shown {
            let path = self.path(name);
            url += &format!("&cert={0}.pem&key={0}.key", path.display());
        }
        url
    }
}

fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

async fn guarded(papers: &Papers, client_authorities: Option<&str>) -> Guarded {
    let tls = Tls::open(papers.files(client_authorities)).unwrap();
    Guarded::start_with(|config| config.tls = Some(tls)).await
}

/// What comes of taking a lease at this URL.
async fn take(url: &str, token: Option<&str>, name: &str) -> Result<(), Error> {
    let mut remote = Remote::connect(url)?;
    if let Some(token) = token {
        remote = remote.with_token(token)?;
    }
    let lease = Client::new(Arc::new(remote)).lease(name).acquire().await?;
    lease.release().await.map(drop)
}

/// Adds to the access file, and waits until `url` is let in.
async fn admit(guarded: &Guarded, entry: &str, url: &str, name: &str) {
    let file = guarded.file();
    let text = std::fs::read_to_string(&file).unwrap() + entry;
    std::fs::write(&file, text).unwrap();
    let asking = async {
        while let Err(error) = take(url, None, name).await {
            assert!(matches!(error, Error::Denied(_)), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .expect("the file is followed");
}

#[tokio::test]
async fn who_trusts_the_authority_gets_through_and_nobody_else() {
    let papers = Papers::new();
    papers.issue_server(&papers.authority("ca.pem"));
    papers.authority("other.pem");
    let guarded = guarded(&papers, None).await;
    let token = leasehold_server::access::Token::generate().unwrap();
    let unknown = take(
        &papers.url(&guarded, "ca.pem", None),
        Some(token.expose()),
        "a",
    )
    .await;
    assert!(
        unknown.unwrap_err().to_string().contains("unknown"),
        "TLS came about"
    );
    let distrusted = take(&papers.url(&guarded, "other.pem", None), None, "a").await;
    assert!(
        matches!(&distrusted, Err(Error::Denied(why)) if why.contains("`ca`")),
        "{distrusted:?}"
    );
    // Whoever speaks no TLS is cut off, and the service goes on.
    let mut plain = guarded.server.begin("GET", "/healthz", "", b"").await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut answer))
        .await
        .expect("cut off");
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let again = take(&papers.url(&guarded, "ca.pem", None), None, "a").await;
    assert!(again.unwrap_err().to_string().contains("a token is needed"));
}

#[tokio::test]
async fn a_certificate_stands_for_a_principal() {
    let papers = Papers::new();
    let authority = papers.authority("ca.pem");
    papers.issue_server(&authority);
    let clients = papers.authority("clients.pem");
    papers.issue(&clients, "worker", "worker", &[]);
    let uri = SanType::URI("spiffe://example.org/batch".try_into().unwrap());
    papers.issue(&clients, "batch", "", &[uri]);
    papers.issue(&clients, "stranger", "stranger", &[]);
    papers.issue(&papers.authority("forger.pem"), "forged", "worker", &[]);
    let guarded = guarded(&papers, Some("clients.pem")).await;
    let url = |shown| papers.url(&guarded, "ca.pem", Some(shown));
    let entry =
        "[[certificate]]\nname = \"worker\"\nprincipal = \"w\"\nscopes = [\"acquire:jobs/\"]\n";
    admit(&guarded, entry, &url("worker"), "jobs/a").await;
    let entry = "[[certificate]]\nname = \"spiffe://example.org/batch\"\nprincipal = \"b\"\nscopes = [\"acquire:\"]\n";
    admit(&guarded, entry, &url("batch"), "x").await;
    let outside = take(&url("worker"), None, "other").await.unwrap_err();
    assert!(
        outside.to_string().contains("`acquire` is missing"),
        "{outside}"
    );
    let stranger = take(&url("stranger"), None, "jobs/a").await.unwrap_err();
    assert!(
        stranger.to_string().contains("certificate is unknown"),
        "{stranger}"
    );
    assert!(take(&url("forged"), None, "jobs/a").await.is_err());
    // A token counts more than a certificate, also when it is wrong.
    let wrong = take(&url("worker"), Some("lh_wrong"), "jobs/a")
        .await
        .unwrap_err();
    assert!(wrong.to_string().contains("token is unknown"), "{wrong}");
}

#[tokio::test]
async fn certificates_are_read_again_when_they_change() {
    let papers = Papers::new();
    papers.issue_server(&papers.authority("old.pem"));
    let guarded = guarded(&papers, None).await;
    let asked = async |authority| {
        let refused = take(&papers.url(&guarded, authority, None), None, "a")
            .await
            .unwrap_err();
        refused.to_string().contains("a token is needed")
    };
    assert!(asked("old.pem").await);
    // What cannot be used changes nothing.
    replace(&papers.path("server.pem"), "no certificate");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(asked("old.pem").await);
    papers.issue_server(&papers.authority("new.pem"));
    let renewed = async {
        while !asked("new.pem").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed)
        .await
        .expect("the new certificate");
    assert!(!asked("old.pem").await);
}

#[tokio::test]
async fn files_that_make_no_sense_are_explained() {
    let papers = Papers::new();
    let error = Tls::open(papers.files(None)).unwrap_err().to_string();
    assert!(error.contains("server.key"), "{error}");
    papers.issue_server(&papers.authority("ca.pem"));
    std::fs::write(papers.path("server.pem"), "").unwrap();
    let error = Tls::open(papers.files(None)).unwrap_err().to_string();
    assert!(error.contains("no certificate in"), "{error}");
}

/// The answer over TLS to a request for this host.
async fn ask_for(guarded: &Guarded, papers: &Papers, host: &str, target: &str) -> Answer {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(papers.path("ca.pem")).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(guarded.server.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .expect("an answer in bounded time");
    Answer::parse(&answer)
}

#[tokio::test]
async fn browsers_are_told_to_use_nothing_but_tls_except_on_loopback() {
    let papers = Papers::new();
    papers.issue_server(&papers.authority("ca.pem"));
    let guarded = guarded(&papers, None).await;
    for target in ["/", "/healthz", "/locks", "/nowhere"] {
        let hsts = async |host| {
            let answer = ask_for(&guarded, &papers, host, target).await;
            let hsts = answer.header("strict-transport-security");
            hsts.map(ToOwned::to_owned)
        };
        assert_eq!(hsts("db1:12345").await.as_deref(), Some("max-age=31536000"));
        assert_eq!(hsts("localhost").await, None);
        assert_eq!(hsts("127.0.0.1:12345").await, None);
    }
    let plain = Guarded::start().await;
    let header = plain.server.get("/").await;
    assert_eq!(header.header("strict-transport-security"), None);
}
