//! TLS: certificates of the service and of its clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold::{Client, Error, Remote};
use leasehold_server::access::AccessFile;
use leasehold_server::{Tls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::common::{Answer, TIMEOUT};
use crate::guarded::Guarded;

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

/// A folder of PEM files.
pub(crate) struct PemFolder(TempDir);

impl PemFolder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Creates an authority, and writes its certificate to this file.
    pub(crate) fn authority(&self, file: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, file);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(self.path(file), authority.pem()).unwrap();
        authority
    }

    /// Issues a certificate in `NAME.pem`, with its key in `NAME.key`.
    pub(crate) fn issue(
        &self,
        authority: &Authority,
        name: &str,
        common: &str,
        alternative: &[SanType],
    ) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = alternative.to_vec();
        self.sign(authority, name, &params);
    }

    /// Issues a client certificate that expires at this time.
    fn issue_until(&self, authority: &Authority, name: &str, until: SystemTime) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = until.into();
        self.sign(authority, name, &params);
    }

    fn sign(&self, authority: &Authority, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        // The certificate last: a service that reads between the two keeps what it has.
        replace(&self.path(&format!("{name}.key")), &key.serialize_pem());
        replace(&self.path(&format!("{name}.pem")), &certificate.pem());
    }

    pub(crate) fn issue_server(&self, authority: &Authority) {
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

    /// Returns a client that trusts `ca.pem`, and presents this certificate.
    pub(crate) fn connector(&self, presented: Option<&str>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.path("ca.pem")).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match presented {
            None => config.with_no_client_auth(),
            Some(name) => {
                let certificate = self.path(&format!("{name}.pem"));
                let certificate = CertificateDer::from_pem_file(certificate).unwrap();
                let key = self.path(&format!("{name}.key"));
                let key = PrivateKeyDer::from_pem_file(key).unwrap();
                config
                    .with_client_auth_cert(vec![certificate], key)
                    .unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }

    /// Returns a URL that trusts this authority, and presents this certificate.
    fn url(&self, guarded: &Guarded, authority: &str, presented: Option<&str>) -> String {
        let authority = self.path(authority);
        let mut url = format!(
            "https://{}?ca={}",
            guarded.server.address,
            authority.display()
        );
        if let Some(name) = presented {
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

pub(crate) async fn start_guarded(folder: &PemFolder, client_authorities: Option<&str>) -> Guarded {
    let tls = Tls::open(folder.files(client_authorities)).unwrap();
    Guarded::start_with(|config| config.tls = Some(tls)).await
}

/// Acquires and releases a lease at this URL.
async fn take(url: &str, token: Option<&str>, name: &str) -> Result<(), Error> {
    let mut remote = Remote::connect(url)?;
    if let Some(token) = token {
        remote = remote.with_token(token)?;
    }
    let lease = Client::new(Arc::new(remote)).lease(name).acquire().await?;
    lease.release().await.map(drop)
}

/// Adds an entry to the access file, and waits until `url` is admitted.
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
    tokio::time::timeout(TIMEOUT, asking)
        .await
        .expect("the file is followed");
}

#[tokio::test]
async fn only_clients_that_trust_the_authority_connect() {
    let folder = PemFolder::new();
    folder.issue_server(&folder.authority("ca.pem"));
    folder.authority("other.pem");
    let guarded = start_guarded(&folder, None).await;
    let token = leasehold_server::access::Token::generate().unwrap();
    let unknown = take(
        &folder.url(&guarded, "ca.pem", None),
        Some(token.expose()),
        "a",
    )
    .await;
    assert!(
        unknown.unwrap_err().to_string().contains("unknown"),
        "the handshake succeeded"
    );
    let distrusted = take(&folder.url(&guarded, "other.pem", None), None, "a").await;
    assert!(
        matches!(&distrusted, Err(Error::Denied(why)) if why.contains("`ca`")),
        "{distrusted:?}"
    );
    // A client without TLS is disconnected, and the service continues.
    let mut plain = guarded.server.begin("GET", "/healthz", "", b"").await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, plain.read_to_end(&mut answer))
        .await
        .expect("disconnected");
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let again = take(&folder.url(&guarded, "ca.pem", None), None, "a").await;
    assert!(
        again
            .unwrap_err()
            .to_string()
            .contains("a token is required")
    );
}

#[tokio::test]
async fn certificate_identifies_a_principal() {
    let folder = PemFolder::new();
    let authority = folder.authority("ca.pem");
    folder.issue_server(&authority);
    let clients = folder.authority("clients.pem");
    folder.issue(&clients, "worker", "worker", &[]);
    let uri = SanType::URI("spiffe://example.org/batch".try_into().unwrap());
    folder.issue(&clients, "batch", "", &[uri]);
    folder.issue(&clients, "stranger", "stranger", &[]);
    folder.issue(&folder.authority("forger.pem"), "forged", "worker", &[]);
    let guarded = start_guarded(&folder, Some("clients.pem")).await;
    let url = |presented| folder.url(&guarded, "ca.pem", Some(presented));
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
    // A token takes precedence over a certificate, even if it is unknown.
    let wrong = take(&url("worker"), Some("lh_wrong"), "jobs/a")
        .await
        .unwrap_err();
    assert!(wrong.to_string().contains("token is unknown"), "{wrong}");
}

#[tokio::test]
async fn certificates_are_reloaded_when_they_change() {
    let folder = PemFolder::new();
    folder.issue_server(&folder.authority("old.pem"));
    let guarded = start_guarded(&folder, None).await;
    let is_trusted = async |authority| {
        let refused = take(&folder.url(&guarded, authority, None), None, "a")
            .await
            .unwrap_err();
        refused.to_string().contains("a token is required")
    };
    assert!(is_trusted("old.pem").await);
    // An unusable file changes nothing.
    replace(&folder.path("server.pem"), "no certificate");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(is_trusted("old.pem").await);
    folder.issue_server(&folder.authority("new.pem"));
    let renewed = async {
        while !is_trusted("new.pem").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, renewed)
        .await
        .expect("the new certificate");
    assert!(!is_trusted("old.pem").await);
}

#[tokio::test]
async fn unusable_files_are_explained() {
    let folder = PemFolder::new();
    let error = Tls::open(folder.files(None)).unwrap_err().to_string();
    assert!(error.contains("server.key"), "{error}");
    folder.issue_server(&folder.authority("ca.pem"));
    std::fs::write(folder.path("server.pem"), "").unwrap();
    let error = Tls::open(folder.files(None)).unwrap_err().to_string();
    assert!(error.contains("no certificate in"), "{error}");
    // Opening a named pipe would wait for a writer.
    let key = folder.path("server.key");
    std::fs::remove_file(&key).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&key).status();
    assert!(made.unwrap().success());
    let error = Tls::open(folder.files(None)).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

pub(crate) async fn connect(guarded: &Guarded, connector: &TlsConnector) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(guarded.server.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    connector.connect(name, stream).await.unwrap()
}

/// Reads the next answer on a connection that stays open.
async fn next_answer(stream: &mut TlsStream<TcpStream>) -> Answer {
    let mut bytes = Vec::new();
    let reading = async {
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(stream.read_u8().await.unwrap());
        }
        let length = Answer::parse(&bytes)
            .header("content-length")
            .unwrap()
            .parse();
        let mut body = vec![0; length.unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        bytes.extend(body);
    };
    tokio::time::timeout(TIMEOUT, reading)
        .await
        .expect("an answer in bounded time");
    Answer::parse(&bytes)
}

pub(crate) async fn send_on(
    stream: &mut TlsStream<TcpStream>,
    method: &str,
    target: &str,
) -> Answer {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    next_answer(stream).await
}

/// Repeats a request while its answer has this status.
async fn repeat_while(stream: &mut TlsStream<TcpStream>, status: u16) -> Answer {
    let asking = async {
        loop {
            let answer = send_on(stream, "GET", "/whoami").await;
            if answer.status != status {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking)
        .await
        .expect("the status changes")
}

#[tokio::test]
async fn expired_certificate_is_refused_on_open_connections_and_in_resumed_sessions() {
    let folder = PemFolder::new();
    folder.issue_server(&folder.authority("ca.pem"));
    let clients = folder.authority("clients.pem");
    let guarded = start_guarded(&folder, Some("clients.pem")).await;
    guarded.server.engine_acquire("job").await;
    let until = SystemTime::now() + Duration::from_secs(8);
    folder.issue_until(&clients, "worker", until);
    let entry = "[[certificate]]\nname = \"worker\"\nprincipal = \"w\"\nscopes = [\"admin:\"]\n";
    let text = std::fs::read_to_string(guarded.file()).unwrap() + entry;
    std::fs::write(guarded.file(), text).unwrap();

    let connector = folder.connector(Some("worker"));
    let mut open = connect(&guarded, &connector).await;
    repeat_while(&mut open, 401).await.ok();
    let mut waiting = connect(&guarded, &connector).await;
    let wait = "POST /locks/job?nonce=n&wait=5m HTTP/1.1\r\nHost: localhost\r\n\r\n";
    waiting.write_all(wait.as_bytes()).await.unwrap();
    guarded.server.wait_for_waiters("job", 1).await;

    let refused = repeat_while(&mut open, 200).await;
    let refused = refused.problem(401, "unauthorized");
    assert!(refused.text("detail").contains("expired"), "{refused:?}");
    assert!(SystemTime::now() >= until - Duration::from_secs(1));
    next_answer(&mut waiting).await.problem(401, "unauthorized");
    guarded.server.wait_for_waiters("job", 0).await;
    // A resumed session does not present the certificate again.
    let mut resumed = connect(&guarded, &connector).await;
    let kind = resumed.get_ref().1.handshake_kind();
    assert_eq!(kind, Some(HandshakeKind::Resumed));
    let refused = send_on(&mut resumed, "GET", "/whoami").await;
    refused.problem(401, "unauthorized");
}

#[tokio::test]
async fn session_under_tls_is_bound_to_the_host_and_to_tls() {
    let folder = PemFolder::new();
    folder.issue_server(&folder.authority("ca.pem"));
    let guarded = start_guarded(&folder, None).await;
    let scopes = ["read:".parse().unwrap()];
    let created = AccessFile::create_token(&guarded.file(), "ops", &scopes, None);
    let body = format!(r#"{{"token":"{}"}}"#, created.unwrap().0.expose());
    let mut stream = connect(&guarded, &folder.connector(None)).await;
    let send = async |stream: &mut TlsStream<TcpStream>, head: &str, body: &str| {
        let length = body.len();
        let request =
            format!("{head}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        next_answer(stream).await
    };
    let signing_in = async {
        loop {
            let answer = send(&mut stream, "POST /login HTTP/1.1", &body).await;
            if answer.status != 401 {
                break answer.ok();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let signed_in = tokio::time::timeout(TIMEOUT, signing_in).await;
    let set = signed_in.expect("the file is followed").set_cookie();
    let (cookie, attributes) = set.split_once(';').unwrap();
    assert!(cookie.starts_with("__Host-leasehold-session="), "{set}");
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Strict; Secure");
    let ask = format!("GET /whoami HTTP/1.1\r\nCookie: {cookie}");
    send(&mut stream, &ask, "").await.ok();
    // Every port of the host could have set a cookie of this name, without TLS.
    let plain = ask.replace("__Host-", "");
    let refused = send(&mut stream, &plain, "").await;
    refused.problem(401, "unauthorized");
}

/// Sends a request for this host over TLS.
async fn send_for_host(guarded: &Guarded, folder: &PemFolder, host: &str, target: &str) -> Answer {
    let mut stream = connect(guarded, &folder.connector(None)).await;
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer))
        .await
        .expect("an answer in bounded time");
    Answer::parse(&answer)
}

#[tokio::test]
async fn answers_require_tls_from_then_on_except_on_loopback() {
    let folder = PemFolder::new();
    folder.issue_server(&folder.authority("ca.pem"));
    let guarded = start_guarded(&folder, None).await;
    for target in ["/", "/healthz", "/locks", "/nowhere"] {
        let hsts = async |host| {
            let answer = send_for_host(&guarded, &folder, host, target).await;
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
