//! Who changed what, and who was refused: a file with a JSON object a line.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::core::{Break, Fence, Name, Operation, Outcome, Who};
use leasehold::engine::Reply;
use leasehold::wire::Trouble;
use leasehold::{Error, Result};
use serde::Serialize;

use crate::access::caller::Caller;
use crate::follow::{self, Followed};
use crate::metrics::Asked;
use crate::refused::Refused;
use crate::route::Route;

/// A log of every change, renewals included, and of every refusal of a right. Lines are written before the answer is;
/// no nonce, token or body is ever in one. A file that was moved away is made anew. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    followed: Followed,
    file: Mutex<File>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    /// Whoever it was: the principal, the id of the token or the name of the certificate, and the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<&'a str>,
    address: &'a str,
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<Fence>,
}

/// What is to be told of an operation, if it changes anything.
pub(crate) struct About {
    operation: &'static str,
    fence: Option<Fence>,
}

impl Audit {
    /// Appends to this file, which is made for its owner only if it is not there.
    pub fn open(path: &Path) -> Result<Self> {
        let file = append(path)?;
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                followed: Followed::new(vec![path.to_owned()]),
                file: Mutex::new(file),
            }),
        })
    }

    /// Makes the file anew when it was moved away, for as long as it is polled.
    pub(crate) async fn keep_open(self) {
        follow::keep_looking(move || self.look_again()).await;
    }

    fn look_again(&self) {
        if !self.inner.followed.were_replaced() {
            return;
        }
        match append(&self.inner.path) {
            Ok(file) => {
                *self
                    .inner
                    .file
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = file;
                // The file that was just made is the one to follow.
                self.inner.followed.were_replaced();
            }
            Err(error) => tracing::error!(%error, "the audit log goes on in the old file"),
        }
    }

    /// What came of an operation, if it changed anything or was refused for want of a right.
    pub(crate) fn record(
        &self,
        who: &Caller,
        about: About,
        name: &Name,
        came: Result<&Outcome, &Error>,
    ) {
        let (outcome, fence) = match came {
            Ok(outcome) => match outcome {
                Outcome::Granted(grant) => ("granted", Some(grant.fence)),
                Outcome::Renewed(_) => ("renewed", about.fence),
                Outcome::Completed => ("completed", about.fence),
                Outcome::Released => ("released", about.fence),
                Outcome::Broken { .. } => ("broken", about.fence),
                Outcome::Put => ("put", None),
                Outcome::Removed => ("removed", None),
                Outcome::Denied => ("denied", about.fence),
                _ => return,
            },
            Err(Error::Indeterminate(_)) => ("indeterminate", about.fence),
            Err(_) => return,
        };
        self.write(who, about.operation, Some(name), outcome, fence);
    }

    /// What came of renewing many; `None` where the right is missing.
    pub(crate) fn renewed(
        &self,
        who: &Caller,
        noted: Vec<(Name, About)>,
        answers: &[Option<Result<Reply>>],
    ) {
        for ((name, about), answer) in noted.into_iter().zip(answers) {
            match answer {
                Some(came) => self.record(who, about, &name, came.as_ref().map(Reply::outcome)),
                None => self.write(who, about.operation, Some(&name), "denied", about.fence),
            }
        }
    }

    /// Somebody may not do this, or is not known.
    pub(crate) fn refused(&self, who: &Caller, operation: &str, name: Option<&Name>, how: &str) {
        self.write(who, operation, name, how, None);
    }

    fn write(
        &self,
        who: &Caller,
        operation: &str,
        name: Option<&Name>,
        outcome: &str,
        fence: Option<Fence>,
    ) {
        let credential = who.credential.as_deref();
        let line = Line {
            time: jiff::Timestamp::now().to_string(),
            principal: credential.map(|known| &*known.principal),
            credential: credential.map(|known| &*known.id),
            address: &who.address,
            operation,
            kind: name.map(|name| name.kind().as_str()),
            name: name.map(Name::as_str),
            outcome,
            fence,
        };
        let mut bytes = serde_json::to_vec(&line).expect("lines have text keys and do not fail");
        bytes.push(b'\n');
        let mut file = self
            .inner
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&bytes) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}

impl About {
    pub(crate) fn new(operation: &'static str) -> Self {
        let fence = None;
        Self { operation, fence }
    }

    /// The name too.
    pub(crate) fn noted((name, operation): &(Name, Operation)) -> (Name, Self) {
        (name.clone(), Self::of(operation))
    }

    pub(crate) fn of(operation: &Operation) -> Self {
        let by = |who: Who| match who {
            Who::Fence(fence) => Some(fence),
            Who::Nonce(_) => None,
        };
        let (operation, fence) = match operation {
            Operation::Acquire(_) => ("acquire", None),
            Operation::Reserve(_) => ("reserve", None),
            Operation::Renew(renew) => ("renew", Some(renew.fence)),
            Operation::Update(update) => ("update", Some(update.fence)),
            Operation::Release(release) => ("release", by(release.who)),
            Operation::Break(Break::Own(release)) => ("break", by(release.who)),
            Operation::Break(Break::Force { fence, .. }) => ("break", *fence),
            Operation::Put(_) => ("put", None),
            Operation::Remove => ("remove", None),
            Operation::Purge { .. } => ("purge", None),
        };
        Self { operation, fence }
    }
}

/// One who sees a request, and tells if it is refused for want of a right.
pub(crate) struct Witness<'a> {
    audit: &'a Audit,
    asked: Asked,
    name: Option<Name>,
    who: Caller,
}

impl<'a> Witness<'a> {
    pub(crate) fn new(audit: &'a Audit, route: &Route, who: &Caller) -> Self {
        Self {
            audit,
            asked: Asked::from(route),
            name: route.name().cloned(),
            who: who.clone(),
        }
    }

    /// What the core has refused is written down already.
    pub(crate) fn tell(&self, refused: &Refused) {
        if let Refused::Problem(problem) = refused
            && matches!(problem.trouble, Trouble::Unauthorized | Trouble::Denied)
        {
            let (asked, name) = (self.asked.as_str(), self.name.as_ref());
            let how = problem.trouble.as_str();
            self.audit.refused(&self.who, asked, name, how);
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.inner.path).finish()
    }
}

fn append(path: &Path) -> Result<File> {
    let mut options = File::options();
    let file = options.append(true).create(true).mode(0o600).open(path);
    file.map_err(|error| Error::Denied(format!("the audit log {}: {error}", path.display())))
}
