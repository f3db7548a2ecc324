//! The behaviour of a client: load, decide, swap, rely on the lease. A small model of the engine.

use std::rc::Rc;

use leasehold_core::{
    Acquire, BootTime, Break, Change, Clock, ClockChange, Fence, HolderRef, Observations,
    Operation, Release, Renew, Reserve, Stamp, Time, Update, limits,
};

use crate::model::{Leases, Pause};
use crate::witness::{self, Witness};
use crate::world::{
    Action, AmbiguousSwap, Belief, CLIENTS, Client, DeadlineInputs, InFlightSwap, Phase, Snapshot,
    SwapOutcome, World,
};

impl Leases {
    /// A client requests the record, and the store reads it. The request took `request_ticks` ticks.
    pub(crate) fn load(
        &self,
        mut world: World,
        client: usize,
        action: Action,
        request_ticks: u64,
        pause: Pause,
    ) -> World {
        let sent = self.boot(client, &world) - self.span(request_ticks);
        let me = &mut world.clients[client];
        let ambiguous = match std::mem::replace(&mut me.phase, Phase::Idle) {
            Phase::Sent {
                id, sent, outcome, ..
            } => {
                world.lost_answers -= 1;
                Some(AmbiguousSwap { id, sent, outcome })
            }
            _ => {
                me.has_started = true;
                world.operations -= 1;
                None
            }
        };
        // A client stops working before it releases.
        if let (Action::Release | Action::Complete, Some(belief)) = (action, &mut me.belief) {
            belief.until = BootTime::default();
        }
        let found = world.stored.clone();
        let stamp = self.stamp(client, &world);
        world.clients[client].phase = Phase::AnswerInFlight {
            action,
            sent,
            ambiguous,
            found,
            stamp,
        };
        self.proceed(world, client, pause)
    }

    /// Continues from an answer of the store to the next swap, as far as the pause allows.
    pub(crate) fn proceed(&self, mut world: World, client: usize, pause: Pause) -> World {
        if matches!(world.clients[client].phase, Phase::AnswerInFlight { .. })
            && pause != Pause::BeforeReceipt
        {
            world = self.receive(world, client);
        }
        if matches!(world.clients[client].phase, Phase::Ready { .. }) && pause == Pause::None {
            world = self.decide(world, client);
        }
        world
    }

    fn receive(&self, mut world: World, client: usize) -> World {
        let (received, restarted) = (self.boot(client, &world), world.restarted);
        let me = &mut world.clients[client];
        let phase = std::mem::replace(&mut me.phase, Phase::Idle);
        let Phase::AnswerInFlight {
            action,
            sent,
            ambiguous,
            found,
            stamp,
        } = phase
        else {
            unreachable!("only an answer can be received")
        };
        self.observe_clock(me, sent, received, stamp, restarted);
        if let Some(clock) = &me.clock {
            let record = found.as_ref().map(|found| &*found.record);
            me.observations.update(record, clock, received);
        }
        let version = found.as_ref().map(|found| found.version);
        match ambiguous {
            Some(ambiguous) if version == Some(ambiguous.id) => {
                self.record_witness(Witness::LandedAfterLostAnswer);
                self.deliver(
                    me,
                    action,
                    &ambiguous.outcome,
                    ambiguous.sent,
                    received,
                    stamp,
                );
            }
            _ => me.phase = Phase::Ready { action, found },
        }
        world
    }

    fn observe_clock(
        &self,
        me: &mut Client,
        sent: BootTime,
        received: BootTime,
        stamp: Stamp,
        restarted: Option<Time>,
    ) {
        let margin = self.span(self.config.margin);
        match &mut me.clock {
            None => {
                let clock = Clock::new(sent, received, stamp, margin);
                me.clock = Some(clock.restarted(restarted));
            }
            Some(clock) => match (self.config.rules.observe)(clock, sent, received, stamp) {
                ClockChange::None => {}
                ClockChange::Widened => self.record_witness(Witness::Widened),
                ClockChange::Stepped => self.record_witness(Witness::Stepped),
            },
        }
    }

    /// Steps the store's clock. Connected clients observe it immediately before.
    pub(crate) fn step_clock(&self, mut world: World, by: i64) -> World {
        if self.config.connected {
            for client in 0..CLIENTS {
                let (boot, stamp) = (self.boot(client, &world), self.stamp(client, &world));
                if let Some(clock) = &mut world.clients[client].clock {
                    (self.config.rules.observe)(clock, boot, boot, stamp);
                }
            }
        }
        let world = World {
            stepped: world.stepped + by,
            steps_left: world.steps_left - 1,
            ..world
        };
        match self.config.reboots {
            true => self.reboot(world),
            false => world,
        }
    }

    fn decide(&self, mut world: World, client: usize) -> World {
        let boot = self.boot(client, &world);
        let phase = std::mem::replace(&mut world.clients[client].phase, Phase::Idle);
        let Phase::Ready { action, found } = phase else {
            unreachable!("only a ready client decides")
        };
        let operation = self.operation(client, action, &world);
        let me = &world.clients[client];
        let clock = me
            .clock
            .as_ref()
            .expect("the clock is known since the first answer");
        let now = clock.now(boot, &me.observations);
        let record = found.as_ref().map(|found| &*found.record);
        let decision = (self.config.rules.apply)(record, &operation, &now);
        witness::outcome(&decision.outcome, record, &now, |it| {
            self.record_witness(it)
        });
        let put = match decision.change {
            Change::None => return world,
            Change::Write(record) => Some(Rc::new(record)),
            Change::Delete => None,
        };
        let writer = me.belief.as_ref().map(|belief| belief.fence);
        let id = world.fresh_id();
        world.swaps.push(InFlightSwap {
            client,
            sent: world.tick,
            id,
            expect: found.map(|found| found.version),
            put,
            writer: writer.filter(|_| matches!(action, Action::Update | Action::Complete)),
        });
        world.clients[client].phase = Phase::Sent {
            action,
            id,
            sent: boot,
            outcome: SwapOutcome::from(&decision.outcome),
            landed: None,
        };
        world
    }

    /// Answers a client's swap after the store has processed it.
    pub(crate) fn answer(&self, world: &mut World, swap: &InFlightSwap, landed: bool) {
        let stamp = self.stamp(swap.client, world);
        let found: Option<Snapshot> = world.stored.clone();
        let now = self.boot(swap.client, world);
        let phase = &mut world.clients[swap.client].phase;
        if let Phase::Sent { id, sent, .. } = phase
            && *id == swap.id
            && self.config.sent_late
        {
            *sent = now;
        }
        match phase {
            Phase::Sent {
                id,
                landed: at @ None,
                ..
            } if *id == swap.id && landed => *at = Some(stamp),
            Phase::Sent {
                action, id, sent, ..
            } if *id == swap.id && !landed => {
                *phase = Phase::AnswerInFlight {
                    action: *action,
                    sent: *sent,
                    ambiguous: None,
                    found,
                    stamp,
                };
            }
            _ => {}
        }
    }

    /// A client receives the confirmation that its swap has landed.
    pub(crate) fn confirm(&self, mut world: World, client: usize) -> World {
        let (received, restarted) = (self.boot(client, &world), world.restarted);
        let me = &mut world.clients[client];
        let phase = std::mem::replace(&mut me.phase, Phase::Idle);
        if let Phase::Sent {
            action,
            sent,
            outcome,
            landed: Some(stamp),
            ..
        } = phase
        {
            self.observe_clock(me, sent, received, stamp, restarted);
            self.deliver(me, action, &outcome, sent, received, stamp);
        }
        world
    }

    /// Delivers an operation's outcome to a client, which from then on relies on its lease or has released it.
    fn deliver(
        &self,
        me: &mut Client,
        action: Action,
        outcome: &SwapOutcome,
        sent: BootTime,
        received: BootTime,
        stamp: Stamp,
    ) {
        match outcome {
            &SwapOutcome::Holds {
                fence,
                ttl,
                expires_at,
            } => {
                let until = (self.config.rules.deadline)(&DeadlineInputs {
                    sent,
                    received,
                    ttl,
                    expires_at,
                    stamp,
                    margin: self.span(self.config.margin),
                });
                // The worst case: a client that relies on the latest deadline that it ever received.
                let before = me.belief.as_ref().map_or(until, |belief| belief.until);
                me.belief = Some(Belief {
                    fence,
                    until: until.max(before),
                });
            }
            SwapOutcome::Other if matches!(action, Action::Release | Action::Complete) => {
                me.belief = None
            }
            SwapOutcome::Other => {}
        }
    }

    /// A client crashes and restarts. At most it still has its nonce.
    pub(crate) fn crash(&self, mut world: World, client: usize, same_nonce: bool) -> World {
        world.crashes -= 1;
        let me = &mut world.clients[client];
        let nonce = if same_nonce {
            me.nonce
        } else {
            me.nonce + CLIENTS as u8
        };
        *me = Client {
            nonce,
            has_started: true,
            clock: None,
            observations: Observations::none(),
            belief: None,
            phase: Phase::Idle,
        };
        world
    }

    /// The machine that serves the clients reboots and loses its requests and its knowledge of the clock. The clients
    /// run elsewhere and still rely on their leases.
    pub(crate) fn reboot(&self, mut world: World) -> World {
        world.restarted = Some(self.store_time(&world, 0));
        world.swaps.clear();
        for me in &mut world.clients {
            me.clock = None;
            me.observations = Observations::none();
            me.phase = Phase::Idle;
        }
        world
    }

    fn operation(&self, client: usize, action: Action, world: &World) -> Operation {
        let (config, me) = (&self.config, &world.clients[client]);
        let nonce = self.nonces[usize::from(me.nonce)];
        let belief = me.belief.as_ref();
        let fence = belief.map_or(Fence::default(), |belief| belief.fence);
        let principal = None;
        match action {
            Action::Acquire | Action::Keep => Operation::Acquire(Acquire {
                nonce,
                owner: self.text.clone(),
                principal,
                ttl: self.span(config.ttl),
                mode: config.modes[client],
                fence: (action == Action::Keep).then_some(fence),
                floor: Fence::default(),
                in_state: None,
            }),
            Action::Renew => Operation::Renew(Renew {
                fence,
                principal,
                ttl: Some(self.span(config.renewed_ttl)),
            }),
            Action::Update | Action::Complete => Operation::Update(Update {
                fence,
                principal,
                body: Some(self.text.clone()),
                state: None,
                then_release: action == Action::Complete,
            }),
            Action::Release => Operation::Release(Release {
                holder: HolderRef::Fence(fence),
                principal,
            }),
            Action::Reserve => Operation::Reserve(Reserve {
                nonce,
                mode: config.modes[client],
                span: limits::MAX_RESERVATION,
            }),
            Action::Purge => Operation::Purge {
                retention: self.span(config.retention),
            },
            Action::Break => Operation::Break(Break::Force {
                fence: None,
                reason: self.text.clone(),
                now: false,
            }),
        }
    }
}
