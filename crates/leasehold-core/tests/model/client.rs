//! What a client does: load, decide, swap, believe. This is the engine's way in small.

use std::rc::Rc;

use leasehold_core::{
    Acquire, BootTime, Break, Change, Clock, ClockChange, Fence, HolderRef, Observations,
    Operation, Release, Renew, Reserve, Stamp, Time, Update, limits,
};

use crate::model::{Leases, Pause};
use crate::witness::{self, Witness};
use crate::world::{
    Act, Answered, Belief, CLIENTS, Client, Flight, Phase, Snapshot, Told, Unsure, World,
};

impl Leases {
    /// A client asks for the record, and the store reads it. The request was `slow` ticks on its way.
    pub(crate) fn load(
        &self,
        mut world: World,
        client: usize,
        act: Act,
        slow: u64,
        pause: Pause,
    ) -> World {
        let sent = self.boot(client, &world) - self.span(slow);
        let me = &mut world.clients[client];
        let unsure = match std::mem::replace(&mut me.phase, Phase::Idle) {
            Phase::Sent {
                id, sent, outcome, ..
            } => {
                world.lost -= 1;
                Some(Unsure { id, sent, outcome })
            }
            _ => {
                me.begun = true;
                world.begins -= 1;
                None
            }
        };
        // A client stops working before it releases.
        if let (Act::Release | Act::Complete, Some(belief)) = (act, &mut me.belief) {
            belief.until = BootTime::default();
        }
        let found = world.stored.clone();
        let stamp = self.stamp(client, &world);
        world.clients[client].phase = Phase::Answered {
            act,
            sent,
            unsure,
            found,
            stamp,
        };
        self.go_on(world, client, pause)
    }

    /// Goes on from an answer of the store to the next swap, as far as the pause allows.
    pub(crate) fn go_on(&self, mut world: World, client: usize, pause: Pause) -> World {
        if matches!(world.clients[client].phase, Phase::Answered { .. }) && pause != Pause::OnTheWay
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
        let Phase::Answered {
            act,
            sent,
            unsure,
            found,
            stamp,
        } = phase
        else {
            unreachable!("only an answer is received")
        };
        self.learn(me, sent, received, stamp, restarted);
        if let Some(clock) = &me.clock {
            let record = found.as_ref().map(|found| &*found.record);
            me.observations.update(record, clock, received);
        }
        let version = found.as_ref().map(|found| found.version);
        match unsure {
            Some(unsure) if version == Some(unsure.id) => {
                self.saw(Witness::LostButLanded);
                self.told(me, act, &unsure.outcome, unsure.sent, received, stamp);
            }
            _ => me.phase = Phase::Ready { act, found },
        }
        world
    }

    fn learn(
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
                ClockChange::Widened => self.saw(Witness::Widened),
                ClockChange::Stepped => self.saw(Witness::Stepped),
            },
        }
    }

    /// Steps the store's clock. Connected clients have had an answer from it before.
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
        let Phase::Ready { act, found } = phase else {
            unreachable!("only who is ready decides")
        };
        let operation = self.operation(client, act, &world);
        let me = &world.clients[client];
        let clock = me.clock.as_ref().expect("known since the first answer");
        let now = clock.now(boot, &me.observations);
        let record = found.as_ref().map(|found| &*found.record);
        let decision = (self.config.rules.apply)(record, &operation, &now);
        witness::outcome(&decision.outcome, record, &now, |it| self.saw(it));
        let put = match decision.change {
            Change::None => return world,
            Change::Write(record) => Some(Rc::new(record)),
            Change::Delete => None,
        };
        let writer = me.belief.as_ref().map(|belief| belief.fence);
        let id = world.fresh_id();
        world.flights.push(Flight {
            client,
            sent: world.tick,
            id,
            expect: found.map(|found| found.version),
            put,
            by: writer.filter(|_| matches!(act, Act::Update | Act::Complete)),
        });
        world.clients[client].phase = Phase::Sent {
            act,
            id,
            sent: boot,
            outcome: Told::from(&decision.outcome),
            landed: None,
        };
        world
    }

    /// The store has dealt with a client's swap: here is its answer.
    pub(crate) fn answer(&self, world: &mut World, flight: &Flight, landed: bool) {
        let stamp = self.stamp(flight.client, world);
        let found: Option<Snapshot> = world.stored.clone();
        let now = self.boot(flight.client, world);
        let phase = &mut world.clients[flight.client].phase;
        if let Phase::Sent { id, sent, .. } = phase
            && *id == flight.id
            && self.config.sent_late
        {
            *sent = now;
        }
        match phase {
            Phase::Sent {
                id,
                landed: at @ None,
                ..
            } if *id == flight.id && landed => *at = Some(stamp),
            Phase::Sent { act, id, sent, .. } if *id == flight.id && !landed => {
                *phase = Phase::Answered {
                    act: *act,
                    sent: *sent,
                    unsure: None,
                    found,
                    stamp,
                };
            }
            _ => {}
        }
    }

    /// A client gets the answer that its swap has landed.
    pub(crate) fn confirm(&self, mut world: World, client: usize) -> World {
        let (received, restarted) = (self.boot(client, &world), world.restarted);
        let me = &mut world.clients[client];
        let phase = std::mem::replace(&mut me.phase, Phase::Idle);
        if let Phase::Sent {
            act,
            sent,
            outcome,
            landed: Some(stamp),
            ..
        } = phase
        {
            self.learn(me, sent, received, stamp, restarted);
            self.told(me, act, &outcome, sent, received, stamp);
        }
        world
    }

    /// Delivers an operation's outcome to a client, which from then on relies on its lease or has released it.
    fn told(
        &self,
        me: &mut Client,
        act: Act,
        told: &Told,
        sent: BootTime,
        received: BootTime,
        stamp: Stamp,
    ) {
        match told {
            &Told::Holds {
                fence,
                ttl,
                expires_at,
            } => {
                let until = (self.config.rules.deadline)(&Answered {
                    sent,
                    received,
                    ttl,
                    expires_at,
                    stamp,
                    margin: self.span(self.config.margin),
                });
                // The worst client: it trusts every deadline that it was ever given.
                let before = me.belief.as_ref().map_or(until, |belief| belief.until);
                me.belief = Some(Belief {
                    fence,
                    until: until.max(before),
                });
            }
            Told::Else if matches!(act, Act::Release | Act::Complete) => me.belief = None,
            Told::Else => {}
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
            begun: true,
            clock: None,
            observations: Observations::none(),
            belief: None,
            phase: Phase::Idle,
        };
        world
    }

    /// The machine that serves the clients reboots: what was under way there is gone, and nothing is known any more. The
    /// clients run elsewhere, and believe on.
    pub(crate) fn reboot(&self, mut world: World) -> World {
        world.restarted = Some(self.store_time(&world, 0));
        world.flights.clear();
        for me in &mut world.clients {
            me.clock = None;
            me.observations = Observations::none();
            me.phase = Phase::Idle;
        }
        world
    }

    fn operation(&self, client: usize, act: Act, world: &World) -> Operation {
        let (config, me) = (&self.config, &world.clients[client]);
        let nonce = self.nonces[usize::from(me.nonce)];
        let belief = me.belief.as_ref();
        let fence = belief.map_or(Fence::default(), |belief| belief.fence);
        let principal = None;
        match act {
            Act::Acquire | Act::Keep => Operation::Acquire(Acquire {
                nonce,
                owner: self.text.clone(),
                principal,
                ttl: self.span(config.ttl),
                mode: config.modes[client],
                fence: (act == Act::Keep).then_some(fence),
                floor: Fence::default(),
                in_state: None,
            }),
            Act::Renew => Operation::Renew(Renew {
                fence,
                principal,
                ttl: Some(self.span(config.renewed_ttl)),
            }),
            Act::Update | Act::Complete => Operation::Update(Update {
                fence,
                principal,
                body: Some(self.text.clone()),
                state: None,
                then_release: act == Act::Complete,
            }),
            Act::Release => Operation::Release(Release {
                holder: HolderRef::Fence(fence),
                principal,
            }),
            Act::Reserve => Operation::Reserve(Reserve {
                nonce,
                mode: config.modes[client],
                span: limits::MAX_RESERVATION,
            }),
            Act::Purge => Operation::Purge {
                retention: self.span(config.retention),
            },
            Act::Break => Operation::Break(Break::Force {
                fence: None,
                reason: self.text.clone(),
                now: false,
            }),
        }
    }
}
