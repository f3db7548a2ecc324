//! Manipulated clocks, with libfaketime: of a server while it runs, or of any process from its start.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::Missing;
use crate::recipe::command_line;

/// Finds the library that manipulates the time.
fn library(scheme: &'static str) -> Result<String, Missing> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten();
    folders
        .flatten()
        .map(|folder| folder.path().join("faketime/libfaketime.so.1"))
        .find(|library| library.exists())
        .map(|library| library.display().to_string())
        .ok_or_else(|| Missing::Program {
            scheme,
            what: "libfaketime".to_owned(),
        })
}

/// Checks that the library is installed.
pub(crate) fn installed(scheme: &'static str) -> Result<(), Missing> {
    library(scheme).map(drop)
}

/// Returns the environment of a process whose wall clock is off by this much (`+3600s`). Its other clocks are
/// unchanged.
pub fn wall_clock_off_by(off: &str) -> Result<Vec<(&'static str, String)>, Missing> {
    let mut environment = vec![
        ("LD_PRELOAD", library("sqlite")?),
        ("FAKETIME", off.to_owned()),
    ];
    environment.extend(ONLY_THE_WALL_CLOCK.map(|(name, value)| (name, value.to_owned())));
    Ok(environment)
}

const ONLY_THE_WALL_CLOCK: [(&str, &str); 2] = [
    // Timeouts are unaffected.
    ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    // The shared memory is named after the process id, so one left behind by a kill would affect a later process.
    ("FAKETIME_DISABLE_SHM", "1"),
];

fn clock_file(folder: &Path) -> PathBuf {
    folder.join("clock")
}

/// Sets how many seconds the server's clock is off at its start, and how fast it runs.
pub(crate) fn set(folder: &Path, seconds: f64, rate: f64) -> io::Result<()> {
    // Renamed into place, so that the server never reads a partial file.
    let draft = folder.join("clock.new");
    let rate = match rate {
        1.0 => String::new(),
        rate => format!(" x{rate}"),
    };
    std::fs::write(&draft, format!("{seconds:+}{rate}"))?;
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o644))?;
    std::fs::rename(&draft, clock_file(folder))
}

/// Returns the words to put before a command so that it uses the clock in this folder.
pub(crate) fn before_command(
    scheme: &'static str,
    folder: &Path,
) -> Result<Vec<OsString>, Missing> {
    let mut words = command_line![
        "env",
        // The C library's malloc must come first: jemalloc, which Redis includes, reads the time too early.
        format!("LD_PRELOAD={} libc.so.6", library(scheme)?),
        format!("FAKETIME_TIMESTAMP_FILE={}", clock_file(folder).display()),
        "FAKETIME_NO_CACHE=1",
    ];
    let rest = ONLY_THE_WALL_CLOCK.map(|(name, value)| format!("{name}={value}").into());
    words.extend(rest);
    Ok(words)
}
