//! Redis and Valkey: acknowledged writes are in the append-only file on disk.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::Missing;
use crate::recipe::{Member, Node, Recipe, command_line};
use crate::{probe, programs};

/// The server program.
pub(crate) enum Redis {
    /// Debian's Redis, whose `WAIT` counts every write of the server.
    Debian,
    /// Valkey, whose `WAIT` counts only the connection's own writes, like that of Redis since 7.2.
    Valkey,
}

impl Redis {
    fn program(&self) -> Result<PathBuf, Missing> {
        match self {
            Self::Debian => programs::on_path("redis", "redis-server"),
            Self::Valkey => programs::in_cache("valkey", "valkey/usr/bin/valkey-server"),
        }
    }
}

impl Recipe for Redis {
    fn name(&self) -> &'static str {
        match self {
            Self::Debian => "redis",
            Self::Valkey => "valkey",
        }
    }

    fn installed(&self) -> Result<(), Missing> {
        self.program().map(drop)
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        let port = node.port().to_string();
        let ports = match node.tls() {
            None => command_line!["--port", port],
            Some(files) => command_line![
                "--port",
                "0",
                "--tls-port",
                port,
                "--tls-cert-file",
                files.certificate,
                "--tls-key-file",
                files.key,
                "--tls-ca-cert-file",
                files.authority,
                "--tls-auth-clients",
                "optional",
            ],
        };
        let mut command = command_line![
            self.program()?,
            "--bind",
            "127.0.0.1",
            "--dir",
            node.data,
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ];
        command.extend(ports);
        Ok(command)
    }

    /// A refusal for lack of a password counts as ready; a refusal while loading data does not.
    fn is_ready(&self, member: Member) -> io::Result<bool> {
        let answer: [u8; 5] = probe::exchange(probe::to(member)?, b"PING\r\n")?;
        Ok(matches!(&answer, b"+PONG" | b"-NOAU"))
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("redis://127.0.0.1:{}", ports[0])
    }
}
