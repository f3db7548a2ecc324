//! Clients that perform random operations.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Error;
use leasehold::core::{
    Acquire, BootTime, Break, Fence, GrantKind, Hash, HolderRef, Mode, Name, Operation, Outcome,
    Release, Renew, Update,
};
use leasehold::engine::{Engine, WaitLimit};
use leasehold::host::Host as _;

use super::history::{Belief, Entry, History, Request, Response};
use super::world::{Machine, Moment, World};

pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) world: Arc<World>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) engine: Engine,
    pub(crate) history: Arc<History>,
    pub(crate) names: Vec<Name>,
    pub(crate) holding: Option<Holding>,
    pub(crate) nonces: u64,
    /// Whether it requests long ttls, and often works until the deadline without renewing.
    pub(crate) is_long_running: bool,
}

/// A lease as its holder knows it.
#[derive(Clone)]
pub(crate) struct Holding {
    name: Name,
    nonce: Hash,
    fence: Fence,
    mode: Mode,
    from: u64,
    deadline: BootTime,
}

impl Client {
    pub(crate) async fn run(mut self, steps: usize) {
        for _ in 0..steps {
            let pause = if self.world.chance(10) { 1_500 } else { 120 };
            tokio::time::sleep(self.world.duration(0, pause)).await;
            if self.is_long_running && self.holding.is_some() && self.world.chance(40) {
                self.work_until_deadline().await;
            }
            self.end_expired_belief();
            match self.holding.clone() {
                None => self.start_operation().await,
                Some(holding) => self.use_lease(holding).await,
            }
        }
        self.end_belief();
    }

    async fn work_until_deadline(&self) {
        while let Some(holding) = &self.holding
            && self.machine.boot_time() < holding.deadline
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn draw(&self, below: u64) -> u64 {
        self.world.draw(|random| random.below(below))
    }

    /// Acquires, shows or breaks a random lease.
    async fn start_operation(&mut self) {
        let name = self.world.draw(|random| random.pick(&self.names).clone());
        match self.draw(10) {
            0 => return self.show(&name).await,
            1 => return self.break_lease(&name).await,
            _ => {}
        }
        self.nonces += 1;
        let nonce = Hash::of(&[&self.number.to_le_bytes(), &self.nonces.to_le_bytes()]);
        // The first name is always exclusive.
        let is_shared = name != self.names[0] && self.world.chance(60);
        let mode = if is_shared {
            Mode::Shared { limit: None }
        } else {
            Mode::Exclusive
        };
        let operation = self.acquire_operation(nonce, mode, None);
        self.acquire(&name, nonce, mode, operation).await;
    }

    fn acquire_operation(&self, nonce: Hash, mode: Mode, fence: Option<Fence>) -> Operation {
        let ttls = match self.is_long_running {
            true => [3_000, 8_000, 20_000],
            false => [1_500, 3_000, 6_000],
        };
        let ttl = self.world.draw(|random| *random.pick(&ttls));
        Operation::Acquire(Acquire {
            nonce,
            owner: format!("client {}", self.number).into(),
            principal: None,
            ttl: Duration::from_millis(ttl),
            mode,
            fence,
            floor: Fence::default(),
            in_state: None,
        })
    }

    async fn acquire(&mut self, name: &Name, nonce: Hash, mode: Mode, operation: Operation) {
        let wait = self
            .world
            .draw(|random| *random.pick(&[0, 0, 300, 2_000, 8_000]));
        let outcome = if self.world.chance(8) {
            let timeout = self.world.duration(0, 400);
            self.perform_within(name, operation, wait, timeout).await
        } else {
            self.perform(name, operation, wait).await
        };
        if let Some((Outcome::Granted(grant), deadline)) = outcome {
            let from = match (&self.holding, grant.granted) {
                (Some(held), GrantKind::Kept) => held.from,
                _ => self.world.micros(),
            };
            self.end_belief();
            self.holding = Some(Holding {
                name: name.clone(),
                nonce,
                fence: grant.fence,
                mode,
                from,
                deadline: deadline.expect("a grant has a deadline"),
            });
        }
    }

    async fn use_lease(&mut self, holding: Holding) {
        let Holding {
            name,
            nonce,
            fence,
            mode,
            ..
        } = holding;
        match self.draw(12) {
            0..=2 => {
                let ttl = self.world.chance(30).then_some(Duration::from_secs(4));
                let renew = Operation::Renew(Renew {
                    fence,
                    principal: None,
                    ttl,
                });
                let outcome = self.perform(&name, renew, 0).await;
                self.handle_renewal(outcome);
            }
            3..=5 => {
                let outcome = self
                    .perform(&name, self.update_operation(fence, false), 0)
                    .await;
                self.handle_renewal(outcome);
            }
            6 => {
                self.end_belief();
                self.perform(&name, self.update_operation(fence, true), 0)
                    .await;
            }
            7..=8 => {
                self.end_belief();
                let holder = if self.world.chance(50) {
                    HolderRef::Fence(fence)
                } else {
                    HolderRef::Nonce(nonce)
                };
                let release = Release {
                    holder,
                    principal: None,
                };
                let is_break = self.world.chance(20);
                let operation = if is_break {
                    Operation::Break(Break::Own(release))
                } else {
                    Operation::Release(release)
                };
                self.perform(&name, operation, 0).await;
            }
            9..=10 => {
                let shown = self.world.chance(60).then_some(fence);
                if shown.is_none() {
                    // A client that repeats its nonce has lost its earlier lease, for example in a restart.
                    self.end_belief();
                }
                let operation = self.acquire_operation(nonce, mode, shown);
                self.acquire(&name, nonce, mode, operation).await;
            }
            // It crashes without a release.
            _ => self.end_belief(),
        }
    }

    fn update_operation(&self, fence: Fence, then_release: bool) -> Operation {
        let body = format!("{} by {}", self.draw(1_000_000), self.number);
        Operation::Update(Update {
            fence,
            principal: None,
            body: Some(body.into()),
            state: None,
            then_release,
        })
    }

    async fn break_lease(&mut self, name: &Name) {
        let operation = Operation::Break(Break::Force {
            fence: None,
            reason: "a test".into(),
            now: false,
        });
        self.perform(name, operation, 0).await;
    }

    /// Handles the outcome of a renewal; `None` if it is unknown.
    fn handle_renewal(&mut self, outcome: Option<(Outcome, Option<BootTime>)>) {
        match outcome {
            Some((Outcome::Renewed(_), Some(deadline))) => {
                if let Some(holding) = &mut self.holding {
                    holding.deadline = deadline.max(holding.deadline);
                }
            }
            // The lease has ended.
            Some(_) => self.end_belief(),
            // The client continues until its deadline.
            None => {}
        }
    }

    fn end_expired_belief(&mut self) {
        let is_expired = |holding: &Holding| self.machine.boot_time() >= holding.deadline;
        if self.holding.as_ref().is_some_and(is_expired) {
            self.end_belief();
        }
    }

    fn end_belief(&mut self) {
        let Some(holding) = self.holding.take() else {
            return;
        };
        let until = self
            .machine
            .true_micros(holding.deadline)
            .min(self.world.micros());
        self.history
            .beliefs
            .lock()
            .expect("not poisoned")
            .push(Belief {
                client: self.number,
                name: holding.name,
                nonce: holding.nonce,
                exclusive: holding.mode == Mode::Exclusive,
                from: holding.from,
                until,
            });
    }

    pub(crate) async fn perform(
        &self,
        name: &Name,
        operation: Operation,
        wait: u64,
    ) -> Option<(Outcome, Option<BootTime>)> {
        self.perform_within(name, operation, wait, Duration::MAX)
            .await
    }

    /// Performs an operation, and cancels the call if there is no answer in time.
    async fn perform_within(
        &self,
        name: &Name,
        operation: Operation,
        wait: u64,
        timeout: Duration,
    ) -> Option<(Outcome, Option<BootTime>)> {
        let limit = WaitLimit {
            wait: Duration::from_millis(wait),
            within: None,
        };
        let invoked = self.world.moment();
        self.world.note(format!(
            "client {} requests {name} {operation:?}",
            self.number
        ));
        let call = self.engine.perform(name, operation.clone(), limit);
        let answer = tokio::time::timeout(timeout, call).await;
        let (response, outcome) = match answer {
            Err(_) => (Response::Indeterminate, None),
            Ok(Err(Error::Unavailable(_))) => (Response::Unavailable, None),
            Ok(Err(Error::Indeterminate(_))) => (Response::Indeterminate, None),
            Ok(Err(other)) => panic!("{operation:?}: {other:?}"),
            Ok(Ok(reply)) => {
                let (outcome, deadline) = reply.take();
                (
                    Response::Outcome(outcome.clone()),
                    Some((outcome, deadline)),
                )
            }
        };
        self.record(name, Request::Perform(operation), invoked, response);
        outcome
    }

    pub(crate) async fn show(&self, name: &Name) {
        let invoked = self.world.moment();
        let response = match self.engine.show(name).await {
            Ok(view) => Response::Shown(view.map(Box::new)),
            Err(_) => Response::Unavailable,
        };
        self.record(name, Request::Show, invoked, response);
    }

    fn record(&self, name: &Name, request: Request, invoked: Moment, response: Response) {
        self.world.note(format!(
            "client {} receives {name} {response:?}",
            self.number
        ));
        let returned = Some(self.world.moment());
        self.history
            .entries
            .lock()
            .expect("not poisoned")
            .push(Entry {
                client: self.number,
                name: name.clone(),
                request,
                invoked,
                response,
                returned,
            });
    }
}
