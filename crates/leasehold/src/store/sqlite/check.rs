//! Checks the settings that make leases in this file safe or unsafe.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::statfs::statfs;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::file::File;
use crate::store::Check;
use crate::{Error, Result};

/// File systems by the kernel's magic numbers. `fuse` may be any file system, but usually is a network one.
const NETWORK: [(u32, &str); 9] = [
    (0x6969, "nfs"),
    (0x517B, "smb"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x00C3_6400, "ceph"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "afs"),
    (0x0BD0_0BD0, "lustre"),
    (0x6573_5546, "fuse"),
];
const MEMORY: [(u32, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58F6, "ramfs")];

pub(super) fn check(file: &File, connection: &Connection) -> Result<Vec<Check>> {
    file.check_in_place()?;
    let path = file.path();
    let io = |error: std::io::Error| Error::Unavailable(format!("`{}`: {error}", path.display()));
    let found = statfs(path).map_err(|error| io(error.into()))?;
    let permissions = fs::metadata(path).map_err(io)?.permissions();
    Ok(vec![
        durability(file, connection)?,
        location(path, found.filesystem_type().0 as u32),
        access(path, &permissions),
    ])
}

fn durability(file: &File, connection: &Connection) -> Result<Check> {
    let setting = |name| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, Value>(0))
            .map_err(|error| file.before_commit(&error))
    };
    Ok(match (setting("journal_mode")?, setting("synchronous")?) {
        (Value::Text(mode), Value::Integer(2..)) if mode == "wal" => {
            Check::green("every commit waits for the disk: write-ahead log, synchronous=FULL")
        }
        (mode, synchronous) => Check::red(
            format!(
                "commits may be lost: journal_mode is {mode:?}, synchronous is {synchronous:?}"
            ),
            "restart all programs that have the file open",
        ),
    })
}

fn location(path: &Path, kind: u32) -> Check {
    let named = |table: &[(u32, &'static str)]| {
        table
            .iter()
            .find_map(|(number, name)| (*number == kind).then_some(*name))
    };
    let path = path.display();
    if let Some(name) = named(&NETWORK) {
        Check::red(
            format!("`{path}` is on a network file system ({name}), whose locks are unreliable"),
            "move it to a local disk, or share leases between machines through `leasehold serve`",
        )
    } else if let Some(name) = named(&MEMORY) {
        Check::yellow(
            format!("`{path}` is in memory ({name}): a reboot deletes it"),
            "move it to a disk",
        )
    } else {
        Check::green(format!("`{path}` is on a local file system"))
    }
}

fn access(path: &Path, permissions: &Permissions) -> Check {
    let path = path.display();
    match permissions.mode() & 0o007 {
        0 => Check::green(format!("other users have no access to `{path}`")),
        _ => Check::yellow(
            format!("every user of this machine has access to `{path}`"),
            format!("chmod o= {path}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Level;

    #[test]
    fn network_and_memory_file_systems_are_reported() {
        let level = |kind| location(Path::new("x"), kind).level;
        assert_eq!(level(0x6969), Level::Red);
        assert_eq!(level(0x0102_1994), Level::Yellow);
        assert_eq!(level(0xEF53), Level::Green);
    }

    #[test]
    fn access_for_other_users_is_reported() {
        let level = |mode| access(Path::new("x"), &Permissions::from_mode(mode)).level;
        assert_eq!(level(0o100_660), Level::Green);
        assert_eq!(level(0o100_644), Level::Yellow);
    }
}
