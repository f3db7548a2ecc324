//! The audit log: who asked for which change, its outcome, and who was refused. A file with a JSON object a line.
//!
//! | file | what it does |
//! |---|---|
//! | `entry.rs` | records a request for changes before and after it is carried out |
//! | `log.rs` | appends whole lines to the file, and rotates it |
//! | `limit.rs` | limits how many refusals of unknown callers are recorded |

mod entry;
mod limit;
mod log;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::core::{Fence, Name};
use leasehold::health::Health;
use leasehold::host::{Host as _, Machine};
use leasehold::measure::Counter;
use leasehold::wire::Trouble;
use leasehold::{Error, Result};
use serde::Serialize;

use crate::access::caller::Caller;
use crate::follow;
use crate::metrics::Asked;
use crate::refused::Refused;
use crate::route::Route;
pub(crate) use entry::{Change, Entry};
use limit::Limit;
use log::{Log, Rotation};

/// The longest write that shows that the log can be written again.
const MAX_PROOF: usize = 4 * 1024;

/// What happens to changes that the audit log cannot record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They are refused, and the service is not ready.
    #[default]
    Refuse,
    /// They are carried out without a record, which is logged and counted.
    Continue,
}

/// How an [`Audit`] log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditOptions {
    /// What happens to changes that it cannot record.
    pub on_failure: OnFailure,
    /// Bytes of a file before a new one is begun: `PATH` becomes `PATH.1`, and so on. `None`: never.
    pub max_bytes: Option<u64>,
    /// How many old files are kept then, at least one.
    pub keep: u32,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::default(),
            max_bytes: None,
            keep: 9,
        }
    }
}

/// A log of every change, renewals included, and of every refusal of a right.
///
/// A change is recorded before it is carried out, and its outcome before it is answered. No nonce, token or body is ever
/// in the log. A file that was moved away is made anew. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    options: AuditOptions,
    log: Mutex<Log>,
    /// Whether the file is gone and cannot be made again: that is logged once.
    is_lost: AtomicBool,
    health: Health,
    /// Bytes of the longest write that has failed since the log worked: on a full disk, shorter ones may still succeed.
    failed_bytes: AtomicUsize,
    /// Lines that could not be written since the log says that some are missing.
    missing: AtomicU64,
    failures: Counter,
    unknown_callers: Mutex<Limit>,
    omitted: Counter,
}

#[derive(Default, Serialize)]
struct Line<'a> {
    time: String,
    /// What the lines of one request have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    /// The id of the token, or the name of the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'a str>,
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<Fence>,
    /// How many lines are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<u64>,
}

impl<'a> Line<'a> {
    fn about(
        caller: &'a Caller,
        operation: &'a str,
        name: Option<&'a Name>,
        outcome: &'a str,
    ) -> Self {
        let credential = caller.credential.as_deref();
        Self {
            principal: credential.map(|known| &*known.principal),
            credential: credential.map(|known| &*known.id),
            address: Some(&caller.address),
            kind: name.map(|name| name.kind().as_str()),
            name: name.map(Name::as_str),
            ..Self::of_the_log(operation, outcome)
        }
    }

    /// A line about the log itself.
    fn of_the_log(operation: &'a str, outcome: &'a str) -> Self {
        Self {
            time: jiff::Timestamp::now().to_string(),
            operation,
            outcome,
            ..Self::default()
        }
    }
}

/// Lines could not be written. That is logged already.
struct Unwritten;

impl Audit {
    /// Appends to this file, which is made for its owner only if it is not there, as [`AuditOptions`] say by default.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, AuditOptions::default())
    }

    /// The same with other options. A path that cannot be opened is [`Error::Denied`].
    pub fn open_with(path: &Path, options: AuditOptions) -> Result<Self> {
        let log = Log::open(path, rotation(&options)).map_err(|error| {
            let path = path.display();
            Error::Denied(format!("cannot open the audit log {path}: {error}"))
        })?;
        let audit = Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                options,
                log: Mutex::new(log),
                is_lost: AtomicBool::new(false),
                health: Health::default(),
                failed_bytes: AtomicUsize::new(0),
                missing: AtomicU64::new(0),
                failures: Counter::default(),
                unknown_callers: Mutex::default(),
                omitted: Counter::default(),
            }),
        };
        audit.write_opened();
        Ok(audit)
    }

    /// Opens the file again, as after it was moved away. A service that runs notices that by itself, within a second.
    pub fn reopen(&self) {
        if let Err(error) = self.open_again() {
            self.log_lost(&error);
        }
    }

    fn open_again(&self) -> io::Result<()> {
        let log = Log::open(&self.inner.path, rotation(&self.inner.options))?;
        *self.log() = log;
        self.inner.is_lost.store(false, Ordering::Relaxed);
        self.write_opened();
        Ok(())
    }

    fn log_lost(&self, error: &io::Error) {
        let path = self.inner.path.display();
        tracing::error!(%error, "cannot open the audit log {path} again: it goes on in the old file");
    }

    /// Follows the file, and has it say what is missing in it, for as long as it is polled.
    pub(crate) async fn keep_open(self) {
        follow::keep_looking(move || self.look_again()).await;
    }

    fn look_again(&self) {
        let is_in_place = self.log().is_in_place();
        if !is_in_place
            && let Err(error) = self.open_again()
            && !self.inner.is_lost.swap(true, Ordering::Relaxed)
        {
            self.log_lost(&error);
        }
        let now = Machine.boot_time();
        let missing = self.inner.missing.load(Ordering::Acquire);
        if missing > 0 && self.inner.health.has_settled(now) {
            let line = Line {
                lines: Some(missing),
                ..Line::of_the_log("audit", "resumed")
            };
            let mut bytes = encode([line]).0;
            // Spaces behind a JSON value mean nothing.
            let length = self.inner.failed_bytes.load(Ordering::Acquire);
            bytes.pop();
            bytes.resize(length.max(bytes.len() + 1) - 1, b' ');
            bytes.push(b'\n');
            if self.append(&bytes, 1).is_ok() {
                self.inner.missing.fetch_sub(missing, Ordering::AcqRel);
            }
        }
        if let Some(omitted) = self.unknown_callers().take_omitted(now) {
            let line = Line {
                lines: Some(omitted),
                ..Line::of_the_log("audit", "omitted")
            };
            let _ = self.write([line]);
        }
    }

    /// A line that shows whether the file can be written, before a change depends on it.
    fn write_opened(&self) {
        let _ = self.write([Line::of_the_log("audit", "opened")]);
    }

    /// Fails while changes are refused because it cannot record them.
    pub(crate) fn check(&self) -> Result<()> {
        if self.refuses() && self.inner.health.is_failing() {
            return Err(Error::Unavailable(
                "changes are refused, as the audit log cannot be written".into(),
            ));
        }
        Ok(())
    }

    fn refuses(&self) -> bool {
        self.inner.options.on_failure == OnFailure::Refuse
    }

    /// Records changes before they are carried out. `Err`: they must not be.
    pub(crate) fn begin(&self, caller: &Caller, changes: Vec<Change>) -> Result<Entry> {
        Entry::begin(self, caller, changes)
    }

    /// Records that a caller may not do this, or is unknown. Of unknown callers only so many are recorded.
    pub(crate) fn refused(&self, caller: &Caller, operation: &str, name: Option<&Name>, how: &str) {
        let is_unknown = caller.credential.is_none();
        let now = Machine.boot_time();
        if is_unknown && !self.unknown_callers().admit(&caller.address, now) {
            return self.inner.omitted.count();
        }
        let _ = self.write([Line::about(caller, operation, name, how)]);
    }

    /// Times that lines could not be written.
    pub(crate) fn failures(&self) -> u64 {
        self.inner.failures.get()
    }

    /// Refusals of unknown callers that were not recorded because there were too many.
    pub(crate) fn omitted(&self) -> u64 {
        self.inner.omitted.get()
    }

    fn write<'a>(&self, lines: impl IntoIterator<Item = Line<'a>>) -> Result<(), Unwritten> {
        match encode(lines) {
            (_, 0) => Ok(()),
            (bytes, count) => self.append(&bytes, count),
        }
    }

    /// Appends so many lines.
    fn append(&self, bytes: &[u8], count: u64) -> Result<(), Unwritten> {
        let began = Machine.boot_time();
        let appended = self.log().append(bytes);
        let inner = &self.inner;
        match appended {
            Ok(()) => {
                let is_proof = bytes.len() >= inner.failed_bytes.load(Ordering::Acquire);
                if is_proof && inner.health.succeeded(began) {
                    inner.failed_bytes.store(0, Ordering::Release);
                    tracing::info!("the audit log can be written again");
                }
                Ok(())
            }
            Err(error) => {
                inner.failures.count();
                inner.missing.fetch_add(count, Ordering::AcqRel);
                let proof = bytes.len().min(MAX_PROOF);
                inner.failed_bytes.fetch_max(proof, Ordering::AcqRel);
                if inner.health.failed(Machine.boot_time()) {
                    let path = inner.path.display();
                    let effect = match inner.options.on_failure {
                        OnFailure::Refuse => "changes are refused until it can be",
                        OnFailure::Continue => "changes go on without a record",
                    };
                    tracing::error!(%error, "cannot write the audit log {path}: {effect}");
                }
                Err(Unwritten)
            }
        }
    }

    fn random(&self) -> u64 {
        Machine.random() as u64
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.inner
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn unknown_callers(&self) -> MutexGuard<'_, Limit> {
        let limit = self.inner.unknown_callers.lock();
        limit.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines as they are written, and how many there are.
fn encode<'a>(lines: impl IntoIterator<Item = Line<'a>>) -> (Vec<u8>, u64) {
    let (mut bytes, mut count) = (Vec::new(), 0);
    for line in lines {
        serde_json::to_writer(&mut bytes, &line).expect("text keys, into memory");
        bytes.push(b'\n');
        count += 1;
    }
    (bytes, count)
}

fn rotation(options: &AuditOptions) -> Option<Rotation> {
    let keep = options.keep;
    options
        .max_bytes
        .map(|max_bytes| Rotation { max_bytes, keep })
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
