//! Clocks that are off, by libfaketime: of a server while it runs, or of any process from its start.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::Missing;
use crate::recipe::command_line;

/// The library that lies about the time.
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

/// Whether it is there.
pub(crate) fn installed(scheme: &'static str) -> Result<(), Missing> {
    library(scheme).map(drop)
}

/// The environment of a process whose wall clock is off by so much (`+3600s`), while its other clocks are true.
pub fn wall_clock_off_by(off: &str) -> Result<Vec<(&'static str, String)>, Missing> {
    let mut environment = vec![
        ("LD_PRELOAD", library("sqlite")?),
        ("FAKETIME", off.to_owned()),
    ];
    environment.extend(ONLY_THE_WALL_CLOCK.map(|(name, value)| (name, value.to_owned())));
    Ok(environment)
}

const ONLY_THE_WALL_CLOCK: [(&str, &str); 2] = [
    // Timeouts go on as before.
    ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    // Named after the process and left behind by a kill, it would be in the way of a later one with the same number.
    ("FAKETIME_DISABLE_SHM", "1"),
];

fn clock_file(folder: &Path) -> PathBuf {
    folder.join("clock")
}

/// Tells libfaketime how many seconds the server's clock was off at its start, and how fast it runs.
pub(crate) fn set(folder: &Path, seconds: f64, rate: f64) -> io::Result<()> {
    // Renamed into place: the server must never read half of it.
    let draft = folder.join("clock.new");
    let rate = match rate {
        1.0 => String::new(),
        rate => format!(" x{rate}"),
    };
    std::fs::write(&draft, format!("{seconds:+}{rate}"))?;
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o644))?;
    std::fs::rename(&draft, clock_file(folder))
}

/// What to put before a command to give it the clock that is set there.
pub(crate) fn before_command(
    scheme: &'static str,
    folder: &Path,
) -> Result<Vec<OsString>, Missing> {
    let mut words = command_line![
        "env",
        // The C library's own malloc goes first: jemalloc, which Redis brings, asks for the time too early.
        format!("LD_PRELOAD={} libc.so.6", library(scheme)?),
        format!("FAKETIME_TIMESTAMP_FILE={}", clock_file(folder).display()),
        "FAKETIME_NO_CACHE=1",
    ];
    let rest = ONLY_THE_WALL_CLOCK.map(|(name, value)| format!("{name}={value}").into());
    words.extend(rest);
    Ok(words)
}
