//! Secrets in options: kept out of the process list, and not passed on to child commands.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use leasehold::store::key_file;

use crate::exit::{Failure, USAGE};

/// What a child command receives in place of a secret. A nested `leasehold` refuses it; without it, it would silently use
/// the default store.
pub(crate) const WITHHELD: &str = "withheld:";

/// The value of an option that may contain a secret.
pub(crate) struct Setting {
    value: String,
    /// The absolute path of the file that the value was read from.
    file: Option<PathBuf>,
}

impl Setting {
    /// Reads an option: the value itself, or the content of the file for `@FILE`.
    pub(crate) fn read(option: &str, given: &str) -> Result<Self, Failure> {
        let Some(path) = given.strip_prefix('@') else {
            return Ok(Self::from(given.to_owned()));
        };
        let failed = |why: &str| {
            Failure::new(
                USAGE,
                format!(
                    "cannot read {option} from `{path}`: {why}; give `@FILE`, a file with one line"
                ),
            )
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error.to_string()))?;
        let value = text.trim();
        if value.is_empty() || value.contains('\n') {
            return Err(failed("the file does not have exactly one line"));
        }
        // A pipe, such as `@<(command)`, cannot be read a second time by a child command.
        let file = Path::new(path).is_file();
        let file = file.then(|| std::path::absolute(path).ok()).flatten();
        Ok(Self {
            value: value.to_owned(),
            file,
        })
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// Returns the setting with its value converted.
    pub(crate) fn map(self, convert: impl FnOnce(&str) -> String) -> Self {
        let value = convert(&self.value);
        Self { value, ..self }
    }

    /// Returns the form that a child command may receive: a secret only as the path of its file.
    pub(crate) fn for_command(&self, is_secret: bool) -> String {
        let file = self.file.as_deref().and_then(Path::to_str);
        match (is_secret, file) {
            (false, _) => self.value.clone(),
            (true, Some(file)) => format!("@{file}"),
            (true, None) => WITHHELD.to_owned(),
        }
    }

    /// Returns a warning for each file that other users can access: the file of the value, and the key that its URL names.
    pub(crate) fn exposures(&self) -> impl Iterator<Item = String> {
        let key = key_file(&self.value).map(PathBuf::from);
        let files = self.file.iter().cloned().chain(key);
        files.filter_map(|file| exposure(&file))
    }
}

impl From<String> for Setting {
    fn from(value: String) -> Self {
        Self { value, file: None }
    }
}

/// Returns a warning if users other than the owner and group of a file can read or change it.
pub(crate) fn exposure(file: &Path) -> Option<String> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode() & 0o777;
    let access = match mode & 0o006 {
        0 => return None,
        0o004 => "read",
        _ => "changed",
    };
    let file = file.display();
    Some(format!(
        "{file} can be {access} by every user of this machine (mode {mode:03o}): run `chmod o= {file}`"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn value_is_read_from_its_file_and_passed_on_as_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let given = format!("@{}", path.display());
        fs::write(&path, " postgres://app:s3cret@db1/app\n").unwrap();
        let setting = Setting::read("--store", &given).unwrap();
        assert_eq!(setting.value(), "postgres://app:s3cret@db1/app");
        assert_eq!(setting.for_command(true), given);
        assert_eq!(setting.for_command(false), setting.value());

        let setting = Setting::read("--store", "postgres://app:s3cret@db1/app").unwrap();
        assert_eq!(setting.for_command(true), WITHHELD);
        assert_eq!(setting.for_command(false), setting.value());

        for invalid in ["", "a\nb\n"] {
            fs::write(&path, invalid).unwrap();
            let failure = Setting::read("--store", &given).err().unwrap();
            assert!(failure.message.contains("one line"), "{failure:?}");
        }
    }

    #[test]
    fn only_files_that_other_users_can_access_are_exposed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, word) in [
            (0o600, None),
            (0o640, None),
            (0o644, Some("read")),
            (0o602, Some("changed")),
            (0o666, Some("changed")),
        ] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            let warning = exposure(file.path());
            match word {
                Some(word) => assert!(warning.is_some_and(|text| text.contains(word)), "{mode:o}"),
                None => assert_eq!(warning, None, "{mode:o}"),
            }
        }
    }
}
