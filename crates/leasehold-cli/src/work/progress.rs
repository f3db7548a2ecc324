//! The progress of `work`: a line per item on a terminal, only failures elsewhere, and a summary.

use std::io::IsTerminal as _;

use serde::Serialize;

use super::Work;
use super::item::{FinishedItem, ItemOutcome};
use crate::output;

/// How many items ended in which way.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) lost: u64,
    pub(super) given_back: u64,
}

impl Summary {
    pub(super) fn count(&mut self, outcome: &ItemOutcome) {
        *match outcome {
            ItemOutcome::Done => &mut self.done,
            ItemOutcome::Failed(_) => &mut self.failed,
            ItemOutcome::Lost(_) | ItemOutcome::Survivors(_) => &mut self.lost,
            ItemOutcome::GivenBack | ItemOutcome::CannotRun(_) | ItemOutcome::NotStarted(_) => {
                &mut self.given_back
            }
        } += 1;
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} done, {} failed", self.done, self.failed)?;
        for (count, label) in [(self.lost, "lost"), (self.given_back, "given back")] {
            if count > 0 {
                write!(f, ", {count} {label}")?;
            }
        }
        Ok(())
    }
}

/// Reports items and the summary to standard error.
pub(super) struct Progress {
    is_quiet: bool,
    is_terminal: bool,
    next: String,
    failed: String,
}

impl Progress {
    pub(super) fn new(work: &Work) -> Self {
        Self {
            is_quiet: work.quiet,
            is_terminal: std::io::stderr().is_terminal(),
            next: work.next.clone(),
            failed: work.failed.clone(),
        }
    }

    /// Reports an item that was processed.
    pub(super) fn report_item(&self, finished: &FinishedItem, summary: &Summary, running: usize) {
        let is_failure = !matches!(finished.outcome, ItemOutcome::Done);
        if self.is_quiet || !(self.is_terminal || is_failure) {
            return;
        }
        let (name, took) = (&finished.name, output::span(finished.took));
        let end = match &finished.outcome {
            ItemOutcome::Done => format!("{name} → {} in {took}", self.next),
            ItemOutcome::Failed(reason) => format!("{name} → {} in {took}: {reason}", self.failed),
            ItemOutcome::Lost(reason) => format!("lost {name} after {took}: {reason}"),
            ItemOutcome::Survivors(processes) => {
                format!("lost {name} after {took}: these processes cannot be killed: {processes}")
            }
            ItemOutcome::GivenBack | ItemOutcome::CannotRun(_) | ItemOutcome::NotStarted(_) => {
                format!("gave back {name} after {took}")
            }
        };
        if self.is_terminal {
            output::note(&format!("{end} ({summary}, {running} running)"));
        } else {
            output::note(&end);
        }
    }

    pub(super) fn report_summary(&self, summary: &Summary) {
        if !self.is_quiet {
            output::note(&summary.to_string());
        }
    }
}
