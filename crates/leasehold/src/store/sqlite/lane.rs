//! A thread with a connection of its own, behind a bounded queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{Error, Result};

/// How many calls may queue up. An engine sends few at a time; the rest of them waits there.
const QUEUE: usize = 64;
/// How long a call may take, queueing included: longer than another process may keep the file locked.
const PATIENCE: Duration = Duration::from_secs(10);
const DEAD: &str = "the thread of the SQLite file has died";

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

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
    jobs: SyncSender<Job>,
    doubt: Doubt,
}

impl Lane {
    pub(super) fn spawn(name: &str, doubt: Doubt, mut connection: Connection) -> Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(QUEUE);
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    job(&mut connection);
                }
            })
            .map_err(|error| Error::Unavailable(format!("no thread for {name}: {error}")))?;
        Ok(Self { jobs, doubt })
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
