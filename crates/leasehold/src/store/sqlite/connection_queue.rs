//! A connection with a thread of its own, behind a bounded queue.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{Error, Result};

/// The maximum number of queued calls. An engine sends few at a time and queues the rest itself.
const QUEUE: usize = 64;
/// How long a call may take including queueing: longer than another process may keep the file locked.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A call that takes longer than this must not run on the caller's thread.
const SLOW_CALL: Duration = Duration::from_millis(5);
/// How many calls run on the connection's thread after a slow inline one. Doubled each time in a row, because a disk
/// may be slow once or hang.
const SKIPPED_CALLS: RangeInclusive<u32> = 4..=256;
const THREAD_PANICKED: &str = "the thread of the SQLite file panicked: restart this process";

thread_local! {
    /// Whether this thread runs a call inline for its caller, and must not wait for other processes.
    static IS_INLINE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the call on this thread may wait for other processes.
pub(super) fn can_wait() -> bool {
    !IS_INLINE.get()
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The sender of a connection's job queue.
pub(super) struct JobSender(SyncSender<Job>);

impl JobSender {
    /// Queues a job; drops it if the queue is full.
    pub(super) fn send(&self, work: impl FnOnce(&mut Connection) + Send + 'static) {
        let _ = self.0.try_send(Box::new(work));
    }
}

/// Whether an unanswered call that had begun is ambiguous.
#[derive(Clone, Copy)]
pub(super) enum Ambiguity {
    /// It only reads.
    None,
    /// It may have written.
    MayHaveWritten,
}

/// Runs calls one after the other. Closes its connection when dropped.
pub(super) struct ConnectionQueue {
    connection: Arc<Mutex<Connection>>,
    jobs: SyncSender<Job>,
    ambiguity: Ambiguity,
    /// How many calls to run on the thread before the next one runs [inline](Self::try_inline) again…
    skip: AtomicU32,
    /// …and how many after the next slow one.
    next_skip: AtomicU32,
}

impl ConnectionQueue {
    pub(super) fn spawn(name: &str, ambiguity: Ambiguity, connection: Connection) -> Result<Self> {
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
            .map_err(|error| {
                Error::Unavailable(format!("cannot start the thread {name}: {error}"))
            })?;
        Ok(Self {
            connection,
            jobs,
            ambiguity,
            skip: AtomicU32::new(0),
            next_skip: AtomicU32::new(*SKIPPED_CALLS.start()),
        })
    }

    pub(super) fn sender(&self) -> JobSender {
        JobSender(self.jobs.clone())
    }

    /// Runs the call on the caller's thread, because switching to another thread and back takes longer than a commit.
    /// Returns `None` without running it if the connection is in use or calls have become slow.
    pub(super) fn try_inline<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        let skip = |left: u32| left.checked_sub(1);
        if self
            .skip
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, skip)
            .is_ok()
        {
            return None;
        }
        let mut connection = self.connection.try_lock().ok()?;
        let since = Instant::now();
        let result = IS_INLINE.with(|is_inline| {
            is_inline.set(true);
            let result = work(&mut connection);
            is_inline.set(false);
            result
        });
        let next_skip = if since.elapsed() > SLOW_CALL {
            let skip = self.next_skip.load(Ordering::Relaxed);
            self.skip.store(skip, Ordering::Relaxed);
            (2 * skip).min(*SKIPPED_CALLS.end())
        } else {
            *SKIPPED_CALLS.start()
        };
        self.next_skip.store(next_skip, Ordering::Relaxed);
        Some(result)
    }

    /// Returns the result of `work` in bounded time. An error of the queue itself is [`Error::Unavailable`] if `work`
    /// certainly never ran.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_within(CALL_TIMEOUT, work).await
    }

    async fn run_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        // Set either by the thread when it begins, or by the caller when it gives up before that.
        let decided = Arc::new(AtomicBool::new(false));
        let begun = decided.clone();
        let job = Box::new(move |connection: &mut Connection| {
            // The caller has dropped the call: do not begin it.
            if !reply.is_closed() && !begun.swap(true, Ordering::AcqRel) {
                let _ = reply.send(work(connection));
            }
        });
        self.jobs.try_send(job).map_err(|error| {
            Error::Unavailable(match error {
                TrySendError::Full(_) => {
                    format!("the queue of the SQLite file is full ({QUEUE} calls): try again")
                }
                TrySendError::Disconnected(_) => THREAD_PANICKED.into(),
            })
        })?;
        let problem = match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(result)) => return result,
            Ok(Err(_)) => THREAD_PANICKED.into(),
            Err(_) => format!("the SQLite file did not answer for {timeout:?}"),
        };
        let begun = decided.swap(true, Ordering::AcqRel);
        Err(match self.ambiguity {
            Ambiguity::MayHaveWritten if begun => Error::Indeterminate(problem),
            _ => Error::Unavailable(problem),
        })
    }
}

/// Locks a connection, also after a panic: SQLite has rolled back what was not committed.
fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn queue_with(ambiguity: Ambiguity) -> ConnectionQueue {
        let connection = Connection::open_in_memory().unwrap();
        ConnectionQueue::spawn("queue-test", ambiguity, connection).unwrap()
    }

    #[tokio::test]
    async fn hung_call_and_calls_queued_behind_it_time_out() {
        let queue = Arc::new(queue_with(Ambiguity::MayHaveWritten));
        let (begin, has_begun) = oneshot::channel();
        let (go, hung) = mpsc::channel::<()>();
        let hanging = queue.clone();
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
        let behind = queue.run_within(SHORT, move |_| Ok(ran.send(()))).await;
        assert!(matches!(behind, Err(Error::Unavailable(_))), "{behind:?}");
        let stuck = stuck.await.unwrap();
        assert!(matches!(stuck, Err(Error::Indeterminate(_))), "{stuck:?}");

        drop(go);
        queue.run(|_| Ok(())).await.unwrap();
        // `Unavailable` promised that it never ran.
        assert!(has_run.try_recv().is_err());
    }

    #[tokio::test]
    async fn call_runs_inline_unless_the_connection_is_in_use() {
        let queue = queue_with(Ambiguity::None);
        let here = std::thread::current().id();
        assert_eq!(
            queue.try_inline(|_| std::thread::current().id()),
            Some(here)
        );
        assert_eq!(queue.try_inline(|_| can_wait()), Some(false));
        assert!(can_wait(), "only the inline call must not wait");

        let (begin, has_begun) = mpsc::channel();
        let (go, hung) = mpsc::channel::<()>();
        let hang = move |_: &mut Connection| {
            begin.send(can_wait()).unwrap();
            let _ = hung.recv();
        };
        queue.jobs.send(Box::new(hang)).unwrap();
        assert!(
            has_begun.recv().unwrap(),
            "the connection's thread may wait"
        );
        assert_eq!(queue.try_inline(|_| ()), None);
        drop(go);
        while queue.try_inline(|_| ()).is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn calls_after_a_slow_one_run_on_the_thread() {
        let queue = queue_with(Ambiguity::None);
        let long = |_: &mut Connection| std::thread::sleep(SLOW_CALL + Duration::from_millis(1));
        let left = || {
            (0..)
                .take_while(|_| queue.try_inline(|_| ()).is_none())
                .count()
        };
        let left_after_long = || {
            assert_eq!(queue.try_inline(long), Some(()));
            // The first call that runs inline again is a fast one.
            left()
        };
        assert_eq!(left_after_long(), 4);
        assert_eq!(left_after_long(), 4, "a fast call came between them");
        let mut expected = 4;
        for _ in 0..10 {
            assert_eq!(queue.try_inline(long), Some(()));
            for call in 0..expected {
                assert_eq!(queue.try_inline(|_| ()), None, "{call} of {expected}");
            }
            expected = (2 * expected).min(256);
        }
        assert_eq!(left(), 0);
        assert_eq!(left_after_long(), 4);
    }

    #[tokio::test]
    async fn full_queue_refuses_calls_immediately() {
        let queue = queue_with(Ambiguity::None);
        let (begin, has_begun) = mpsc::channel();
        let (go, hung) = mpsc::channel::<()>();
        // Fill the queue directly: no caller waits for these jobs.
        queue
            .jobs
            .send(Box::new(move |_| {
                begin.send(()).unwrap();
                let _ = hung.recv();
            }))
            .unwrap();
        has_begun.recv().unwrap();
        for _ in 0..QUEUE {
            queue.jobs.try_send(Box::new(|_| ())).unwrap();
        }
        let refused = queue.run(|_| Ok(())).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        drop(go);
    }

    #[tokio::test]
    async fn calls_fail_during_and_after_a_panic() {
        let queue = queue_with(Ambiguity::MayHaveWritten);
        let died: Result<()> = queue.run(|_| panic!("a bug, on purpose")).await;
        assert!(matches!(died, Err(Error::Indeterminate(_))), "{died:?}");
        let late = queue.run(|_| Ok(())).await;
        assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
    }
}
