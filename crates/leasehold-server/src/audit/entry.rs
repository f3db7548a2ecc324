//! A request for changes, recorded before and after it is carried out.

use std::fmt::Write as _;

use leasehold::core::{Break, Fence, HolderRef, Name, Operation, Outcome};
use leasehold::engine::Reply;
use leasehold::wire::Trouble;
use leasehold::{Error, Result};

use super::{Audit, Line};
use crate::access::caller::Caller;

/// A change that is asked for.
pub(crate) struct Change {
    operation: &'static str,
    /// `None`: the store says which.
    name: Option<Name>,
    fence: Option<Fence>,
}

impl Change {
    pub(crate) fn new(operation: &'static str, name: Option<&Name>) -> Self {
        Self {
            operation,
            name: name.cloned(),
            fence: None,
        }
    }

    pub(crate) fn of(name: &Name, operation: &Operation) -> Self {
        let by = |who: HolderRef| match who {
            HolderRef::Fence(fence) => Some(fence),
            HolderRef::Nonce(_) => None,
        };
        let (operation, fence) = match operation {
            Operation::Acquire(_) => ("acquire", None),
            Operation::Reserve(_) => ("reserve", None),
            Operation::Renew(renew) => ("renew", Some(renew.fence)),
            Operation::Update(update) => ("update", Some(update.fence)),
            Operation::Release(release) => ("release", by(release.holder)),
            Operation::Break(Break::Own(release)) => ("break", by(release.holder)),
            Operation::Break(Break::Force { fence, .. }) => ("break", *fence),
            Operation::Put(_) => ("put", None),
            Operation::Remove => ("remove", None),
            Operation::Purge { .. } => ("purge", None),
        };
        Self {
            operation,
            name: Some(name.clone()),
            fence,
        }
    }

    fn with(&self, name: &Name) -> Self {
        Self::new(self.operation, Some(name))
    }
}

/// What became of a change.
struct Ended {
    outcome: &'static str,
    fence: Option<Fence>,
    /// Whether something was changed, or may have been.
    is_change: bool,
}

impl Ended {
    fn of(change: &Change, came: Result<&Outcome, &Error>) -> Self {
        let (outcome, is_change) = match came {
            Ok(Outcome::Granted(_)) => ("granted", true),
            Ok(Outcome::Renewed(_)) => ("renewed", true),
            Ok(Outcome::Completed) => ("completed", true),
            Ok(Outcome::Released) => ("released", true),
            Ok(Outcome::Broken { .. }) => ("broken", true),
            Ok(Outcome::Put) => ("put", true),
            Ok(Outcome::Removed) => ("removed", true),
            Ok(Outcome::Held(_)) => ("held", false),
            Ok(Outcome::Fenced) => ("fenced", false),
            Ok(Outcome::Expired) => ("expired", false),
            Ok(Outcome::Denied) => ("denied", false),
            Ok(Outcome::NotHeld) => ("not-held", false),
            Ok(_) => ("unchanged", false),
            Err(error) => {
                let is_change = matches!(error, Error::Indeterminate(_));
                (Trouble::from(error).as_str(), is_change)
            }
        };
        let fence = match came {
            Ok(Outcome::Granted(grant)) => Some(grant.fence),
            _ => change.fence,
        };
        Self {
            outcome,
            fence,
            is_change,
        }
    }
}

/// A request that the log has, and whose outcome it is to get; nothing where there is no log.
///
/// Dropped without an outcome, as when its caller has left, it records `abandoned`.
#[must_use = "its outcome has to be recorded"]
pub(crate) struct Entry(Option<Box<Open>>);

struct Open {
    audit: Audit,
    caller: Caller,
    /// What its lines have in common.
    request: String,
    changes: Vec<Change>,
}

impl Entry {
    /// No log wants it.
    pub(crate) const NONE: Self = Self(None);

    /// Records changes before they are carried out. `Err`: they must not be.
    pub(super) fn begin(audit: &Audit, caller: &Caller, changes: Vec<Change>) -> Result<Self> {
        let mut request = String::new();
        let _ = write!(request, "{:016x}", audit.random());
        let open = Open {
            audit: audit.clone(),
            caller: caller.clone(),
            request,
            changes,
        };
        let requested = open.changes.iter().map(|change| {
            let ended = Ended {
                outcome: "requested",
                fence: change.fence,
                is_change: false,
            };
            open.line(change, &ended)
        });
        if open.audit.write(requested).is_err() && open.audit.refuses() {
            return Err(Error::Unavailable(
                "nothing was done, as the audit log cannot be written: retry later".into(),
            ));
        }
        Ok(Self(Some(Box::new(open))))
    }

    /// Records an outcome for each of the changes. `Err`: the caller must not be told that they were made.
    pub(crate) fn end<'o>(
        self,
        outcomes: impl IntoIterator<Item = Result<&'o Outcome, &'o Error>>,
    ) -> Result<()> {
        self.close(|open| {
            let changes = open.changes.iter().zip(outcomes);
            let ended = changes.map(|(change, came)| (change, Ended::of(change, came)));
            open.record(ended.collect())
        })
    }

    /// Records what was granted together; nothing else of what was asked for was.
    pub(crate) fn end_granted(self, granted: &[(Name, Reply)]) -> Result<()> {
        self.close(|open| {
            let Some(asked) = open.changes.first() else {
                return Ok(());
            };
            if granted.is_empty() {
                let ended = Ended {
                    outcome: "unchanged",
                    fence: None,
                    is_change: false,
                };
                return open.record(vec![(asked, ended)]);
            }
            let changes: Vec<_> = granted.iter().map(|(name, _)| asked.with(name)).collect();
            let outcomes = granted.iter().map(|(_, reply)| Ok(reply.outcome()));
            let ended = changes.iter().zip(outcomes);
            let ended = ended.map(|(change, came)| (change, Ended::of(change, came)));
            open.record(ended.collect())
        })
    }

    /// Records that all of the changes failed alike.
    pub(crate) fn fail(self, error: &Error) -> Result<()> {
        self.close(|open| {
            let changes = open.changes.iter();
            let ended = changes.map(|change| (change, Ended::of(change, Err(error))));
            open.record(ended.collect())
        })
    }

    fn close(mut self, end: impl FnOnce(&Open) -> Result<()>) -> Result<()> {
        self.0.take().map_or(Ok(()), |open| end(&open))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            let abandoned = open.changes.iter().map(|change| {
                let ended = Ended {
                    outcome: "abandoned",
                    fence: change.fence,
                    is_change: false,
                };
                (change, ended)
            });
            let _ = open.record(abandoned.collect());
        }
    }
}

impl Open {
    fn record(&self, ended: Vec<(&Change, Ended)>) -> Result<()> {
        let lines = ended.iter().map(|(change, ended)| self.line(change, ended));
        let is_recorded = self.audit.write(lines).is_ok();
        let is_changed = ended.iter().any(|(_, ended)| ended.is_change);
        if is_recorded || !is_changed || !self.audit.refuses() {
            return Ok(());
        }
        Err(Error::Indeterminate(
            "it may have been done, but its outcome could not be recorded in the audit log: look before you retry"
                .into(),
        ))
    }

    fn line<'a>(&'a self, change: &'a Change, ended: &Ended) -> Line<'a> {
        Line {
            request: Some(&self.request),
            fence: ended.fence,
            ..Line::about(
                &self.caller,
                change.operation,
                change.name.as_ref(),
                ended.outcome,
            )
        }
    }
}
