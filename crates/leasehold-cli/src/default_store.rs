//! The store of those who name none: a file of the user's own.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::exit::{Failure, USAGE};

/// The file in a user's data folder.
const FILE: &str = "leasehold/leases.db";

/// The path of the user's own file. Makes its folder, which other users cannot look into.
pub(crate) fn path() -> Result<String, Failure> {
    let set = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let data = set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(data_folder(Path::new(&set("HOME")?))));
    let Some(data) = data else {
        return Err(Failure::new(
            USAGE,
            "there is no home folder to keep leases in: name a store, such as `--store sqlite:PATH`",
        ));
    };
    let file = data.join(FILE);
    if let Some(folder) = file.parent() {
        make(folder)?;
    }
    file.into_os_string().into_string().map_err(|_| {
        Failure::new(
            USAGE,
            "the home folder's name is not UTF-8: name a store, such as `--store sqlite:PATH`",
        )
    })
}

fn data_folder(home: &Path) -> PathBuf {
    home.join(".local/share")
}

fn make(folder: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| {
        let folder = folder.display();
        Failure::from(leasehold::Error::Denied(format!(
            "the folder {folder} cannot be made ({error}): name a store, such as `--store sqlite:PATH`"
        )))
    })
}

/// Why commands of another user may not see the leases in this default file; `None` if nothing hints at such a user.
///
/// Only root can look into the folders of others, so in practice this warns root: in a cron job, or behind `sudo`.
pub(crate) fn warning(path: &str) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let invoker = std::env::var("SUDO_USER").ok();
    let other = other_user(path, &users, invoker.as_deref())?;
    Some(format!(
        "this store belongs to one user ({path}), and {other} has another: a lease in one keeps nobody out of the other; \
         name one store for both with --store or LEASEHOLD_STORE"
    ))
}

/// A user who has a default store of their own, or who became this user by `sudo`.
fn other_user(path: &str, users: &str, invoker: Option<&str>) -> Option<String> {
    let users = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((name, data_folder(Path::new(fields.nth(4)?)).join(FILE)))
    });
    let has_another = |(name, file): &(&str, PathBuf)| {
        file != Path::new(path) && (Some(*name) == invoker || file.exists())
    };
    users
        .filter(has_another)
        .map(|(name, _)| name.to_owned())
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_users_with_another_store_are_a_reason_to_warn() {
        let homes = tempfile::tempdir().unwrap();
        let home = |name: &str| homes.path().join(name);
        let store = |name: &str| data_folder(&home(name)).join(FILE);
        let line = |name| format!("{name}:x:1:1::{}:/bin/sh", home(name).display());
        let users = ["root", "daemon", "alice", "bob"].map(line).join("\n");
        let own = store("root").display().to_string();
        std::fs::create_dir_all(store("root").parent().unwrap()).unwrap();
        std::fs::write(store("root"), "").unwrap();

        assert_eq!(other_user(&own, &users, None), None);
        assert_eq!(other_user(&own, &users, Some("root")), None);
        let invoked = other_user(&own, &users, Some("bob"));
        assert_eq!(invoked.as_deref(), Some("bob"));

        std::fs::create_dir_all(store("alice").parent().unwrap()).unwrap();
        std::fs::write(store("alice"), "").unwrap();
        let found = other_user(&own, &users, None);
        assert_eq!(found.as_deref(), Some("alice"));
    }
}
