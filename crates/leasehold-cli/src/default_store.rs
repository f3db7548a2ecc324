//! The default store: the SQLite file of the system if there is one, and otherwise a file in the user's data folder.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, fchown,
};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, Gid, Group, Uid, User, access};

use crate::exit::{Failure, USAGE};

/// The store of the system, which all users of the machine share if it exists.
const SYSTEM_FILE: &str = "/var/lib/leasehold/leases.db";
/// The variable that names another store of the system. An empty one means none.
const SYSTEM_VARIABLE: &str = "LEASEHOLD_SYSTEM_STORE";
/// The group whose users share the store of the system.
pub(crate) const SYSTEM_GROUP: &str = "leasehold";

/// The path of the default store within a data folder.
const FILE: &str = "leasehold/leases.db";

/// Returns the path of the default store. Creates the folder if it is that of this user; other users cannot read it.
pub(crate) fn path() -> Result<String, Failure> {
    let file = match system_file().filter(|file| is_accessible(file)) {
        Some(file) => file,
        None => {
            let file = user_file()?;
            if let Some(folder) = file.parent() {
                create(folder, 0o700)?;
            }
            file
        }
    };
    file.into_os_string().into_string().map_err(|_| {
        Failure::new(
            USAGE,
            "cannot use the default store: the path of the home folder is not UTF-8; name a store, such as \
             `--store sqlite:PATH`",
        )
    })
}

/// Returns the path of the store of the system, whether it exists or not.
fn system_file() -> Option<PathBuf> {
    let path = std::env::var_os(SYSTEM_VARIABLE).unwrap_or_else(|| SYSTEM_FILE.into());
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

fn is_accessible(file: &Path) -> bool {
    access(file, AccessFlags::R_OK | AccessFlags::W_OK).is_ok()
}

/// Returns the path of this user's own store.
fn user_file() -> Result<PathBuf, Failure> {
    let set = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let data = set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(data_folder(Path::new(&set("HOME")?))))
        // As in a cron job or a unit without HOME.
        .or_else(|| Some(data_folder(&User::from_uid(Uid::current()).ok()??.dir)));
    let data = data.ok_or_else(|| {
        Failure::new(
            USAGE,
            "cannot find the default store: HOME is not set, and this user has no home folder; name a store, such as \
             `--store sqlite:PATH`",
        )
    })?;
    Ok(data.join(FILE))
}

/// Creates the file of the system's store, which the users of a group share. Returns its path.
pub(crate) fn create_system_file(group: &str) -> Result<PathBuf, Failure> {
    let Some(file) = system_file() else {
        return Err(Failure::new(
            USAGE,
            format!("cannot create the store of the system: {SYSTEM_VARIABLE} is empty"),
        ));
    };
    let denied = |what: String| Failure::from(leasehold::Error::Denied(what));
    let id = group_id(group).ok_or_else(|| {
        denied(format!(
            "cannot create {}: the group `{group}` does not exist; create it with `groupadd --system {group}`, or name \
             another one with `--group`",
            file.display()
        ))
    })?;
    set_up_system_file(&file, id).map_err(|error| {
        denied(format!(
            "cannot create {}: {error}; run `sudo leasehold init --system`",
            file.display()
        ))
    })?;
    Ok(file)
}

fn group_id(group: &str) -> Option<Gid> {
    match group.parse() {
        Ok(id) => Some(Gid::from_raw(id)),
        Err(_) => Group::from_name(group).ok()?.map(|group| group.gid),
    }
}

/// Creates a file that a group can write to, or lets the group write to an existing one.
fn set_up_system_file(file: &Path, group: Gid) -> io::Result<()> {
    let group = Some(group.as_raw());
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).create(folder)?;
        chown(folder, None, group)?;
        // Files that SQLite creates beside the store belong to the group too. A member cannot replace a file of another user.
        // Other users see that the store exists.
        std::fs::set_permissions(folder, Permissions::from_mode(0o3771))?;
    }
    for (suffix, is_created) in [("", true), ("-wal", false), ("-shm", false)] {
        let mut path = file.to_owned().into_os_string();
        path.push(suffix);
        // Not through a link, which a member of the group may have put there.
        let opened = OpenOptions::new()
            .append(true)
            .create(is_created)
            .mode(0o660)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path);
        match opened {
            Ok(file) => {
                fchown(&file, None, group)?;
                file.set_permissions(Permissions::from_mode(0o660))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn data_folder(home: &Path) -> PathBuf {
    home.join(".local/share")
}

fn create(folder: &Path, mode: u32) -> Result<(), Failure> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(folder);
    created.map_err(|error| {
        let folder = folder.display();
        Failure::from(leasehold::Error::Denied(format!(
            "cannot create the folder {folder}: {error}; name a store, such as `--store sqlite:PATH`"
        )))
    })
}

/// Returns a warning if this user does not share the default store with another one.
///
/// Without a store of the system, only root can read the folders of other users, so in practice this warns root: in a cron
/// job, or under `sudo`.
pub(crate) fn warning(path: &str) -> Option<String> {
    if let Some(system) = system_file().filter(|system| system.exists()) {
        let system = system.display();
        return (system.to_string() != path).then(|| {
            format!(
                "the default store {path} is not the store of the system, {system}, which this user cannot write to: \
                 leases in one do not exclude holders in the other; add this user to its group, or name the same store \
                 for all with --store or LEASEHOLD_STORE"
            )
        });
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    // Looked up by name, because a directory service may know users that the file does not list.
    let invoker = std::env::var("SUDO_USER").ok();
    let invoker = invoker.and_then(|name| User::from_name(&name).ok()?);
    let invoker = invoker.map(|user| (user.name, user.dir));
    let other = other_user(Path::new(path), &users, Uid::current(), invoker)?;
    Some(format!(
        "the default store {path} is not shared with the user {other}, who has a separate one: leases in one do not \
         exclude holders in the other; run `leasehold init --system` to share one, or name the same store for both \
         with --store or LEASEHOLD_STORE"
    ))
}

/// Returns the description of the default store for people.
pub(crate) fn description(path: &str) -> &'static str {
    match system_file() {
        Some(system) if Path::new(path) == system => "the default store of this system",
        _ => "the default store of this user; other users have their own",
    }
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
