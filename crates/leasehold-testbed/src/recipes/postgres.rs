//! PostgreSQL: accepts every user on loopback; the user is `postgres`, the database `leasehold`.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::Missing;
use crate::recipe::{Member, Node, Recipe, as_user, command_line, from_template, run};
use crate::{probe, programs};

pub(crate) struct Postgres;

/// Returns a program of the newest major version. Debian installs each version in its own folder.
fn program(name: &str) -> Result<PathBuf, Missing> {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let newest = versions
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|version| {
            let number: u32 = version.file_name().to_str()?.parse().ok()?;
            let program = version.path().join("bin").join(name);
            program.is_file().then_some((number, program))
        })
        .max();
    match newest {
        Some((_, program)) => Ok(program),
        None => programs::on_path("postgres", name),
    }
}

fn make(data: &Path, initdb: &Path, postgres: &Path) -> io::Result<()> {
    let mut command = as_user("postgres");
    command.extend(command_line![
        initdb,
        "-D",
        data,
        "-U",
        "postgres",
        "-A",
        "trust",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--no-sync",
    ]);
    run(&command, data, "")?;
    let mut command = as_user("postgres");
    command.extend(command_line![postgres, "--single", "-D", data, "postgres"]);
    run(&command, data, "create database leasehold\n")
}

impl Recipe for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn installed(&self) -> Result<(), Missing> {
        program("postgres").and(program("initdb")).map(drop)
    }

    fn prepare(&self, node: &Node<'_>) -> io::Result<()> {
        let initdb = program("initdb").map_err(io::Error::other)?;
        let postgres = program("postgres").map_err(io::Error::other)?;
        if programs::is_root() {
            let command = command_line!["chown", "postgres:", node.data];
            run(&command, Path::new("/"), "")?;
        }
        if let Some(files) = node.tls() {
            // PostgreSQL accepts a key only if other users cannot read it.
            let owner = std::fs::metadata(node.data)?.uid();
            std::os::unix::fs::chown(&files.key, Some(owner), None)?;
            std::fs::set_permissions(&files.key, Permissions::from_mode(0o600))?;
        }
        let version = initdb
            .parent()
            .and_then(Path::parent)
            .and_then(Path::file_name);
        let template = format!("postgres-{}", version.unwrap_or_default().display());
        from_template(node.data, &template, |data| make(data, &initdb, &postgres))
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        let mut command = as_user("postgres");
        command.extend(command_line![
            program("postgres")?,
            "-D",
            node.data,
            "-p",
            node.port().to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            format!("unix_socket_directories={}", node.data.display()),
            // In the server's own folder, so that nothing remains after a kill.
            "-c",
            "dynamic_shared_memory_type=mmap",
        ]);
        if let Some(files) = node.tls() {
            let setting = |name: &str, file: &Path| format!("{name}={}", file.display());
            command.extend(command_line![
                "-c",
                "ssl=on",
                "-c",
                setting("ssl_cert_file", &files.certificate),
                "-c",
                setting("ssl_key_file", &files.key),
            ]);
        }
        Ok(command)
    }

    /// A fast shutdown, which does not wait until all clients have disconnected.
    fn stop_signal(&self) -> &'static str {
        "INT"
    }

    fn is_ready(&self, member: Member) -> io::Result<bool> {
        let mut hello = Vec::from(196_608_i32.to_be_bytes());
        hello.extend(b"user\0postgres\0database\0leasehold\0\0");
        let length = i32::try_from(hello.len() + 4).expect("a few bytes");
        let packet = [&length.to_be_bytes()[..], &hello].concat();
        // The answer is `E` during recovery.
        Ok(probe::exchange(probe::plain(member.port)?, &packet)? == *b"R")
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("postgres://postgres@127.0.0.1:{}/leasehold", ports[0])
    }
}
