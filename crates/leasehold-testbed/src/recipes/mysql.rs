//! MariaDB: `root` without a password on loopback; the database is `leasehold`.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::Missing;
use crate::recipe::{Member, Node, Recipe, command_line, from_template, run};
use crate::{probe, programs};

pub(crate) struct Mysql;

/// Returns the option with which the server changes to its own user.
fn user() -> Option<OsString> {
    programs::is_root().then(|| "--user=mysql".into())
}

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

impl Recipe for Mysql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn installed(&self) -> Result<(), Missing> {
        programs::on_path("mysql", "mariadbd")?;
        programs::on_path("mysql", "mariadb-install-db").map(drop)
    }

    fn prepare(&self, node: &Node<'_>) -> io::Result<()> {
        let program = programs::on_path("mysql", "mariadb-install-db").map_err(io::Error::other)?;
        let made = std::fs::metadata(&program)?.modified()?;
        let made = made.duration_since(UNIX_EPOCH).unwrap_or_default();
        let template = format!("mysql-{}", made.as_secs());
        from_template(node.data, &template, |data| {
            let mut command = command_line![
                &program,
                "--no-defaults",
                option("--datadir=", data),
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--innodb-log-file-size=8M",
            ];
            command.extend(user());
            run(&command, Path::new("/"), "")?;
            let first = data.join("first.sql");
            std::fs::write(first, "create database if not exists leasehold;\n")
        })
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        let mut command = command_line![
            programs::on_path("mysql", "mariadbd")?,
            "--no-defaults",
            option("--datadir=", node.data),
            // On startup, a server deletes all temporary tables in this folder, also those of other servers.
            option("--tmpdir=", node.data),
            option("--socket=", &node.data.join("socket")),
            option("--pid-file=", &node.data.join("pid")),
            option("--init-file=", &node.data.join("first.sql")),
            format!("--port={}", node.port()),
            "--bind-address=127.0.0.1",
            "--innodb-log-file-size=8M",
            // Otherwise the server also blocks hosts that close connections early, as a test's proxy does.
            "--skip-name-resolve",
        ];
        if let Some(files) = node.tls() {
            command.extend([
                option("--ssl-cert=", &files.certificate),
                option("--ssl-key=", &files.key),
                "--require-secure-transport=on".into(),
            ]);
        }
        command.extend(user());
        Ok(command)
    }

    /// The first packet announces protocol version 10.
    fn is_ready(&self, member: Member) -> io::Result<bool> {
        let greeting: [u8; 5] = probe::exchange(probe::plain(member.port)?, b"")?;
        Ok(greeting[4] == 10)
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("mysql://root@127.0.0.1:{}/leasehold", ports[0])
    }
}
