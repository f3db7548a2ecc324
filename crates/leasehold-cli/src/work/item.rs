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
use tokio::io::{AsyncReadExt as _, copy, sink};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::crew::{Patience, Shop};
use crate::run::{Job, Outcome, Terminal, environment, supervise};
use crate::signals::Signals;
use crate::{body, exit};

/// How long an output may stay open after the command and its group have ended.
const CLOSING: Duration = Duration::from_secs(1);

/// What became of an item.
pub(super) enum Fate {
    /// It moved on to the next state.
    Done,
    /// It moved on to the failed state, for this reason.
    Failed(String),
    /// Its claim was lost, for this reason: somebody else gets it.
    Lost(String),
    /// This process could not be ended and still runs. The claim is left to expire.
    Outlived(String),
    /// It was given back.
    GivenBack,
    /// The command ended with this code, which says that it could not be run. The item was given back.
    CannotRun(u8),
    /// Nothing could be started here. The item was given back.
    NotStarted(io::Error),
}

/// An item that nobody here works on any more.
pub(super) struct Finished {
    pub(super) name: Name,
    pub(super) fate: Fate,
    pub(super) took: Duration,
}

/// Runs the command for an item, and moves it on.
pub(super) async fn process(shop: Arc<Shop>, lease: Lease, mut signals: Signals) -> Finished {
    let (name, started) = (lease.name().clone(), Instant::now());
    let fate = match run(&shop, &lease, &mut signals).await {
        Ok(ended) => conclude(&shop, &lease, ended).await,
        Err(error) => Fate::NotStarted(error),
    };
    if matches!(fate, Fate::Outlived(_)) {
        // Dropping it would release it.
        std::mem::forget(lease);
    } else {
        // It fails when the store does not answer: then the item is free after its ttl.
        let _ = lease.release().await;
    }
    let took = started.elapsed();
    Finished { name, fate, took }
}

/// How the command ended; the item's new body, or why it has none.
type Ended = (Outcome, Result<Option<String>, String>);

async fn run(shop: &Shop, lease: &Lease, signals: &mut Signals) -> io::Result<Ended> {
    let (printed, output) = if shop.work.output {
        let (reader, writer) = io::pipe()?;
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        (Some(tokio::spawn(collect(reader))), Stdio::from(writer))
    } else {
        (None, Stdio::inherit())
    };
    let job = Job {
        command: &shop.work.command,
        environment: environment(lease, &shop.place),
        input: file_of(&lease.body())?.into(),
        output,
        terminal: Terminal::none(),
    };
    let outcome = supervise(slice::from_ref(lease), job, signals).await?;
    let body = match printed {
        Some(printed) => new_body(printed).await.map(Some),
        None => Ok(None),
    };
    Ok((outcome, body))
}

async fn conclude(shop: &Shop, lease: &Lease, (outcome, body): Ended) -> Fate {
    let (state, body, fate) = match (outcome, body) {
        (Outcome::Lost(reason), _) => return Fate::Lost(reason),
        (Outcome::Outlived { by, .. }, _) => return Fate::Outlived(by),
        (Outcome::Ended(0), Ok(body)) => (&shop.work.next, body, Fate::Done),
        (Outcome::Ended(0), Err(reason)) => (&shop.work.failed, None, Fate::Failed(reason)),
        (Outcome::Ended(code @ (exit::NOT_EXECUTABLE | exit::NOT_FOUND)), _) => {
            return Fate::CannotRun(code);
        }
        _ if shop.is_interrupted() => return Fate::GivenBack,
        (Outcome::Ended(code), _) => {
            let reason = format!("exit code {code}");
            (&shop.work.failed, None, Fate::Failed(reason))
        }
        (Outcome::Killed(signal) | Outcome::Interrupted(signal), _) => {
            let reason = format!("ended by {signal}");
            (&shop.work.failed, None, Fate::Failed(reason))
        }
    };
    match move_on(lease, state, body).await {
        Ok(()) => fate,
        Err(error) => Fate::Lost(error.to_string()),
    }
}

/// Writes the state and the body, and lets go, for as long as the claim lasts.
async fn move_on(lease: &Lease, state: &str, body: Option<String>) -> leasehold::Result<()> {
    let mut patience = Patience::default();
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
                patience.after(&error).await;
            }
            done => {
                if done.is_ok() {
                    patience.end();
                }
                return done;
            }
        }
    }
}

/// The text as a file of no folder, to be read from its start.
fn file_of(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"body", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// What comes out of a pipe, though no more than it takes to see that it is too much: the rest is read, lest the
/// command waits, and forgotten.
async fn collect(mut pipe: pipe::Receiver) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = limits::MAX_BODY_BYTES as u64 + 1;
    (&mut pipe).take(most).read_to_end(&mut bytes).await?;
    copy(&mut pipe, &mut sink()).await?;
    Ok(bytes)
}

/// What the command has printed, as a body.
async fn new_body(printed: JoinHandle<io::Result<Vec<u8>>>) -> Result<String, String> {
    match tokio::time::timeout(CLOSING, printed).await {
        Ok(Ok(Ok(bytes))) => body::text(bytes).map_err(|reason| format!("its output: {reason}")),
        Ok(Ok(Err(error))) => Err(format!("its output cannot be read: {error}")),
        Ok(Err(_)) | Err(_) => {
            Err("its output is still open: something it started left its group".to_owned())
        }
    }
}
