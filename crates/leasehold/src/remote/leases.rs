//! Requests as HTTP, and answers as what was asked for.

use std::time::Duration;

use async_trait::async_trait;
use hyper::Method;
use hyper::body::Bytes;
use leasehold_core::{Kind, Mode, Name, View};

use super::work::locks_only;
use super::{ANSWER, Answered, Ask, Remote, Repeat, wait_left};
use crate::leases::{
    AcquireAllRequest, AcquireRequest, Acquired, AcquiredAll, BreakRequest, Broke, ClaimRequest,
    Claimed, Holding, Leases, ListRequest, Listing, PutRequest, RenewRequest, Renewed,
    UpdateRequest, Updated,
};
use crate::wire::{
    BreakHow, Broken, Gates, Heartbeat, HeartbeatAnswer, Heartbeats, HeartbeatsAnswer, Lease,
    LockView, Locks, MAX_HEARTBEATS, MAX_PAGE, MAX_WAIT, Released, Trouble,
};
use crate::{Error, Result, duration};

#[async_trait]
impl Leases for Remote {
    async fn acquire(&self, request: AcquireRequest) -> Result<Acquired> {
        let wait = request.wait.min(MAX_WAIT);
        let answered = self
            .call(Repeat::Safe, wait + ANSWER, |elapsed| {
                self.ask_to_acquire(&request, wait_left(wait, elapsed))
            })
            .await?;
        match self.read::<Lease>(&answered) {
            Ok(lease) => lease
                .into_hold(answered.sent)
                .map(Acquired::Granted)
                .ok_or_else(|| answered.foreign(&self.inner.url)),
            Err(Error::Held(held)) => Ok(Acquired::Held(held)),
            Err(error) => Err(error),
        }
    }

    async fn acquire_all(&self, request: AcquireAllRequest) -> Result<AcquiredAll> {
        self.take_all(request).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>> {
        self.claim_items(request).await
    }

    async fn put(&self, request: PutRequest) -> Result<()> {
        self.put_item(request).await
    }

    async fn remove(&self, name: &Name) -> Result<()> {
        self.remove_item(name).await
    }

    fn longest_wait(&self) -> Duration {
        MAX_WAIT
    }

    async fn renew(&self, requests: Vec<RenewRequest>, within: Duration) -> Vec<Result<Renewed>> {
        let started = std::time::Instant::now();
        // Back before the time is over, not when it is.
        let within = within - within / 10;
        let mut renewed = Vec::with_capacity(requests.len());
        for some in requests.chunks(MAX_HEARTBEATS) {
            let left = within.saturating_sub(started.elapsed());
            match self.renew_some(some, left).await {
                Ok(answers) => renewed.extend(answers),
                Err(error) => renewed.extend(some.iter().map(|_| Err(error.clone()))),
            }
        }
        renewed
    }

    async fn update(&self, request: UpdateRequest) -> Result<Updated> {
        // On the wire an empty state is none: it would be cleared instead of refused.
        if matches!(&request.state, Some(Some(label)) if label.is_empty()) {
            return Err(Error::invalid("the state is empty: give a short label"));
        }
        // A repeated update that goes on holding could arrive late and undo the one after it.
        let repeat = if request.then_release {
            Repeat::Safe
        } else {
            Repeat::Never
        };
        let answered = self
            .call(repeat, ANSWER, |_| self.ask_to_update(&request))
            .await?;
        let read = if request.then_release {
            self.read::<Released>(&answered).map(|_| Updated::Completed)
        } else {
            self.read::<Lease>(&answered)
                .map(|lease| Updated::Renewed(lease.into_renewed(answered.sent)))
        };
        match read {
            Err(Error::Fenced | Error::Expired) if answered.repeated => Err(Error::Indeterminate(
                "the first answer was lost, and the fence holds no more: the update may have been written".into(),
            )),
            other => other,
        }
    }

    async fn release(&self, name: &Name, who: Holding) -> Result<bool> {
        let (rest, nonce) = match who {
            Holding::Fence(fence) => (format!("/{fence}"), None),
            Holding::Nonce(nonce) => (String::new(), Some(nonce)),
        };
        let answered = self
            .call(Repeat::Safe, ANSWER, |_| Ask {
                nonce: nonce.clone(),
                ..Ask::quick(Method::DELETE, self.inner.url.lease(name, &rest))
            })
            .await?;
        match self.read::<Released>(&answered)?.released {
            // A record remembers how its last exclusive holder ended, and of others nothing.
            false if answered.repeated => Err(Error::Indeterminate(
                "the first answer was lost, and the lease is not held: it may have been released or lost".into(),
            )),
            released => Ok(released),
        }
    }

    async fn break_lease(&self, name: &Name, how: BreakRequest) -> Result<Broke> {
        let body = json(&BreakHow::from(how));
        let answered = self
            .call(Repeat::Never, ANSWER, |_| Ask {
                body: body.clone(),
                ..Ask::new(Method::POST, self.inner.url.lease(name, "/break"))
            })
            .await?;
        Ok(match self.read::<Broken>(&answered)? {
            Broken { broken: false, .. } => Broke::NotHeld,
            Broken { until: None, .. } => Broke::Free,
            Broken {
                until: Some(until), ..
            } => Broke::Until(until),
        })
    }

    async fn show(&self, name: &Name) -> Result<Option<View>> {
        let answered = self
            .call(Repeat::Read, ANSWER, |_| {
                Ask::quick(Method::GET, self.inner.url.lease(name, ""))
            })
            .await?;
        if let Ok(problem) = answered.problem(&self.inner.url)
            && problem.trouble == Trouble::NotFound
            && problem.name.is_some()
        {
            return Ok(None);
        }
        self.read::<LockView>(&answered)
            .map(|lock| Some(View::from(lock)))
    }

    async fn list(&self, request: ListRequest) -> Result<Listing> {
        let answered = self
            .call(Repeat::Read, ANSWER, |_| self.ask_to_list(&request))
            .await?;
        let (kind, views, cursor) = if request.gates {
            let page: Gates = self.read(&answered)?;
            (Kind::Gate, page.gates, page.cursor)
        } else {
            let page: Locks = self.read(&answered)?;
            (Kind::Lock, page.locks, page.cursor)
        };
        let leases = views.into_iter().map(|view| {
            let name = Name::new(kind, &view.name)?;
            Ok((name, View::from(view)))
        });
        let leases = leases.collect::<Result<_>>()?;
        Ok(Listing { leases, cursor })
    }
}

impl Remote {
    pub(super) fn read<T: serde::de::DeserializeOwned>(&self, answered: &Answered) -> Result<T> {
        answered.read(&self.inner.url)
    }

    fn ask_to_acquire(&self, request: &AcquireRequest, wait: Duration) -> Ask {
        let period = match request.name.kind() {
            Kind::Lock => "ttl",
            Kind::Gate => "every",
        };
        let mut target = self
            .inner
            .url
            .lease(&request.name, "")
            .with(period, &duration::format(request.ttl))
            .with("owner", &request.owner);
        if !wait.is_zero() {
            target = target.with("wait", &duration::format(wait));
        }
        if let Mode::Shared { limit } = request.mode {
            target = target.with("mode", "shared");
            if let Some(limit) = limit {
                target = target.with("limit", &limit.to_string());
            }
        }
        if let Some(fence) = request.fence {
            target = target.with("fence", &fence.to_string());
        }
        Ask {
            nonce: Some(request.nonce.clone()),
            quick: wait.is_zero(),
            takes: Some(request.name.clone()),
            ..Ask::new(Method::POST, target)
        }
    }

    fn ask_to_update(&self, request: &UpdateRequest) -> Ask {
        let mut target = self
            .inner
            .url
            .lease(&request.name, &format!("/{}", request.fence));
        if request.body.is_none() {
            target = target.with("body", "keep");
        }
        if let Some(state) = &request.state {
            target = target.with("state", state.as_deref().unwrap_or_default());
        }
        if request.then_release {
            target = target.with("release", "true");
        }
        let body = request.body.as_deref().unwrap_or_default();
        Ask {
            body: Bytes::copy_from_slice(body.as_bytes()),
            ..Ask::quick(Method::POST, target)
        }
    }

    fn ask_to_list(&self, request: &ListRequest) -> Ask {
        let collection = if request.gates { "/gates" } else { "/locks" };
        let mut target = self.inner.url.route(collection).with("bodies", "full");
        if !request.prefix.is_empty() {
            target = target.with("prefix", &request.prefix);
        }
        if let Some(state) = &request.state {
            target = target.with("state", state);
        }
        if let Some(held) = request.held {
            target = target.with("held", if held { "true" } else { "false" });
        }
        if let Some(cursor) = &request.cursor {
            target = target.with("cursor", cursor);
        }
        if request.limit != 0 {
            target = target.with("limit", &request.limit.min(MAX_PAGE).to_string());
        }
        Ask::new(Method::GET, target)
    }

    async fn renew_some(
        &self,
        requests: &[RenewRequest],
        within: Duration,
    ) -> Result<Vec<Result<Renewed>>> {
        locks_only(requests.iter().map(|request| &request.name))?;
        let leases = requests.iter().map(|request| Heartbeat {
            name: request.name.as_str().into(),
            fence: request.fence,
            ttl: request.ttl.map(duration::format),
        });
        let body = json(&Heartbeats {
            leases: leases.collect(),
        });
        let answered = self
            .call(Repeat::Safe, within, |elapsed| {
                let left = duration::format(within.saturating_sub(elapsed));
                let target = self.inner.url.route("/heartbeats").with("within", &left);
                Ask {
                    body: body.clone(),
                    ..Ask::new(Method::POST, target)
                }
            })
            .await?;
        let answers: HeartbeatsAnswer = self.read(&answered)?;
        if answers.leases.len() != requests.len() {
            return Err(answered.foreign(&self.inner.url));
        }
        let renewed = answers.leases.into_iter().map(|answer| match answer {
            HeartbeatAnswer::Lease(lease) => Ok(lease.into_renewed(answered.sent)),
            HeartbeatAnswer::Problem(problem) => Err(problem.into()),
        });
        Ok(renewed.collect())
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value)
        .expect("requests have text keys and do not fail")
        .into()
}
