//! Requests of many tasks that go together: one round trip carries all that were asked for while others were under way.
//!
//! The first few go by themselves, on a connection each, and wait for nobody. What is not answered at once, as when
//! somebody waits in line, always does.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use tokio::sync::oneshot;

use super::connection::Lost;
use super::leases::json;
use super::{ANSWER, Answered, Ask, Remote};
use crate::wire::{Answers, GrantedAs, Lease, MAX_REQUESTS, Requests, Single};

/// Up to so many are under way by themselves.
const ALONE: usize = 4;
/// How many exchanges of many are under way, so that both sides have something to do.
const EXCHANGES: usize = 2;
/// One that takes longer is not waited for…
const SLOW: Duration = Duration::from_millis(10);
/// …unless there are as many of those.
const SLOW_MOST: usize = 16;
/// A larger body goes by itself.
const SMALL: usize = 1024;
/// Bytes of one exchange, at least: half of what a service takes.
const EXCHANGE_BYTES: usize = 512 * 1024;

/// What goes together with others.
#[derive(Default)]
pub(super) struct Together {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Not sent yet.
    waiting: VecDeque<Asked>,
    /// Asked for and not answered, however they go…
    under_way: usize,
    /// …and those of them that were sent together.
    sent: usize,
    /// Exchanges that are soon answered, as far as is known.
    prompt: usize,
    slow: usize,
}

struct Asked {
    ask: Ask,
    /// Who waits for the answer, if anybody does.
    tell: Option<oneshot::Sender<Result<Answered, Lost>>>,
}

impl Asked {
    fn is_given_up(&self) -> bool {
        self.tell.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// How many bytes it takes at most.
    fn most_bytes(&self) -> usize {
        let escaped = 6 * self.ask.body.len();
        self.ask.target.own_part().len() + escaped + 512
    }
}

/// How a request goes.
pub(super) enum Goes<'a> {
    /// By itself.
    Alone(Ask, Option<UnderWay<'a>>),
    /// With others.
    Together(oneshot::Receiver<Result<Answered, Lost>>, UnderWay<'a>),
}

/// Counts one that is under way.
pub(super) struct UnderWay<'a>(&'a Together);

impl UnderWay<'_> {
    /// Whether there is no other.
    pub(super) fn is_alone(&self) -> bool {
        self.0.state().under_way == 1
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state().under_way -= 1;
    }
}

impl Together {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next ones to send: a part of all, so that each exchange has some.
    fn next(&mut self) -> Vec<Asked> {
        self.waiting.retain(|asked| !asked.is_given_up());
        let all = self.waiting.len() + self.sent;
        let part = all.div_ceil(EXCHANGES).min(MAX_REQUESTS);
        let mut bytes = 0;
        let fits = |asked: &&Asked| {
            bytes += asked.most_bytes();
            bytes <= EXCHANGE_BYTES
        };
        let part = self.waiting.iter().take(part).take_while(fits).count();
        self.sent += part;
        self.waiting.drain(..part).collect()
    }

    fn uncount(&mut self, exchange: Counted) {
        match exchange {
            Counted::Prompt => self.prompt -= 1,
            Counted::Slow => self.slow -= 1,
            Counted::No => {}
        }
    }
}

impl Remote {
    /// Decides how a request goes.
    pub(super) fn send(&self, ask: Ask) -> Goes<'_> {
        if !ask.quick || ask.body.len() > SMALL {
            return Goes::Alone(ask, None);
        }
        let together = &self.inner.together;
        let mut state = together.state();
        state.under_way += 1;
        let under_way = UnderWay(together);
        if state.under_way <= ALONE {
            return Goes::Alone(ask, Some(under_way));
        }
        let (tell, told) = oneshot::channel();
        let tell = Some(tell);
        state.waiting.push_back(Asked { ask, tell });
        if state.prompt < EXCHANGES {
            Exchange::begin(self, &mut state);
        }
        Goes::Together(told, under_way)
    }

    /// Sends these in one request.
    async fn send_together(&self, asked: Vec<Asked>) {
        let singles = asked.iter().map(|asked| asked.ask.single());
        let body = json(&Requests {
            requests: singles.collect(),
        });
        let all = Ask {
            body,
            ..Ask::new(Method::POST, self.inner.url.route("/requests"))
        };
        match self.attempt_alone(all, ANSWER).await {
            Ok(answered) => {
                let answers = self.each(&answered, asked.len());
                for (asked, (status, body)) in asked.into_iter().zip(answers) {
                    let one = Answered {
                        status,
                        body,
                        ..answered
                    };
                    self.tell(asked, Ok(one));
                }
            }
            Err(lost) => {
                for asked in asked {
                    self.tell(asked, Err(lost.clone()));
                }
            }
        }
    }

    /// The answer to each of so many. One that does not answer each is the answer to all.
    fn each(&self, answered: &Answered, count: usize) -> Vec<(StatusCode, Bytes)> {
        let status = |number| StatusCode::from_u16(number).unwrap_or(StatusCode::BAD_GATEWAY);
        match self.read::<Answers>(answered) {
            Ok(Answers { answers }) if answers.len() == count => {
                let answers = answers.into_iter();
                let bytes = |body: Box<_>| Bytes::from(String::from(Box::<str>::from(body)));
                answers
                    .map(|answer| (status(answer.status), bytes(answer.body)))
                    .collect()
            }
            _ => vec![(answered.status, answered.body.clone()); count],
        }
    }

    fn tell(&self, asked: Asked, answer: Result<Answered, Lost>) {
        let Some(tell) = asked.tell else {
            return;
        };
        if let Err(Ok(unheard)) = tell.send(answer)
            && let Some(name) = asked.ask.takes
            && let Ok(lease) = self.read::<Lease>(&unheard)
            && lease.granted == Some(GrantedAs::Fresh)
        {
            // Nobody has it, and nobody else would get it before its ttl is over.
            let target = self.inner.url.lease(&name, &format!("/{}", lease.fence));
            self.inner.together.state().waiting.push_back(Asked {
                ask: Ask::quick(Method::DELETE, target),
                tell: None,
            });
        }
    }
}

impl Ask {
    fn single(&self) -> Single<'_> {
        let target = match &self.nonce {
            Some(nonce) => self
                .target
                .clone()
                .with("nonce", nonce.expose())
                .own_part()
                .to_owned()
                .into(),
            None => self.target.own_part().into(),
        };
        Single {
            method: self.method.as_str().into(),
            target,
            body: std::str::from_utf8(&self.body).unwrap_or_default().into(),
        }
    }
}

/// Sends what there is to send, until there is nothing.
struct Exchange {
    remote: Remote,
    counted: Counted,
}

/// How an exchange is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    Prompt,
    Slow,
    /// It has ended.
    No,
}

impl Exchange {
    fn begin(remote: &Remote, state: &mut State) {
        state.prompt += 1;
        let exchange = Self {
            remote: remote.clone(),
            counted: Counted::Prompt,
        };
        tokio::spawn(exchange.go_on());
    }

    async fn go_on(mut self) {
        let remote = self.remote.clone();
        loop {
            // Whoever was just answered asks first.
            tokio::task::yield_now().await;
            let next = self.next();
            if next.is_empty() {
                return;
            }
            let _sent = Sent(&remote.inner.together, next.len());
            let mut sending = std::pin::pin!(remote.send_together(next));
            if tokio::time::timeout(SLOW, &mut sending).await.is_err() {
                self.give_way();
                sending.await;
            }
        }
    }

    /// The next ones to send. With none, or with enough others to send them, this has ended: whoever comes now and
    /// finds too few begins another.
    fn next(&mut self) -> Vec<Asked> {
        let mut state = self.remote.inner.together.state();
        state.uncount(self.counted);
        self.counted = Counted::No;
        if state.prompt >= EXCHANGES {
            return Vec::new();
        }
        let next = state.next();
        if !next.is_empty() {
            state.prompt += 1;
            self.counted = Counted::Prompt;
        }
        next
    }

    /// Lets another one begin, since nobody knows how long this will take.
    fn give_way(&mut self) {
        let mut state = self.remote.inner.together.state();
        if state.slow < SLOW_MOST {
            state.uncount(self.counted);
            state.slow += 1;
            self.counted = Counted::Slow;
            if !state.waiting.is_empty() && state.prompt < EXCHANGES {
                Self::begin(&self.remote, &mut state);
            }
        }
    }
}

impl Drop for Exchange {
    /// If it was broken off, with its runtime, so is everything that waits for it.
    fn drop(&mut self) {
        if self.counted != Counted::No {
            let mut state = self.remote.inner.together.state();
            state.uncount(self.counted);
            state.waiting.clear();
        }
    }
}

/// Counts those that were sent together.
struct Sent<'a>(&'a Together, usize);

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.0.state().sent -= self.1;
    }
}
