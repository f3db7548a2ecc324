//! What people see of the work: a line for each item on a terminal, only the trouble in a log, and the sum.

use std::io::IsTerminal as _;

use serde::Serialize;

use super::Work;
use super::item::{Fate, Finished};
use crate::output;

/// How many items came to which end.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tally {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) lost: u64,
    pub(super) given_back: u64,
}

impl Tally {
    pub(super) fn count(&mut self, fate: &Fate) {
        *match fate {
            Fate::Done => &mut self.done,
            Fate::Failed(_) => &mut self.failed,
            Fate::Lost(_) | Fate::Outlived(_) => &mut self.lost,
            Fate::GivenBack | Fate::CannotRun(_) | Fate::NotStarted(_) => &mut self.given_back,
        } += 1;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} done, {} failed", self.done, self.failed)?;
        for (count, how) in [(self.lost, "lost"), (self.given_back, "given back")] {
            if count > 0 {
                write!(f, ", {count} {how}")?;
            }
        }
        Ok(())
    }
}

/// Says how it goes.
pub(super) struct Progress {
    quiet: bool,
    terminal: bool,
    next: String,
    failed: String,
}

impl Progress {
    pub(super) fn new(work: &Work) -> Self {
        Self {
            quiet: work.quiet,
            terminal: std::io::stderr().is_terminal(),
            next: work.next.clone(),
            failed: work.failed.clone(),
        }
    }

    /// One item has come to its end, and so many are being worked on.
    pub(super) fn item(&self, finished: &Finished, tally: &Tally, running: usize) {
        let is_trouble = !matches!(finished.fate, Fate::Done);
        if self.quiet || !(self.terminal || is_trouble) {
            return;
        }
        let (name, took) = (&finished.name, output::span(finished.took));
        let end = match &finished.fate {
            Fate::Done => format!("{name} → {} in {took}", self.next),
            Fate::Failed(reason) => format!("{name} → {} in {took}: {reason}", self.failed),
            Fate::Lost(reason) => format!("{name} is lost after {took}: {reason}"),
            Fate::Outlived(by) => {
                format!("{name} is lost after {took}: processes cannot be ended: {by}")
            }
            Fate::GivenBack | Fate::CannotRun(_) | Fate::NotStarted(_) => {
                format!("{name} is given back after {took}")
            }
        };
        if self.terminal {
            output::note(&format!("{end} ({tally}, {running} running)"));
        } else {
            output::note(&end);
        }
    }

    pub(super) fn sum_up(&self, tally: &Tally) {
        if !self.quiet {
            output::note(&tally.to_string());
        }
    }
}
