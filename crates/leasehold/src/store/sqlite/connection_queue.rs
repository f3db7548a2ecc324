//! A thread with a connection of its own, behind a bounded queue.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{Error, Result};

/// How many calls may queue up. An engine sends few at a time; the rest of them waits there.
const QUEUE: usize = 64;
/// How long a call may take, queueing included: longer than another process may keep the file locked.
const PATIENCE: Duration = Duration::from_secs(10);
/// A call that takes longer than this must not keep a caller's thread.
const LONG: Duration = Duration::from_millis(5);
/// So many calls are left to the lane's own thread after one that took long: twice as many each time in a row, because a
/// disk hesitates now and then, or hangs.
const WARY: RangeInclusive<u32> = 4..=256;
const DEAD: &str = "the thread of the SQLite file has died";

thread_local! {
    /// Whether this thread runs a call for its caller, and must not wait for other processes.
    static HURRIED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the call that this thread runs may wait for other processes.
pub(super) fn may_wait() -> bool {
    !HURRIED.get()
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Where a lane's thread takes what it does from.
pub(super) struct Queue(SyncSender<Job>);

impl Queue {
    /// Has the thread do this some time, unless there is too much to do.
    pub(super) fn put(&self, work: impl FnOnce(&mut Connection) + Send + 'static) {
        let _ = self.0.try_send(Box::new(work));
    }
}

/// What an unanswered call that had begun may have done.
#[derive(Clone, Copy)]
pub(super) enum Doubt {
    /// It only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// Runs one call after the other. Ends, and closes its connection, when it is dropped.
pub(super) struct Lane {
    connection: Arc<Mutex<Connection>>,
    jobs: SyncSender<Job>,
    doubt: Doubt,
    /// How many calls are left to the thread before the next is run [here](Self::here) again…
    wary: AtomicU32,
    /// …and how many will be should that one take long.
    warier: AtomicU32,
}

impl Lane {
    pub(super) fn spawn(name: &str, doubt: Doubt, connection: Connection) -> Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(QUEUE);
        let connection = Arc::new(Mutex::new(connection));
        let own = Arc::clone(&connection);
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    job(&mut lock(&own));
                }
            })
            .map_err(|error| Error::Unavailable(format!("no thread for {name}: {error}")))?;
        Ok(Self {
            connection,
            jobs,
            doubt,
            wary: AtomicU32::new(0),
            warier: AtomicU32::new(*WARY.start()),
        })
    }

    pub(super) fn queue(&self) -> Queue {
        Queue(self.jobs.clone())
    }

    /// Runs it on the caller's thread: waking another one and being woken by it takes longer than a commit. `None` if
    /// that is not possible now, because the connection is in use, or calls have begun to take long: then it has not
    /// run.
    pub(super) fn here<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        let wary = |left: u32| left.checked_sub(1);
        if self
            .wary
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, wary)
            .is_ok()
        {
            return None;
        }
        let mut connection = self.connection.try_lock().ok()?;
        let since = Instant::now();
        let result = HURRIED.with(|hurried| {
            hurried.set(true);
            let result = work(&mut connection);
            hurried.set(false);
            result
        });
        let warier = if since.elapsed() > LONG {
            let wary = self.warier.load(Ordering::Relaxed);
            self.wary.store(wary, Ordering::Relaxed);
            (2 * wary).min(*WARY.end())
        } else {
            *WARY.start()
        };
        self.warier.store(warier, Ordering::Relaxed);
        Some(result)
    }

    /// What `work` returns, in bounded time. An error of the lane itself is [`Error::Unavailable`] if `work` surely
    /// never ran.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_within(PATIENCE, work).await
    }

    async fn run_within<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        // Set by whoever is first: the thread to begin, or the caller to give up before it could.
        let decided = Arc::new(AtomicBool::new(false));
        let begun = decided.clone();
        let job = Box::new(move |connection: &mut Connection| {
            // Nobody waits for a call that was dropped: better not to begin it.
            if !reply.is_closed() && !begun.swap(true, Ordering::AcqRel) {
                let _ = reply.send(work(connection));
            }
        });
        self.jobs.try_send(job).map_err(|error| {
            Error::Unavailable(match error {
                TrySendError::Full(_) => {
                    format!("{QUEUE} calls wait for the SQLite file already: try again")
                }
                TrySendError::Disconnected(_) => DEAD.into(),
            })
        })?;
        let problem = match tokio::time::timeout(patience, answer).await {
            Ok(Ok(result)) => return result,
            Ok(Err(_)) => DEAD.into(),
            Err(_) => format!("the SQLite file did not answer for {patience:?}"),
        };
        let begun = decided.swap(true, Ordering::AcqRel);
        Err(match self.doubt {
            Doubt::MayHaveWritten if begun => Error::Indeterminate(problem),
            _ => Error::Unavailable(problem),
        })
    }
}

/// A connection after a panic: SQLite has rolled back what was not committed.
fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn lane(doubt: Doubt) -> Lane {
        let connection = Connection::open_in_memory().unwrap();
        Lane::spawn("lane-test", doubt, connection).unwrap()
    }

    #[tokio::test]
    async fn a_hung_call_and_those_behind_it_end_in_bounded_time() {
        let lane = Arc::new(lane(Doubt::MayHaveWritten));
        let (begin, has_begun) = oneshot::channel();
        let (go, hung) = mpsc::channel::<()>();
        let hanging = lane.clone();
        let stuck = tokio::spawn(async move {
            let hang = move |_: &mut Connection| {
                let _ = begin.send(());
                let _ = hung.recv();
                Ok(())
            };
            hanging.run_within(Duration::from_millis(500), hang).await
        });
        has_begun.await.unwrap();
        let (ran, has_run) = mpsc::channel();
        let behind = lane.run_within(SHORT, move |_| Ok(ran.send(()))).await;
        assert!(matches!(behind, Err(Error::Unavailable(_))), "{behind:?}");
        let stuck = stuck.await.unwrap();
        assert!(matches!(stuck, Err(Error::Indeterminate(_))), "{stuck:?}");

        drop(go);
        lane.run(|_| Ok(())).await.unwrap();
        // `Unavailable` promised that it never ran.
        assert!(has_run.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_call_runs_here_unless_the_connection_is_in_use() {
        let lane = lane(Doubt::None);
        let here = std::thread::current().id();
        assert_eq!(lane.here(|_| std::thread::current().id()), Some(here));
        assert_eq!(lane.here(|_| may_wait()), Some(false));
        assert!(may_wait(), "only the call itself is in a hurry");

        let (begin, has_begun) = mpsc::channel();
        let (go, hung) = mpsc::channel::<()>();
        let hang = move |_: &mut Connection| {
            begin.send(may_wait()).unwrap();
            let _ = hung.recv();
        };
        lane.jobs.send(Box::new(hang)).unwrap();
        assert!(has_begun.recv().unwrap(), "the thread may wait for others");
        assert_eq!(lane.here(|_| ()), None);
        drop(go);
        while lane.here(|_| ()).is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn after_a_long_call_the_next_ones_are_left_to_the_thread() {
        let lane = lane(Doubt::None);
        let long = |_: &mut Connection| std::thread::sleep(LONG + Duration::from_millis(1));
        let left = || (0..).take_while(|_| lane.here(|_| ()).is_none()).count();
        let left_after_long = || {
            assert_eq!(lane.here(long), Some(()));
            // The call that ends it is a short one.
            left()
        };
        assert_eq!(left_after_long(), 4);
        assert_eq!(left_after_long(), 4, "a short one came between them");
        let mut expected = 4;
        for _ in 0..10 {
            assert_eq!(lane.here(long), Some(()));
            for call in 0..expected {
                assert_eq!(lane.here(|_| ()), None, "{call} of {expected}");
            }
            expected = (2 * expected).min(256);
        }
        assert_eq!(left(), 0);
        assert_eq!(left_after_long(), 4);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_at_once() {
        let lane = lane(Doubt::None);
        let (begin, has_begun) = mpsc::channel();
        let (go, hung) = mpsc::channel::<()>();
        // Straight into the queue: nobody waits for these.
        lane.jobs
            .send(Box::new(move |_| {
                begin.send(()).unwrap();
                let _ = hung.recv();
            }))
            .unwrap();
        has_begun.recv().unwrap();
        for _ in 0..QUEUE {
            lane.jobs.try_send(Box::new(|_| ())).unwrap();
        }
        let refused = lane.run(|_| Ok(())).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        drop(go);
    }

    #[tokio::test]
    async fn a_call_that_panics_is_an_error_and_so_is_every_later_one() {
        let lane = lane(Doubt::MayHaveWritten);
        let died: Result<()> = lane.run(|_| panic!("a bug, on purpose")).await;
        assert!(matches!(died, Err(Error::Indeterminate(_))), "{died:?}");
        let late = lane.run(|_| Ok(())).await;
        assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
    }
}
