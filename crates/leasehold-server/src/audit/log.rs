//! Appends whole lines to a file, and rotates it when it is full.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// When a file is rotated, and how many old ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    pub(super) max_bytes: u64,
    pub(super) keep: u32,
}

/// A file of lines.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Whether the file ends with an incomplete line, which the next write has to end first.
    is_torn: bool,
    rotation: Option<Rotation>,
    /// Whether the last rotation failed: only the first failure is logged.
    is_stuck: bool,
}

impl Log {
    /// Opens the file, or creates one that only its owner can read.
    pub(super) fn open(path: &Path, rotation: Option<Rotation>) -> io::Result<Self> {
        let file = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            is_torn: has_incomplete_line(path, &file).unwrap_or(false),
            file,
            rotation,
            is_stuck: false,
        })
    }

    /// Whether the file is still the one at its path.
    pub(super) fn is_in_place(&self) -> bool {
        let (open, at_path) = (self.file.metadata(), fs::metadata(&self.path));
        open.ok()
            .zip(at_path.ok())
            .is_some_and(|(open, other)| (open.dev(), open.ino()) == (other.dev(), other.ino()))
    }

    /// Appends whole lines, all of them or none.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_full(lines.len())? {
            self.rotate();
        }
        if self.is_torn {
            self.write(b"\n")?;
            self.is_torn = false;
        }
        self.write(lines)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match self.file.write(&bytes[written..]) {
                Ok(0) => return self.roll_back(written, ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.roll_back(written, error),
            }
        }
        Ok(())
    }

    /// Removes the bytes that a failed write has written. If that fails too, the next write will end their line.
    fn roll_back(&mut self, written: usize, error: io::Error) -> io::Result<()> {
        if written > 0 && self.remove_last(written as u64).is_err() {
            self.is_torn = true;
        }
        Err(error)
    }

    fn remove_last(&mut self, bytes: u64) -> io::Result<()> {
        let end = self.file.stream_position()?;
        // Do not remove a line that another process has appended to the same file.
        if self.file.metadata()?.len() != end {
            return Err(ErrorKind::ResourceBusy.into());
        }
        self.file.set_len(end - bytes)
    }

    fn is_full(&self, more: usize) -> io::Result<bool> {
        let Some(rotation) = &self.rotation else {
            return Ok(false);
        };
        let metadata = self.file.metadata()?;
        let bytes = metadata.len();
        Ok(metadata.is_file() && bytes > 0 && bytes + more as u64 > rotation.max_bytes)
    }

    /// Renames the file to `PATH.1`, `PATH.1` to `PATH.2` and so on, and creates a new one. If that fails, it keeps the
    /// present file, so that no line is lost.
    fn rotate(&mut self) {
        let rotated = self.shift().and_then(|()| open(&self.path));
        match rotated {
            Ok(file) => {
                self.file = file;
                self.is_torn = false;
                self.is_stuck = false;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_stuck, true) {
                    let path = self.path.display();
                    tracing::error!(%error, "cannot rotate the audit log {path}: it continues to grow");
                }
            }
        }
    }

    fn shift(&self) -> io::Result<()> {
        let keep = self.rotation.map_or(1, |rotation| rotation.keep.max(1));
        // Only up to the first gap, so that repeated failures do not push old files out.
        let free = (1..keep).find(|number| !self.old(*number).exists());
        for number in (1..free.unwrap_or(keep)).rev() {
            fs::rename(self.old(number), self.old(number + 1))?;
        }
        fs::rename(&self.path, self.old(1))
    }

    fn old(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true).mode(0o600).open(path)
}

fn has_incomplete_line(path: &Path, file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(false);
    }
    let mut reader = File::open(path)?;
    reader.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    reader.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn incomplete_line_does_not_merge_with_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, "{\"whole\":1}\n{\"cut\":").unwrap();
        let mut log = Log::open(&path, None).unwrap();
        log.append(b"{\"next\":1}\n").unwrap();
        log.append(b"{\"last\":1}\n").unwrap();
        let expected = "{\"whole\":1}\n{\"cut\":\n{\"next\":1}\n{\"last\":1}\n";
        assert_eq!(text(&path), expected);
    }

    #[test]
    fn failed_write_is_rolled_back_unless_another_process_has_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut log = Log::open(&path, None).unwrap();
        let full = || ErrorKind::StorageFull.into();
        log.append(b"first\n").unwrap();
        log.file.write_all(b"cut o").unwrap();
        assert!(log.roll_back(5, full()).is_err());
        log.append(b"second\n").unwrap();
        assert_eq!(text(&path), "first\nsecond\n");

        log.file.write_all(b"cut o").unwrap();
        let mut other = Log::open(&path, None).unwrap();
        other.append(b"other\n").unwrap();
        assert!(log.roll_back(5, full()).is_err());
        log.append(b"third\n").unwrap();
        let expected = "first\nsecond\ncut o\nother\n\nthird\n";
        assert_eq!(text(&path), expected);
    }

    #[test]
    fn full_file_is_rotated_and_the_oldest_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let rotation = Rotation {
            max_bytes: 10,
            keep: 2,
        };
        let mut log = Log::open(&path, Some(rotation)).unwrap();
        for number in 0..8 {
            let line = format!("line{number}\n");
            log.append(line.as_bytes()).unwrap();
            assert_eq!(text(&path), line);
            assert!(log.is_in_place());
        }
        assert_eq!(text(&log.old(1)), "line6\n");
        assert_eq!(text(&log.old(2)), "line5\n");
        assert!(!log.old(3).exists());
    }

    #[test]
    fn failed_rotation_loses_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let rotation = Rotation {
            max_bytes: 5,
            keep: 3,
        };
        let mut log = Log::open(&path, Some(rotation)).unwrap();
        log.append(b"one\n").unwrap();
        log.append(b"two\n").unwrap();
        // A folder that is not empty cannot be replaced by a file.
        let obstacle = log.old(1);
        fs::rename(&obstacle, log.old(2)).unwrap();
        fs::create_dir_all(log.old(3).join("full")).unwrap();
        fs::create_dir_all(obstacle.join("full")).unwrap();
        for _ in 0..3 {
            log.append(b"more\n").unwrap();
        }
        assert_eq!(text(&path), "two\nmore\nmore\nmore\n");
        assert_eq!(text(&log.old(2)), "one\n");
    }
}
