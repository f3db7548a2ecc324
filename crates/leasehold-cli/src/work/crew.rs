//! Claims items for as many commands as may run, and looks after them until the last has ended.

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
use super::item::{self, Fate, Finished};
use super::progress::{Progress, Tally};
use crate::exit::Failure;
use crate::output;
use crate::signals::Signals;
use crate::store::Place;

/// The first pause after the store did not answer. Each is twice as long as the one before…
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// …up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What everybody who works on an item needs.
pub(super) struct Shop {
    pub(super) work: Work,
    pub(super) client: Client,
    pub(super) place: Place,
    /// Hands signals on to the commands.
    signals: broadcast::Sender<Signal>,
    /// Whether any was: commands that fail from then on have not failed by themselves.
    interrupted: AtomicBool,
}

impl Shop {
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// How the work ended.
pub(super) enum End {
    /// There is no more, or no more was wanted.
    Over,
    /// The running commands were told to end, by this signal.
    Interrupted(Signal),
    /// The command ended with this code, which says that it could not be run.
    CannotRun(u8),
}

type Claiming = Pin<Box<dyn Future<Output = leasehold::Result<Vec<Lease>>> + Send>>;

/// Those who work.
pub(super) struct Crew {
    shop: Arc<Shop>,
    running: JoinSet<Finished>,
    claiming: Option<Claiming>,
    /// Nothing was left at the last look.
    idle: bool,
    /// No more items are wanted, for this reason.
    stopped: Option<Result<End, Failure>>,
    tally: Tally,
    progress: Progress,
}

impl Crew {
    pub(super) fn new(work: Work, client: Client, place: Place) -> Self {
        Self {
            progress: Progress::new(&work),
            shop: Arc::new(Shop {
                work,
                client,
                place,
                signals: broadcast::channel(16).0,
                interrupted: AtomicBool::new(false),
            }),
            running: JoinSet::new(),
            claiming: None,
            idle: false,
            stopped: None,
            tally: Tally::default(),
        }
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Works until there is no more, or no more is wanted, and nothing runs any more.
    pub(super) async fn work(&mut self, signals: &mut Signals) -> Result<End, Failure> {
        loop {
            self.claim();
            if self.claiming.is_none() && self.running.is_empty() {
                return self.stopped.take().unwrap_or(Ok(End::Over));
            }
            tokio::select! {
                claimed = pending_unless(&mut self.claiming) => {
                    self.claiming = None;
                    match claimed {
                        Ok(leases) => self.start(leases),
                        Err(error) => self.stop(Err(error.into())),
                    }
                }
                Some(finished) = self.running.join_next() => match finished {
                    Ok(finished) => self.finished(&finished),
                    Err(error) => self.stop(Err(Failure::system("an item was dropped", error))),
                },
                signal = signals.end() => self.interrupted(signal),
            }
        }
    }

    /// Asks for as many items as there is room for, unless that is under way or pointless.
    fn claim(&mut self) {
        let room = usize::from(self.shop.work.parallel) - self.running.len();
        let drained = self.shop.work.drain && self.idle;
        if self.claiming.is_none() && self.stopped.is_none() && room > 0 && !drained {
            self.claiming = Some(Box::pin(claim(self.shop.clone(), room)));
        }
    }

    fn start(&mut self, leases: Vec<Lease>) {
        self.idle = leases.is_empty();
        for lease in leases {
            let signals = Signals::from(self.shop.signals.subscribe());
            let shop = self.shop.clone();
            self.running.spawn(item::process(shop, lease, signals));
        }
    }

    fn finished(&mut self, finished: &Finished) {
        // What a command did may have made new work.
        self.idle = false;
        self.tally.count(&finished.fate);
        self.progress
            .item(finished, &self.tally, self.running.len());
        match &finished.fate {
            Fate::CannotRun(code) => self.stop(Ok(End::CannotRun(*code))),
            Fate::NotStarted(error) => {
                let failure = Failure::system("the command cannot be started", error);
                self.stop(Err(failure));
            }
            _ => {}
        }
    }

    fn interrupted(&mut self, signal: Signal) {
        let first = self.stopped.is_none();
        if first {
            self.stop(Ok(End::Over));
            let running = self.running.len();
            let what = match running {
                0 => return,
                1 => "one item finishes".to_owned(),
                many => format!("{many} items finish"),
            };
            output::note(&format!(
                "{what}, then it ends; another signal ends what runs"
            ));
            return;
        }
        self.stopped = Some(Ok(End::Interrupted(signal)));
        self.shop.interrupted.store(true, Ordering::Relaxed);
        // It fails when no command runs any more.
        let _ = self.shop.signals.send(signal);
    }

    /// Takes no more items. The first reason counts.
    fn stop(&mut self, why: Result<End, Failure>) {
        self.claiming = None;
        self.stopped.get_or_insert(why);
    }
}

/// The claim's answer, if one is under way.
async fn pending_unless(claiming: &mut Option<Claiming>) -> leasehold::Result<Vec<Lease>> {
    match claiming {
        Some(claiming) => claiming.await,
        None => std::future::pending().await,
    }
}

/// Claims up to so many items. Waits for some unless the work is to end without, and until the store answers.
async fn claim(shop: Arc<Shop>, limit: usize) -> leasehold::Result<Vec<Lease>> {
    let mut patience = Patience::default();
    loop {
        let which = &shop.work.which;
        let mut claim = shop
            .client
            .claim(which.state.as_str())
            .prefix(which.prefix.as_str())
            .ttl(which.ttl)
            .limit(limit);
        if let Some(owner) = &which.owner {
            claim = claim.owner(owner.as_str());
        }
        if !shop.work.drain {
            claim = claim.wait_forever();
        }
        match claim.await {
            Err(error @ (Error::Unavailable(_) | Error::Indeterminate(_))) => {
                patience.after(&error).await;
            }
            claimed => {
                patience.end();
                return claimed.map(Claims::into_leases);
            }
        }
    }
}

/// Pauses between questions that the store does not answer, and says so once.
#[derive(Default)]
pub(super) struct Patience {
    pauses: u32,
}

impl Patience {
    pub(super) async fn after(&mut self, error: &Error) {
        if self.pauses == 0 {
            output::note(&format!("{error}; trying again until the store answers"));
        }
        let pause = FIRST_PAUSE * 2u32.saturating_pow(self.pauses);
        self.pauses += 1;
        tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
    }

    /// It has answered.
    pub(super) fn end(&self) {
        if self.pauses > 0 {
            output::note("the store answers again");
        }
    }
}
