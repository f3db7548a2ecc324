//! A service with access control.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::Engine;
use leasehold::store::{self, Store};
use leasehold_server::Config;
use leasehold_server::access::{Access, AccessFile, Scope};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::common::{Answer, Server, TIMEOUT};

/// A service with access control, and the file that it follows.
pub(crate) struct Guarded {
    pub(crate) server: Server,
    folder: TempDir,
}

impl Guarded {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(crate) async fn start_with(configure: impl FnOnce(&mut Config)) -> Self {
        Self::start_on(store::open("memory:").await.unwrap(), configure).await
    }

    pub(crate) async fn start_on(
        store: Arc<dyn Store>,
        configure: impl FnOnce(&mut Config),
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("access.toml");
        // The file must exist. No caller has this token.
        AccessFile::create_token(&file, "unused", &[], None).unwrap();
        let mut config = Config::default();
        config.access = Some(Access::open(&file).unwrap());
        configure(&mut config);
        let engine = Engine::start(store).await.unwrap();
        let server = Server::start_with(engine, config).await;
        Self { server, folder }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("access.toml")
    }

    /// Creates a token, and returns once the service knows it.
    pub(crate) async fn token(&self, principal: &str, scopes: &[&str]) -> String {
        let scopes: Vec<Scope> = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
        let (token, _) = AccessFile::create_token(&self.file(), principal, &scopes, None).unwrap();
        let token = token.expose().to_owned();
        self.wait_for_status(&token, |status| status != 401).await;
        token
    }

    /// Revokes a token, and returns once the service knows that.
    pub(crate) async fn revoke(&self, token: &str) {
        AccessFile::revoke_token(&self.file(), &token[3..11]).unwrap();
        self.wait_for_status(token, |status| status == 401).await;
    }

    /// Replaces a scope that is in the file once, and waits until the service knows.
    pub(crate) async fn change_scope(&self, token: &str, scope: &str, other: &str) {
        let text = std::fs::read_to_string(self.file()).unwrap();
        let (quoted, other_quoted) = (format!("{scope:?}"), format!("{other:?}"));
        assert_eq!(text.matches(&quoted).count(), 1, "{text}");
        std::fs::write(self.file(), text.replace(&quoted, &other_quoted)).unwrap();
        let asking = async {
            loop {
                let myself = self.ask("GET", "/whoami", token, b"").await.ok();
                if myself.json["scopes"].to_string().contains(&other_quoted) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, asking)
            .await
            .expect("the file is followed");
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) async fn begin(&self, method: &str, target: &str, token: &str) -> TcpStream {
        let header = format!("Authorization: Bearer {token}\r\n");
        self.server.begin(method, target, &header, b"").await
    }

    /// Repeats a request with a token until the status of its answer is accepted.
    pub(crate) async fn wait_for_status(&self, token: &str, is_accepted: impl Fn(u16) -> bool) {
        let asking = async {
            while !is_accepted(self.ask("GET", "/locks", token, b"").await.status) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, asking)
            .await
            .expect("the file is followed");
    }

    pub(crate) async fn ask(&self, method: &str, target: &str, token: &str, body: &[u8]) -> Answer {
        let header = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        self.server.send_with(method, target, &header, body).await
    }

    pub(crate) async fn post(&self, target: &str, token: &str) -> Answer {
        self.ask("POST", target, token, b"").await
    }
}
