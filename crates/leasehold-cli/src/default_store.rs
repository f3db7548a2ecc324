//! The default store: a SQLite file in the user's data folder.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

use crate::exit::{Failure, USAGE};

/// The path of the default store within a data folder.
const FILE: &str = "leasehold/leases.db";

/// Returns the path of the default store, and creates its folder, which other users cannot read.
pub(crate) fn path() -> Result<String, Failure> {
    let set = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let data = set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(data_folder(Path::new(&set("HOME")?))));
    let Some(data) = data else {
        return Err(Failure::new(
            USAGE,
            "cannot find the default store: HOME is not set; name a store, such as `--store sqlite:PATH`",
        ));
    };
    let file = data.join(FILE);
    if let Some(folder) = file.parent() {
        create(folder)?;
    }
    file.into_os_string().into_string().map_err(|_| {
        Failure::new(
            USAGE,
            "cannot use the default store: the path of the home folder is not UTF-8; name a store, such as \
             `--store sqlite:PATH`",
        )
    })
}

fn data_folder(home: &Path) -> PathBuf {
    home.join(".local/share")
}

fn create(folder: &Path) -> Result<(), Failure> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|error| {
        let folder = folder.display();
        Failure::from(leasehold::Error::Denied(format!(
            "cannot create the folder {folder}: {error}; name a store, such as `--store sqlite:PATH`"
        )))
    })
}

/// Returns a warning if another user has a separate default store.
///
/// Only root can read the folders of other users, so in practice this warns root: in a cron job, or under `sudo`.
pub(crate) fn warning(path: &str) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    // Looked up by name, because a directory service may know users that the file does not list.
    let invoker = std::env::var("SUDO_USER").ok();
    let invoker = invoker.and_then(|name| User::from_name(&name).ok()?);
    let invoker = invoker.map(|user| (user.name, user.dir));
    let other = other_user(Path::new(path), &users, Uid::current(), invoker)?;
    Some(format!(
        "the default store {path} is not shared with the user {other}, who has a separate one: leases in one do not \
         exclude holders in the other; name the same store for both with --store or LEASEHOLD_STORE"
    ))
}

/// Returns the name of the user who invoked `sudo`, or else of any other user with a default store.
fn other_user(
    path: &Path,
    users: &str,
    own: Uid,
    invoker: Option<(String, PathBuf)>,
) -> Option<String> {
    let store = |home: &Path| data_folder(home).join(FILE);
    if let Some((name, home)) = invoker
        && store(&home) != path
    {
        return Some(name);
    }
    users.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, id, _, _, home, ..] = fields[..] else {
            return None;
        };
        let is_own = id == own.to_string();
        (!is_own && store(Path::new(home)).exists()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_users_store_is_a_reason_to_warn() {
        let homes = tempfile::tempdir().unwrap();
        let home = |name: &str| homes.path().join(name);
        let store = |name: &str| data_folder(&home(name)).join(FILE);
        let create = |name: &str| {
            std::fs::create_dir_all(store(name).parent().unwrap()).unwrap();
            std::fs::write(store(name), "").unwrap();
        };
        let line = |(id, name)| format!("{name}:x:{id}:1::{}:/bin/sh", home(name).display());
        let users = [(0, "root"), (1, "daemon"), (2, "alice")].map(line);
        let users = users.join("\n");
        let other = |path: &Path, invoker: Option<&str>| {
            let invoker = invoker.map(|name| (name.to_owned(), home(name)));
            other_user(path, &users, Uid::from_raw(0), invoker)
        };
        create("root");

        assert_eq!(other(&store("root"), None), None);
        assert_eq!(other(&store("root"), Some("root")), None);
        // The same user with another `XDG_DATA_HOME`.
        assert_eq!(other(Path::new("/srv/leases.db"), None), None);
        // A user that the file does not list.
        assert_eq!(other(&store("root"), Some("bob")).as_deref(), Some("bob"));

        create("alice");
        assert_eq!(other(&store("root"), None).as_deref(), Some("alice"));
    }
}
