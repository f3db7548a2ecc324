//! Transparent huge pages: disabled for this program, whose memory they would double, but not for its commands.

use std::sync::OnceLock;

use nix::sys::prctl::{get_thp_disable, set_thp_disable};

/// Whether they were disabled when this program started.
static WERE_DISABLED: OnceLock<bool> = OnceLock::new();

/// Disables them for this process and, until [`restore`] is called there, for the processes that it starts.
pub(crate) fn disable() {
    WERE_DISABLED.get_or_init(|| {
        // Without the system call, as in some sandboxes, nothing changes.
        let were_disabled = get_thp_disable().unwrap_or(true);
        if !were_disabled {
            let _ = set_thp_disable(true);
        }
        were_disabled
    });
}

/// Returns the argument that tells a new process whether they were disabled.
pub(super) fn argument() -> &'static str {
    match WERE_DISABLED.get() {
        Some(false) => ENABLED,
        _ => UNCHANGED,
    }
}

/// Restores what the [`argument`] says.
pub(super) fn restore(argument: &str) {
    if argument == ENABLED {
        let _ = set_thp_disable(false);
    }
}

const ENABLED: &str = "thp";
const UNCHANGED: &str = "-";
