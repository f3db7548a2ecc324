//! Records a requested change before and after it is made.

use std::fmt::Write as _;

use leasehold::core::{Break, Fence, HolderRef, Name, Operation, Outcome};
use leasehold::engine::Reply;
use leasehold::wire::ProblemType;
use leasehold::{Error, Result};

use super::{Audit, Line};
use crate::access::caller::Caller;

/// A requested change.
pub(crate) struct Change {
    operation: &'static str,
    /// `None`: the service chooses the name, as for a claim.
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
        let fence_of = |holder: HolderRef| match holder {
            HolderRef::Fence(fence) => Some(fence),
            HolderRef::Nonce(_) => None,
        };
        let (operation, fence) = match operation {
            Operation::Acquire(_) => ("acquire", None),
            Operation::Reserve(_) => ("reserve", None),
            Operation::Renew(renew) => ("renew", Some(renew.fence)),
            Operation::Update(update) => ("update", Some(update.fence)),
            Operation::Release(release) => ("release", fence_of(release.holder)),
            Operation::Break(Break::Own(release)) => ("break", fence_of(release.holder)),
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

    fn with_name(&self, name: &Name) -> Self {
        Self::new(self.operation, Some(name))
    }
}

/// The result of a change, as it is recorded.
struct ChangeResult {
    outcome: &'static str,
    fence: Option<Fence>,
    /// Whether something was changed, or may have been.
    is_change: bool,
}

impl ChangeResult {
    fn of(change: &Change, result: Result<&Outcome, &Error>) -> Self {
        let (outcome, is_change) = match result {
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
                (ProblemType::from(error).as_str(), is_change)
            }
        };
        let fence = match result {
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

/// A recorded request whose outcome is still to be recorded. Empty if there is no audit log.
///
/// If it is dropped without an outcome, because its caller has left, it records `abandoned`.
#[must_use = "its outcome has to be recorded"]
pub(crate) struct Entry(Option<Box<OpenEntry>>);

struct OpenEntry {
    audit: Audit,
    caller: Caller,
    /// The id in all lines of the request.
    request: String,
    changes: Vec<Change>,
}

impl Entry {
    /// The entry of a service without an audit log.
    pub(crate) const NONE: Self = Self(None);

    /// Records changes before they are made. If it fails, they must not be made.
    pub(super) fn begin(audit: &Audit, caller: &Caller, changes: Vec<Change>) -> Result<Self> {
        let mut request = String::new();
        let _ = write!(request, "{:016x}", audit.random());
        let open = OpenEntry {
            audit: audit.clone(),
            caller: caller.clone(),
            request,
            changes,
        };
        let requested = open.changes.iter().map(|change| {
            let result = ChangeResult {
                outcome: "requested",
                fence: change.fence,
                is_change: false,
            };
            open.line(change, &result)
        });
        if open.audit.write(requested).is_err() && open.audit.refuses() {
            return Err(Error::Unavailable(
                "nothing was changed, because the audit log cannot be written: retry later".into(),
            ));
        }
        Ok(Self(Some(Box::new(open))))
    }

    /// Records the outcome of each change. If it fails, the caller must not get an answer that confirms them.
    pub(crate) fn end<'o>(
        self,
        outcomes: impl IntoIterator<Item = Result<&'o Outcome, &'o Error>>,
    ) -> Result<()> {
        self.close(|open| {
            let changes = open.changes.iter().zip(outcomes);
            let results =
                changes.map(|(change, result)| (change, ChangeResult::of(change, result)));
            open.record(results.collect())
        })
    }

    /// Records the grants of a request for several leases. None granted: records that nothing was changed.
    pub(crate) fn end_granted(self, granted: &[(Name, Reply)]) -> Result<()> {
        self.close(|open| {
            let Some(requested) = open.changes.first() else {
                return Ok(());
            };
            if granted.is_empty() {
                let result = ChangeResult {
                    outcome: "unchanged",
                    fence: None,
                    is_change: false,
                };
                return open.record(vec![(requested, result)]);
            }
            let names = granted.iter().map(|(name, _)| name);
            let changes: Vec<_> = names.map(|name| requested.with_name(name)).collect();
            let outcomes = granted.iter().map(|(_, reply)| Ok(reply.outcome()));
            let results = changes.iter().zip(outcomes);
            let results =
                results.map(|(change, result)| (change, ChangeResult::of(change, result)));
            open.record(results.collect())
        })
    }

    /// Records the same error for all changes.
    pub(crate) fn fail(self, error: &Error) -> Result<()> {
        self.close(|open| {
            let changes = open.changes.iter();
            let results = changes.map(|change| (change, ChangeResult::of(change, Err(error))));
            open.record(results.collect())
        })
    }

    fn close(mut self, end: impl FnOnce(&OpenEntry) -> Result<()>) -> Result<()> {
        self.0.take().map_or(Ok(()), |open| end(&open))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            let abandoned = open.changes.iter().map(|change| {
                let result = ChangeResult {
                    outcome: "abandoned",
                    fence: change.fence,
                    is_change: false,
                };
                (change, result)
            });
            let _ = open.record(abandoned.collect());
        }
    }
}

impl OpenEntry {
    fn record(&self, results: Vec<(&Change, ChangeResult)>) -> Result<()> {
        let lines = results.iter();
        let lines = lines.map(|(change, result)| self.line(change, result));
        let is_recorded = self.audit.write(lines).is_ok();
        let is_changed = results.iter().any(|(_, result)| result.is_change);
        if is_recorded || !is_changed || !self.audit.refuses() {
            return Ok(());
        }
        Err(Error::Indeterminate(
            "the change may have been made, but its outcome could not be recorded in the audit log: check before you retry"
                .into(),
        ))
    }

    fn line<'a>(&'a self, change: &'a Change, result: &ChangeResult) -> Line<'a> {
        Line {
            request: Some(&self.request),
            fence: result.fence,
            ..Line::about(
                &self.caller,
                change.operation,
                change.name.as_ref(),
                result.outcome,
            )
        }
    }
}
