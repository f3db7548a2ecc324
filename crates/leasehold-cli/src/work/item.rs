//! One item, from its claim to its next state.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::process::Stdio;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::core::{Name, limits};
use leasehold::{Error, Lease};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, copy, sink};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::pool::{Backoff, Context};
use crate::run::{Job, Outcome, Terminal, environment, supervise};
use crate::signals::Signals;
use crate::{body, exit, output};

/// How long the output may stay open after the process group of the command has ended.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// How the processing of an item ended.
pub(super) enum ItemOutcome {
    /// It moved to the state of `--next`.
    Done,
    /// It moved to the state of `--failed`, for this reason.
    Failed(String),
    /// Its claim was lost, for this reason: another worker gets it.
    Lost(String),
    /// These processes could not be killed and still run. The claim is left to expire.
    Survivors(String),
    /// It was given back.
    GivenBack,
    /// The command ended with this exit code, which says that it could not be executed. The item was given back.
    CannotRun(u8),
    /// The command could not be started. The item was given back.
    NotStarted(io::Error),
}

/// An item that was processed, and how long that took.
pub(super) struct FinishedItem {
    pub(super) name: Name,
    pub(super) outcome: ItemOutcome,
    pub(super) took: Duration,
}

/// Runs the command for an item, and moves the item to its next state.
pub(super) async fn process(
    context: Arc<Context>,
    lease: Lease,
    mut signals: Signals,
) -> FinishedItem {
    let (name, started) = (lease.name().clone(), Instant::now());
    let outcome = match run(&context, &lease, &mut signals).await {
        Ok(ended) => conclude(&context, &lease, ended).await,
        Err(error) => ItemOutcome::NotStarted(error),
    };
    if matches!(outcome, ItemOutcome::Survivors(_)) {
        // Dropping the lease would release it.
        std::mem::forget(lease);
    } else {
        // If the store is unavailable, the claim expires after its ttl.
        let _ = lease.release().await;
    }
    let took = started.elapsed();
    FinishedItem {
        name,
        outcome,
        took,
    }
}

/// How the command ended; and the new body of the item, or why it is invalid.
type CommandResult = (Outcome, Result<Option<String>, String>);

async fn run(context: &Context, lease: &Lease, signals: &mut Signals) -> io::Result<CommandResult> {
    let (printed, output) = if context.work.output {
        let (reader, writer) = io::pipe()?;
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        (Some(tokio::spawn(collect(reader))), Stdio::from(writer))
    } else {
        (None, Stdio::inherit())
    };
    let job = Job {
        command: &context.work.command,
        environment: environment(lease, &context.target),
        input: file_of(&lease.body())?.into(),
        output,
        loss_signal: Signal::SIGTERM,
        max_hold: None,
        terminal: Terminal::none(),
    };
    let outcome = supervise(slice::from_ref(lease), job, signals).await?;
    let body = match printed {
        Some(printed) => new_body(printed).await.map(Some),
        None => Ok(None),
    };
    Ok((outcome, body))
}

async fn conclude(context: &Context, lease: &Lease, (outcome, body): CommandResult) -> ItemOutcome {
    let (state, body, item) = match (outcome, body) {
        (Outcome::Lost(reason), _) => return ItemOutcome::Lost(reason),
        (Outcome::TimedOut(limit), _) => {
            let reason = format!("ran for longer than {}", output::span(limit));
            (&context.work.failed, None, ItemOutcome::Failed(reason))
        }
        (Outcome::Survivors { processes, .. }, _) => return ItemOutcome::Survivors(processes),
        (Outcome::Ended(0), Ok(body)) => (&context.work.next, body, ItemOutcome::Done),
        (Outcome::Ended(0), Err(reason)) => {
            (&context.work.failed, None, ItemOutcome::Failed(reason))
        }
        (Outcome::Ended(code @ (exit::NOT_EXECUTABLE | exit::NOT_FOUND)), _) => {
            return ItemOutcome::CannotRun(code);
        }
        _ if context.is_interrupted() => return ItemOutcome::GivenBack,
        (Outcome::Ended(code), _) => {
            let reason = format!("exit code {code}");
            (&context.work.failed, None, ItemOutcome::Failed(reason))
        }
        (Outcome::Killed(signal) | Outcome::Interrupted(signal), _) => {
            let reason = format!("ended by {signal}");
            (&context.work.failed, None, ItemOutcome::Failed(reason))
        }
    };
    match move_on(lease, state, body).await {
        Ok(()) => item,
        Err(error) => ItemOutcome::Lost(error.to_string()),
    }
}

/// Writes the state and the body and releases the item, with retries for as long as the claim lasts.
async fn move_on(lease: &Lease, state: &str, body: Option<String>) -> leasehold::Result<()> {
    let mut backoff = Backoff::default();
    loop {
        let mut completion = match state {
            "" => lease.complete().clear_state(),
            state => lease.complete().state(state),
        };
        if let Some(body) = &body {
            completion = completion.body(body.as_str());
        }
        match completion.await {
            Err(error @ (Error::Unavailable(_) | Error::Indeterminate(_))) if !lease.is_lost() => {
                backoff.wait(&error).await;
            }
            done => {
                if done.is_ok() {
                    backoff.end();
                }
                return done;
            }
        }
    }
}

/// Returns an anonymous file in memory with this text, positioned at its start.
fn file_of(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"body", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// Reads a pipe to its end, and keeps at most one byte more than a body may have. The rest is read and discarded, so that
/// the command does not block.
async fn collect(mut pipe: pipe::Receiver) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = limits::MAX_BODY_BYTES as u64 + 1;
    (&mut pipe).take(most).read_to_end(&mut bytes).await?;
    copy(&mut pipe, &mut sink()).await?;
    Ok(bytes)
}

/// Converts the output of the command into a body.
async fn new_body(printed: JoinHandle<io::Result<Vec<u8>>>) -> Result<String, String> {
    match tokio::time::timeout(OUTPUT_TIMEOUT, printed).await {
        Ok(Ok(Ok(bytes))) => {
            body::text(bytes).map_err(|reason| format!("cannot use its output: {reason}"))
        }
        Ok(Ok(Err(error))) => Err(format!("cannot read its output: {error}")),
        Ok(Err(_)) | Err(_) => {
            Err("cannot read its output: a process that left its group keeps it open".to_owned())
        }
    }
}
