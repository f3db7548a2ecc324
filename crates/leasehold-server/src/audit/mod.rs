//! The audit log: each change with its caller and outcome, and refused callers. A file with one JSON object per line.
//!
//! | file | what it does |
//! |---|---|
//! | `entry.rs` | records a requested change before and after it is made |
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
use leasehold::wire::ProblemType;
use leasehold::{Error, Result};
use serde::Serialize;

use crate::access::caller::Caller;
use crate::file_watch;
use crate::metrics::RequestKind;
use crate::rejection::Rejection;
use crate::route::Route;
pub(crate) use entry::{Change, Entry};
use limit::Limit;
use log::{Log, Rotation};

/// The longest write that is required to show that the log can be written again.
const MAX_PROOF_BYTES: usize = 4 * 1024;

/// What happens to changes that the audit log cannot record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They are refused, and the service is not ready.
    #[default]
    Refuse,
    /// They are made without a record, which is logged and counted.
    Continue,
}

/// Options of an [`Audit`] log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditOptions {
    /// What happens to changes that it cannot record.
    pub on_failure: OnFailure,
    /// The size at which the file is rotated: `PATH` is renamed to `PATH.1`, and so on. `None`: never.
    pub max_bytes: Option<u64>,
    /// How many old files rotation keeps: at least one.
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

/// A log of all changes, including renewals, and of all refusals for lack of a right.
///
/// A change is recorded before it is made, and its outcome before it is answered. The log never contains a nonce, a token or
/// a body. If the file is moved away, a new one is created. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    options: AuditOptions,
    log: Mutex<Log>,
    /// Whether the file is missing and cannot be created again: only the first failure is logged.
    is_lost: AtomicBool,
    health: Health,
    /// The longest write that failed since the last success: on a full disk, shorter ones may still succeed.
    failed_bytes: AtomicUsize,
    /// How many lines were lost and are not reported in the log yet.
    missing: AtomicU64,
    failures: Counter,
    unknown_callers: Mutex<Limit>,
    omitted: Counter,
}

#[derive(Default, Serialize)]
struct Line<'a> {
    time: String,
    /// An id that all lines of one request have.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    /// The token's id or the certificate's name.
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
    /// How many lines are missing here.
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
            principal: credential.map(|credential| &*credential.principal),
            credential: credential.map(|credential| &*credential.id),
            address: Some(&caller.address),
            kind: name.map(|name| name.kind().as_str()),
            name: name.map(Name::as_str),
            ..Self::about_log(operation, outcome)
        }
    }

    /// Returns a line about the log itself.
    fn about_log(operation: &'a str, outcome: &'a str) -> Self {
        Self {
            time: jiff::Timestamp::now().to_string(),
            operation,
            outcome,
            ..Self::default()
        }
    }
}

/// A failed write, which is logged already.
struct WriteFailed;

impl Audit {
    /// Opens a log with the default options. The file is created if it does not exist; only its owner can read it.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, AuditOptions::default())
    }

    /// Opens a log with other options. Fails with [`Error::Denied`] if the file cannot be opened.
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

    /// Opens the file again, for example after it was moved away. A running service also does this by itself within a second.
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
        tracing::error!(%error, "cannot open the audit log {path} again: writing to the old file");
    }

    /// Reopens the file after it was moved away, and records how many lines are missing, while it is polled.
    pub(crate) async fn keep_open(self) {
        file_watch::run_periodically(move || self.check_file()).await;
    }

    fn check_file(&self) {
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
                ..Line::about_log("audit", "resumed")
            };
            let mut bytes = encode([line]).0;
            // Padded with spaces, which JSON ignores, to prove that a line as long as the failed one can be written.
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
                ..Line::about_log("audit", "omitted")
            };
            let _ = self.write([line]);
        }
    }

    /// Writes a first line, in order to notice whether the file can be written before a change depends on it.
    fn write_opened(&self) {
        let _ = self.write([Line::about_log("audit", "opened")]);
    }

    /// Fails while changes are refused because they cannot be recorded.
    pub(crate) fn check(&self) -> Result<()> {
        if self.refuses() && self.inner.health.is_failing() {
            return Err(Error::Unavailable(
                "changes are refused, because the audit log cannot be written: the log of the service says why".into(),
            ));
        }
        Ok(())
    }

    fn refuses(&self) -> bool {
        self.inner.options.on_failure == OnFailure::Refuse
    }

    /// Records changes before they are made. If it fails, they must not be made.
    pub(crate) fn begin(&self, caller: &Caller, changes: Vec<Change>) -> Result<Entry> {
        Entry::begin(self, caller, changes)
    }

    /// Records that a caller lacks a right or is unknown. The lines about unknown callers are limited.
    pub(crate) fn refused(
        &self,
        caller: &Caller,
        operation: &str,
        name: Option<&Name>,
        outcome: &str,
    ) {
        let is_unknown = caller.credential.is_none();
        let now = Machine.boot_time();
        if is_unknown && !self.unknown_callers().admit(&caller.address, now) {
            return self.inner.omitted.count();
        }
        let _ = self.write([Line::about(caller, operation, name, outcome)]);
    }

    /// Returns how often lines could not be written.
    pub(crate) fn failures(&self) -> u64 {
        self.inner.failures.get()
    }

    /// Returns how many refusals of unknown callers were not recorded because there were too many.
    pub(crate) fn omitted(&self) -> u64 {
        self.inner.omitted.get()
    }

    fn write<'a>(&self, lines: impl IntoIterator<Item = Line<'a>>) -> Result<(), WriteFailed> {
        match encode(lines) {
            (_, 0) => Ok(()),
            (bytes, count) => self.append(&bytes, count),
        }
    }

    /// Appends encoded lines. `count` is their number.
    fn append(&self, bytes: &[u8], count: u64) -> Result<(), WriteFailed> {
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
                let proof = bytes.len().min(MAX_PROOF_BYTES);
                inner.failed_bytes.fetch_max(proof, Ordering::AcqRel);
                if inner.health.failed(Machine.boot_time()) {
                    let path = inner.path.display();
                    let effect = match inner.options.on_failure {
                        OnFailure::Refuse => "changes are refused until it can be written",
                        OnFailure::Continue => "changes are made without a record",
                    };
                    tracing::error!(%error, "cannot write the audit log {path}: {effect}");
                }
                Err(WriteFailed)
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

/// Encodes lines as JSON, one per line. Returns them and their number.
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

/// Records a request if it is refused for lack of a right.
pub(crate) struct RefusalRecorder<'a> {
    audit: &'a Audit,
    kind: RequestKind,
    name: Option<Name>,
    caller: Caller,
}

impl<'a> RefusalRecorder<'a> {
    pub(crate) fn new(audit: &'a Audit, route: &Route, caller: &Caller) -> Self {
        Self {
            audit,
            kind: RequestKind::from(route),
            name: route.name().cloned(),
            caller: caller.clone(),
        }
    }

    /// Records a refusal of the service. Refusals by the core are recorded with their change.
    pub(crate) fn record_refusal(&self, refused: &Rejection) {
        if let Rejection::Problem(problem) = refused
            && matches!(
                problem.problem_type,
                ProblemType::Unauthorized | ProblemType::Denied
            )
        {
            let (operation, name) = (self.kind.as_str(), self.name.as_ref());
            let outcome = problem.problem_type.as_str();
            self.audit.refused(&self.caller, operation, name, outcome);
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.inner.path).finish()
    }
}
