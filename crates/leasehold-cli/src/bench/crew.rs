//! The tasks of one run: started together, watched, and stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::Client;
use leasehold::core::Name;
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::report::{self, Run};
use super::worker::{Live, Phase, Tally, Worker};
use crate::output;
use crate::signals::Signals;

/// How long cycles that are under way at the end may still take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// The tasks of one run.
pub(super) struct Crew {
    tasks: u16,
    workers: JoinSet<leasehold::Result<Tally>>,
    phase: watch::Sender<Phase>,
    live: Arc<Live>,
}

impl Crew {
    pub(super) fn start(client: &Client, names: &Arc<[Name]>, tasks: u16, ttl: Duration) -> Self {
        let (phase, watching) = watch::channel(Phase::WarmUp);
        let live = Arc::new(Live::default());
        let mut workers = JoinSet::new();
        for first in 0..usize::from(tasks) {
            let worker = Worker {
                client: client.clone(),
                names: names.clone(),
                first,
                stride: tasks.into(),
                ttl,
                phase: watching.clone(),
                live: live.clone(),
            };
            workers.spawn(worker.work());
        }
        Self {
            tasks,
            workers,
            phase,
            live,
        }
    }

    /// Warms up, measures and stops. What was measured, if it came to that, and the signal that cut it short.
    ///
    /// Fails if the store does: if no cycle at all was completed, or one failed such that no other try would mend it.
    pub(super) async fn run(
        &mut self,
        warm_up: Duration,
        span: Duration,
        signals: &mut Signals,
    ) -> leasehold::Result<(Option<Run>, Option<Signal>)> {
        let passed = self.time(warm_up, span, signals).await;
        // Whatever happened: what is held is released first.
        let tally = self.gather().await;
        let (span, signal) = passed?;
        let tally = tally?;
        self.some_success()?;
        let tasks = self.tasks;
        let run = span.map(|span| Run { tasks, span, tally });
        Ok((run, signal))
    }

    /// Lets the warm-up and the measured time pass. How long was measured, if at all, and what cut it short.
    async fn time(
        &mut self,
        warm_up: Duration,
        span: Duration,
        signals: &mut Signals,
    ) -> leasehold::Result<(Option<Duration>, Option<Signal>)> {
        let progress = Progress::new(self.tasks, warm_up + span);
        if let Some(signal) = self.pass(warm_up, signals, &progress).await? {
            return Ok((None, Some(signal)));
        }
        self.some_success()?;
        self.phase.send_replace(Phase::Measuring);
        let begun = Instant::now();
        let signal = self.pass(span, signals, &progress).await?;
        Ok((Some(begun.elapsed()), signal))
    }

    /// Fails with the first error if there was nothing but errors so far.
    fn some_success(&self) -> leasehold::Result<()> {
        self.live.failure().map_or(Ok(()), Err)
    }

    /// Lets this time pass, unless a signal or a worker that cannot go on cuts it short.
    async fn pass(
        &mut self,
        span: Duration,
        signals: &mut Signals,
        progress: &Progress,
    ) -> leasehold::Result<Option<Signal>> {
        let mut over = std::pin::pin!(tokio::time::sleep(span));
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                () = &mut over => return Ok(None),
                signal = signals.end() => return Ok(Some(signal)),
                Some(ended) = self.workers.join_next() => {
                    ended.expect("a task does not panic")?;
                }
                _ = ticks.tick() => progress.show(self.live.cycles()),
            }
        }
    }

    /// Has everybody stop, and adds up what they measured.
    async fn gather(&mut self) -> leasehold::Result<Tally> {
        self.phase.send_replace(Phase::Stopping);
        let mut sum = Tally::new();
        let mut late = std::pin::pin!(tokio::time::sleep(PATIENCE));
        loop {
            tokio::select! {
                ended = self.workers.join_next() => match ended {
                    Some(tally) => sum.add(&tally.expect("a task does not panic")?),
                    None => return Ok(sum),
                },
                () = &mut late, if *self.phase.borrow() == Phase::Stopping => {
                    self.phase.send_replace(Phase::GivenUp);
                }
            }
        }
    }
}

/// A bar on the terminal; nothing where there is none. It goes away with the run.
struct Progress {
    bar: ProgressBar,
    begun: Instant,
}

impl Progress {
    fn new(tasks: u16, span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let style = ProgressStyle::with_template("{prefix:>10}  {bar:40}  {msg}");
        let style = style.expect("a sound template").progress_chars("━╸─");
        let bar = ProgressBar::new(millis)
            .with_style(style)
            .with_prefix(report::tasks(tasks));
        let begun = Instant::now();
        Self { bar, begun }
    }

    fn show(&self, cycles: u64) {
        let elapsed = self.begun.elapsed();
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        self.bar.set_position(millis);
        if let Some(rate) = (cycles * 1_000).checked_div(millis) {
            let rate = output::grouped(rate);
            self.bar.set_message(format!("{rate} cycles/s"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
