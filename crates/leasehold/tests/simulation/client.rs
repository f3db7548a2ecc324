//! Clients that do anything that a client may do, at random.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Error;
use leasehold::core::{
    Acquire, BootTime, Break, Fence, GrantKind, Hash, HolderRef, Mode, Name, Operation, Outcome,
    Release, Renew, Update,
};
use leasehold::engine::{Engine, Patience};
use leasehold::host::Host as _;

use super::history::{Asked, Belief, Entry, History, Told};
use super::world::{Machine, World};

pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) world: Arc<World>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) engine: Engine,
    pub(crate) history: Arc<History>,
    pub(crate) names: Vec<Name>,
    pub(crate) holding: Option<Holding>,
    pub(crate) nonces: u64,
    /// Whether it takes long leases and often just works until its deadline.
    pub(crate) quiet: bool,
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
            tokio::time::sleep(self.world.span(0, pause)).await;
            if self.quiet && self.holding.is_some() && self.world.chance(40) {
                self.work_until_the_deadline().await;
            }
            self.forget_what_is_over();
            match self.holding.clone() {
                None => self.take().await,
                Some(holding) => self.use_it(holding).await,
            }
        }
        self.stop_believing();
    }

    async fn work_until_the_deadline(&self) {
        while let Some(holding) = &self.holding
            && self.machine.boot_time() < holding.deadline
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn draw(&self, below: u64) -> u64 {
        self.world.draw(|random| random.below(below))
    }

    async fn take(&mut self) {
        let name = self.world.draw(|random| random.pick(&self.names).clone());
        match self.draw(10) {
            0 => return self.show(&name).await,
            1 => return self.break_any(&name).await,
            _ => {}
        }
        self.nonces += 1;
        let nonce = Hash::of(&[&self.number.to_le_bytes(), &self.nonces.to_le_bytes()]);
        // The first name is only ever held alone, so that one fence has one holder at a time.
        let shared = name != self.names[0] && self.world.chance(60);
        let mode = if shared {
            Mode::Shared { limit: None }
        } else {
            Mode::Exclusive
        };
        let operation = self.acquire(nonce, mode, None);
        self.grab(&name, nonce, mode, operation).await;
    }

    fn acquire(&self, nonce: Hash, mode: Mode, fence: Option<Fence>) -> Operation {
        let ttls = match self.quiet {
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

    async fn grab(&mut self, name: &Name, nonce: Hash, mode: Mode, operation: Operation) {
        let wait = self
            .world
            .draw(|random| *random.pick(&[0, 0, 300, 2_000, 8_000]));
        let outcome = if self.world.chance(8) {
            let gone_after = self.world.span(0, 400);
            self.perform_until(name, operation, wait, gone_after).await
        } else {
            self.perform(name, operation, wait).await
        };
        if let Some((Outcome::Granted(grant), deadline)) = outcome {
            let from = match (&self.holding, grant.granted) {
                (Some(held), GrantKind::Kept) => held.from,
                _ => self.world.micros(),
            };
            self.stop_believing();
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

    async fn use_it(&mut self, holding: Holding) {
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
                self.go_on(outcome);
            }
            3..=5 => {
                let outcome = self.perform(&name, self.update(fence, false), 0).await;
                self.go_on(outcome);
            }
            6 => {
                self.stop_believing();
                self.perform(&name, self.update(fence, true), 0).await;
            }
            7..=8 => {
                self.stop_believing();
                let holder = if self.world.chance(50) {
                    HolderRef::Fence(fence)
                } else {
                    HolderRef::Nonce(nonce)
                };
                let release = Release {
                    holder,
                    principal: None,
                };
                let own = self.world.chance(20);
                let operation = if own {
                    Operation::Break(Break::Own(release))
                } else {
                    Operation::Release(release)
                };
                self.perform(&name, operation, 0).await;
            }
            9..=10 => {
                let shown = self.world.chance(60).then_some(fence);
                if shown.is_none() {
                    // Whoever repeats a nonce says that its earlier self is gone.
                    self.stop_believing();
                }
                let operation = self.acquire(nonce, mode, shown);
                self.grab(&name, nonce, mode, operation).await;
            }
            // It crashes: it believes no more, and lets go of nothing.
            _ => self.stop_believing(),
        }
    }

    fn update(&self, fence: Fence, then_release: bool) -> Operation {
        let body = format!("{} by {}", self.draw(1_000_000), self.number);
        Operation::Update(Update {
            fence,
            principal: None,
            body: Some(body.into()),
            state: None,
            then_release,
        })
    }

    async fn break_any(&mut self, name: &Name) {
        let operation = Operation::Break(Break::Force {
            fence: None,
            reason: "a drill".into(),
            now: false,
        });
        self.perform(name, operation, 0).await;
    }

    /// A renewal was answered, or not.
    fn go_on(&mut self, outcome: Option<(Outcome, Option<BootTime>)>) {
        match outcome {
            Some((Outcome::Renewed(_), Some(deadline))) => {
                if let Some(holding) = &mut self.holding {
                    holding.deadline = deadline.max(holding.deadline);
                }
            }
            // It was told that it is over.
            Some(_) => self.stop_believing(),
            // It does not know, and goes on until its deadline.
            None => {}
        }
    }

    fn forget_what_is_over(&mut self) {
        let over = |holding: &Holding| self.machine.boot_time() >= holding.deadline;
        if self.holding.as_ref().is_some_and(over) {
            self.stop_believing();
        }
    }

    fn stop_believing(&mut self) {
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
        self.perform_until(name, operation, wait, Duration::MAX)
            .await
    }

    /// Performs, unless it is gone before the answer.
    async fn perform_until(
        &self,
        name: &Name,
        operation: Operation,
        wait: u64,
        gone_after: Duration,
    ) -> Option<(Outcome, Option<BootTime>)> {
        let patience = Patience {
            wait: Duration::from_millis(wait),
            within: None,
        };
        let invoked = self.world.moment();
        self.world
            .note(format!("{} asks {name} {operation:?}", self.number));
        let call = self.engine.perform(name, operation.clone(), patience);
        let answer = tokio::time::timeout(gone_after, call).await;
        let (told, taken) = match answer {
            Err(_) => (Told::Unknown, None),
            Ok(Err(Error::Unavailable(_))) => (Told::Unavailable, None),
            Ok(Err(Error::Indeterminate(_))) => (Told::Unknown, None),
            Ok(Err(other)) => panic!("{operation:?} gave {other:?}"),
            Ok(Ok(reply)) => {
                let (outcome, deadline) = reply.take();
                (Told::Outcome(outcome.clone()), Some((outcome, deadline)))
            }
        };
        self.record(name, Asked::Perform(operation), invoked, told);
        taken
    }

    pub(crate) async fn show(&self, name: &Name) {
        let invoked = self.world.moment();
        let told = match self.engine.show(name).await {
            Ok(view) => Told::Shown(view.map(Box::new)),
            Err(_) => Told::Unavailable,
        };
        self.record(name, Asked::Show, invoked, told);
    }

    fn record(&self, name: &Name, asked: Asked, invoked: super::world::Moment, told: Told) {
        self.world
            .note(format!("{} is told {name} {told:?}", self.number));
        let returned = Some(self.world.moment());
        self.history
            .entries
            .lock()
            .expect("not poisoned")
            .push(Entry {
                client: self.number,
                name: name.clone(),
                asked,
                invoked,
                told,
                returned,
            });
    }
}
