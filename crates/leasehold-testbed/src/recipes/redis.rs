//! Redis: what was acknowledged is in the append-only file on the disk.

use std::ffi::OsString;
use std::io;

use crate::Missing;
use crate::recipe::{Member, Node, Recipe, command_line};
use crate::{probe, programs};

pub(crate) struct Redis;

impl Recipe for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn installed(&self) -> Result<(), Missing> {
        programs::on_path("redis", "redis-server").map(drop)
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
            programs::on_path("redis", "redis-server")?,
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

    /// A refusal to talk without a password counts; one because it still loads its data does not.
    fn is_ready(&self, member: Member) -> io::Result<bool> {
        let answer: [u8; 5] = probe::ask(probe::to(member)?, b"PING\r\n")?;
        Ok(matches!(&answer, b"+PONG" | b"-NOAU"))
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("redis://127.0.0.1:{}", ports[0])
    }
}
