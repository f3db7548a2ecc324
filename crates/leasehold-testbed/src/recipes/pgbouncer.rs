//! PgBouncer in transaction mode, in front of PostgreSQL.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::postgres::Postgres;
use crate::Missing;
use crate::programs;
use crate::recipe::{Member, Node, Recipe, as_user, command_line};

pub(crate) struct Pgbouncer {
    /// PostgreSQL's port.
    pub(crate) target: u16,
}

fn file(data: &Path, name: &str) -> PathBuf {
    data.join(name)
}

impl Recipe for Pgbouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn installed(&self) -> Result<(), Missing> {
        programs::on_path("postgres", "pgbouncer").map(drop)
    }

    fn prepare(&self, node: &Node<'_>) -> io::Result<()> {
        let users = file(node.data, "users.txt");
        std::fs::write(&users, "\"postgres\" \"\"\n")?;
        let settings = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {}\n\
             unix_socket_dir =\n\
             auth_type = trust\n\
             auth_file = {}\n\
             pool_mode = transaction\n\
             default_pool_size = 10\n",
            self.target,
            node.port(),
            users.display()
        );
        std::fs::write(file(node.data, "pgbouncer.ini"), settings)
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        let mut command = as_user("postgres");
        command.extend(command_line![
            programs::on_path("postgres", "pgbouncer")?,
            file(node.data, "pgbouncer.ini"),
        ]);
        Ok(command)
    }

    /// Stops immediately, even with connected clients.
    fn stop_signal(&self) -> &'static str {
        "TERM"
    }

    fn is_ready(&self, member: Member) -> io::Result<bool> {
        Postgres.is_ready(member)
    }

    fn url(&self, ports: &[u16]) -> String {
        Postgres.url(ports)
    }
}
