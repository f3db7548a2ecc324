//! Keeps a thread awake while what it waits for is likely to be here soon.
//!
//! A thread that sleeps takes as long to wake as a near database takes to answer, on a virtual machine several times as
//! long. So whoever waits for one answer looks for it for a moment before it sleeps, as long as that turns out to be
//! worth it.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often to look for an answer: for a few hundred microseconds where nobody else has anything to do, and longer otherwise,
/// when nothing is lost by it. Counted, because a clock would make simulations differ.
const LOOKS: u32 = 512;
/// How often to pass over looking, at most, when it was not worth it.
const RARELY: u32 = 256;

/// Whether looking is worth it: as long as it was, and else more and more rarely.
#[derive(Debug, Default)]
pub struct Worth {
    /// How often to pass it over before trying again…
    pass: AtomicU32,
    /// …and how often it was passed over before the last time.
    passed: AtomicU32,
}

impl Worth {
    /// Whether to try it now.
    pub fn a_try(&self) -> bool {
        let pass = self.pass.load(Ordering::Relaxed);
        if pass > 0 {
            self.pass.store(pass - 1, Ordering::Relaxed);
        }
        pass == 0
    }

    /// It was tried, and was worth it or not.
    pub fn turned_out(&self, worth_it: bool) {
        let passed = self.passed.load(Ordering::Relaxed);
        let pass = match worth_it {
            true => 0,
            false => (2 * passed + 1).min(RARELY),
        };
        self.passed.store(pass, Ordering::Relaxed);
        self.pass.store(pass, Ordering::Relaxed);
    }

    /// Waits for an answer, and stays awake for the first moment of it where that is worth it. On a runtime with more than
    /// one thread another one may sleep in its place, so there it does not.
    pub(crate) async fn look_for<T>(&self, answer: impl Future<Output = T>) -> T {
        if !may_look() || !self.a_try() {
            return answer.await;
        }
        let mut answer = pin!(answer);
        for _ in 0..LOOKS {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    self.turned_out(true);
                    return answer;
                }
                // Everybody else who is ready goes first.
                () = tokio::task::yield_now() => {}
            }
        }
        self.turned_out(false);
        answer.await
    }
}

/// Whether the thread that would look is the one that would sleep.
pub fn may_look() -> bool {
    tokio::runtime::Handle::current().metrics().num_workers() == 1
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    /// How often it is passed over before it is tried.
    fn passes(worth: &Worth) -> usize {
        (0..).take_while(|_| !worth.a_try()).count()
    }

    #[test]
    fn what_is_not_worth_it_is_tried_more_and_more_rarely() {
        let worth = Worth::default();
        for expected in [0, 1, 3, 7, 15, 31, 63, 127, 255, 256, 256] {
            assert_eq!(passes(&worth), expected);
            worth.turned_out(false);
        }
        passes(&worth);
        worth.turned_out(true);
        assert_eq!(passes(&worth), 0);
        worth.turned_out(false);
        assert_eq!(passes(&worth), 1);
    }

    /// An answer that never says that it is there: only who looks finds it.
    async fn unannounced() {
        let mut looked = 0;
        poll_fn(|_| {
            looked += 1;
            match looked {
                3 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    #[tokio::test]
    async fn an_answer_is_looked_for() {
        let worth = Worth::default();
        for _ in 0..3 {
            worth.look_for(unannounced()).await;
        }
    }

    #[tokio::test]
    async fn an_answer_that_does_not_come_soon_is_waited_for() {
        let worth = Worth::default();
        let (tell, told) = tokio::sync::oneshot::channel();
        let wait = worth.look_for(told);
        let tell = async {
            while worth.passed.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            tell.send(()).unwrap();
        };
        let (told, ()) = tokio::join!(wait, tell);
        assert!(told.is_ok());
        assert_eq!(passes(&worth), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn with_several_threads_nobody_looks() {
        let worth = Worth::default();
        let sleeping = worth.look_for(pending::<()>());
        let slept = tokio::time::timeout(Duration::from_millis(10), sleeping).await;
        assert!(slept.is_err());
        assert_eq!(worth.passed.load(Ordering::Relaxed), 0);
        worth.look_for(ready(())).await;
    }
}
