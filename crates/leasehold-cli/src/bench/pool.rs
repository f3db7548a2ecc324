//! The tasks of one run: started together, observed, and stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use leasehold::Client;
use leasehold::core::Name;
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::report::{self, Run};
use super::worker::{LiveCounts, Phase, Summary, Worker};
use crate::output;
use crate::signals::Signals;

/// How long unfinished cycles may take at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the progress bar is updated.
const TICK: Duration = Duration::from_millis(100);

/// The tasks of one run.
pub(super) struct WorkerPool {
    tasks: u16,
    workers: JoinSet<leasehold::Result<Summary>>,
    phase: watch::Sender<Phase>,
    live: Arc<LiveCounts>,
}

impl WorkerPool {
    pub(super) fn start(client: &Client, names: &Arc<[Name]>, tasks: u16, ttl: Duration) -> Self {
        let (phase, receiver) = watch::channel(Phase::WarmUp);
        let live = Arc::new(LiveCounts::default());
        let mut workers = JoinSet::new();
        for first in 0..usize::from(tasks) {
            let worker = Worker {
                client: client.clone(),
                names: names.clone(),
                first,
                stride: tasks.into(),
                ttl,
                phase: receiver.clone(),
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

    /// Warms up, measures and stops. Returns the measurement, unless it had not begun, and the signal that ended it early.
    ///
    /// Fails if no cycle was completed, or if one failed in a way that a retry cannot fix.
    pub(super) async fn run(
        &mut self,
        warm_up: Duration,
        span: Duration,
        signals: &mut Signals,
    ) -> leasehold::Result<(Option<Run>, Option<Signal>)> {
        let timed = self.time(warm_up, span, signals).await;
        // Leases are released before any error is returned.
        let summary = self.stop().await;
        let (span, signal) = timed?;
        let summary = summary?;
        self.check_success()?;
        let tasks = self.tasks;
        let run = span.map(|span| Run {
            tasks,
            span,
            summary,
        });
        Ok((run, signal))
    }

    /// Waits for the warm-up and the measured time. Returns how long was measured, if at all, and the signal that ended it
    /// early.
    async fn time(
        &mut self,
        warm_up: Duration,
        span: Duration,
        signals: &mut Signals,
    ) -> leasehold::Result<(Option<Duration>, Option<Signal>)> {
        let progress = Progress::new(self.tasks, warm_up + span);
        if let Some(signal) = self.wait(warm_up, signals, &progress).await? {
            return Ok((None, Some(signal)));
        }
        self.check_success()?;
        self.phase.send_replace(Phase::Measuring);
        let started = Instant::now();
        let signal = self.wait(span, signals, &progress).await?;
        Ok((Some(started.elapsed()), signal))
    }

    /// Fails with the first error if every cycle so far has failed.
    fn check_success(&self) -> leasehold::Result<()> {
        self.live.failure().map_or(Ok(()), Err)
    }

    /// Waits for this time, or until a signal or the failure of a worker.
    async fn wait(
        &mut self,
        span: Duration,
        signals: &mut Signals,
        progress: &Progress,
    ) -> leasehold::Result<Option<Signal>> {
        let mut end = std::pin::pin!(tokio::time::sleep(span));
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                () = &mut end => return Ok(None),
                signal = signals.end() => return Ok(Some(signal)),
                Some(ended) = self.workers.join_next() => {
                    ended.expect("a task does not panic")?;
                }
                _ = ticks.tick() => progress.show(self.live.cycles()),
            }
        }
    }

    /// Stops all workers, and adds up their measurements.
    async fn stop(&mut self) -> leasehold::Result<Summary> {
        self.phase.send_replace(Phase::Stopping);
        let mut sum = Summary::new();
        let mut timeout = std::pin::pin!(tokio::time::sleep(STOP_TIMEOUT));
        loop {
            tokio::select! {
                ended = self.workers.join_next() => match ended {
                    Some(summary) => sum.add(&summary.expect("a task does not panic")?),
                    None => return Ok(sum),
                },
                () = &mut timeout, if *self.phase.borrow() == Phase::Stopping => {
                    self.phase.send_replace(Phase::Cancelled);
                }
            }
        }
    }
}

/// A progress bar, if there is a terminal. It disappears at the end of the run.
struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    fn new(tasks: u16, span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let style = ProgressStyle::with_template("{prefix:>10}  {bar:40}  {msg}");
        let style = style.expect("the template is valid").progress_chars("━╸─");
        let bar = ProgressBar::new(millis)
            .with_style(style)
            .with_prefix(report::tasks(tasks));
        let started = Instant::now();
        Self { bar, started }
    }

    fn show(&self, cycles: u64) {
        let elapsed = self.started.elapsed();
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
