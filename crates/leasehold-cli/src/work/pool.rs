//! Claims items for up to `--parallel` commands, and supervises the commands until the last one has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::client::Claims;
use leasehold::{Client, Error, Lease};
use nix::sys::signal::Signal;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use super::Work;
use super::item::{self, FinishedItem, ItemOutcome};
use super::progress::{Progress, Summary};
use crate::exit::Failure;
use crate::output;
use crate::signals::Signals;
use crate::store::Target;

/// The delay before the first retry when the store is unavailable. It doubles with each retry.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest delay before a retry.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// What the workers of a pool share.
pub(super) struct Context {
    pub(super) work: Work,
    pub(super) client: Client,
    pub(super) target: Target,
    /// Forwards signals to the commands.
    signals: broadcast::Sender<Signal>,
    /// Whether a signal was forwarded: a command that fails after that failed because of the signal.
    interrupted: AtomicBool,
}

impl Context {
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// How the work ended.
pub(super) enum End {
    /// No item is left, or a first signal ended the work.
    Finished,
    /// This signal was forwarded to the running commands.
    Interrupted(Signal),
    /// The command ended with this exit code, which says that it could not be executed.
    CannotRun(u8),
}

type Claiming = Pin<Box<dyn Future<Output = leasehold::Result<Vec<Lease>>> + Send>>;

/// The workers, each of which runs the command for one item.
pub(super) struct WorkerPool {
    context: Arc<Context>,
    running: JoinSet<FinishedItem>,
    claiming: Option<Claiming>,
    /// The last claim found no item.
    idle: bool,
    /// Why no more items are claimed.
    stopped: Option<Result<End, Failure>>,
    summary: Summary,
    progress: Progress,
}

impl WorkerPool {
    pub(super) fn new(work: Work, client: Client, target: Target) -> Self {
        Self {
            progress: Progress::new(&work),
            context: Arc::new(Context {
                work,
                client,
                target,
                signals: broadcast::channel(16).0,
                interrupted: AtomicBool::new(false),
            }),
            running: JoinSet::new(),
            claiming: None,
            idle: false,
            stopped: None,
            summary: Summary::default(),
        }
    }

    pub(super) fn summary(&self) -> &Summary {
        &self.summary
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Works until no more items are to be claimed and every command has ended.
    pub(super) async fn work(&mut self, signals: &mut Signals) -> Result<End, Failure> {
        loop {
            self.claim();
            if self.claiming.is_none() && self.running.is_empty() {
                return self.stopped.take().unwrap_or(Ok(End::Finished));
            }
            tokio::select! {
                claimed = claim_result(&mut self.claiming) => {
                    self.claiming = None;
                    match claimed {
                        Ok(leases) => self.start(leases),
                        Err(error) => self.stop(Err(error.into())),
                    }
                }
                Some(finished) = self.running.join_next() => match finished {
                    Ok(finished) => self.finish(&finished),
                    Err(error) => self.stop(Err(Failure::system("cannot finish an item", error))),
                },
                signal = signals.end() => self.interrupt(signal),
            }
        }
    }

    /// Claims an item for each idle worker, unless a claim is under way or no more items are to be claimed.
    fn claim(&mut self) {
        let free = usize::from(self.context.work.parallel) - self.running.len();
        let drained = self.context.work.drain && self.idle;
        if self.claiming.is_none() && self.stopped.is_none() && free > 0 && !drained {
            self.claiming = Some(Box::pin(claim(self.context.clone(), free)));
        }
    }

    fn start(&mut self, leases: Vec<Lease>) {
        self.idle = leases.is_empty();
        for lease in leases {
            let signals = Signals::from(self.context.signals.subscribe());
            let context = self.context.clone();
            self.running.spawn(item::process(context, lease, signals));
        }
    }

    fn finish(&mut self, finished: &FinishedItem) {
        // The command may have created new items.
        self.idle = false;
        self.summary.count(&finished.outcome);
        self.progress
            .report_item(finished, &self.summary, self.running.len());
        match &finished.outcome {
            ItemOutcome::CannotRun(code) => self.stop(Ok(End::CannotRun(*code))),
            ItemOutcome::NotStarted(error) => {
                let failure = Failure::system("cannot start the command", error);
                self.stop(Err(failure));
            }
            _ => {}
        }
    }

    /// Stops claiming on the first signal, and forwards later ones to the commands.
    fn interrupt(&mut self, signal: Signal) {
        let is_first = self.stopped.is_none();
        if is_first {
            self.stop(Ok(End::Finished));
            let items = match self.running.len() {
                0 => return,
                1 => "1 item".to_owned(),
                running => format!("{running} items"),
            };
            output::note(&format!(
                "finishing {items}, then stopping; send another signal to end the running commands"
            ));
            return;
        }
        self.stopped = Some(Ok(End::Interrupted(signal)));
        self.context.interrupted.store(true, Ordering::Relaxed);
        // Fails if no command runs any more.
        let _ = self.context.signals.send(signal);
    }

    /// Stops claiming items. Only the first reason is kept.
    fn stop(&mut self, why: Result<End, Failure>) {
        self.claiming = None;
        self.stopped.get_or_insert(why);
    }
}

/// Waits for the result of the claim under way; for ever if there is none.
async fn claim_result(claiming: &mut Option<Claiming>) -> leasehold::Result<Vec<Lease>> {
    match claiming {
        Some(claiming) => claiming.await,
        None => std::future::pending().await,
    }
}

/// Claims at most `limit` items. Waits for items unless `--drain` is given, and retries while the store is unavailable.
async fn claim(context: Arc<Context>, limit: usize) -> leasehold::Result<Vec<Lease>> {
    let mut backoff = Backoff::default();
    loop {
        let items = &context.work.items;
        let mut claim = context
            .client
            .claim(items.state.as_str())
            .prefix(items.prefix.as_str())
            .ttl(items.ttl)
            .limit(limit);
        if let Some(owner) = &items.owner {
            claim = claim.owner(owner.as_str());
        }
        if !context.work.drain {
            claim = claim.wait_forever();
        }
        match claim.await {
            Err(error @ (Error::Unavailable(_) | Error::Indeterminate(_))) => {
                backoff.wait(&error).await;
            }
            claimed => {
                backoff.end();
                return claimed.map(Claims::into_leases);
            }
        }
    }
}

/// Exponential backoff while the store is unavailable, which is reported once.
#[derive(Default)]
pub(super) struct Backoff {
    retries: u32,
}

impl Backoff {
    /// Waits before the next retry.
    pub(super) async fn wait(&mut self, error: &Error) {
        if self.retries == 0 {
            output::note(&format!("{error}; retrying until the store answers"));
        }
        let delay = FIRST_DELAY * 2u32.saturating_pow(self.retries);
        self.retries += 1;
        tokio::time::sleep(delay.min(MAX_DELAY)).await;
    }

    /// Reports that the store has answered again.
    pub(super) fn end(&self) {
        if self.retries > 0 {
            output::note("the store answers again");
        }
    }
}
