//! The transitions of the model: time passes, messages arrive late, twice or never, clients pause and crash, and the
//! store's clock steps.
//!
//! The local steps of a client do not affect other clients. So within a tick they are explored at one moment only:
//! immediately, or at the start of the tick after a pause. Reads and writes of the store are explored in every order.

use std::cell::Cell;
use std::time::Duration;

use leasehold_core::{BootTime, Clock, Fence, Hash, Observations, Stamp, Text, Time};

use crate::explore::{Model, Violation};
use crate::properties;
use crate::witness::{self, Witness};
use crate::world::{Action, CLIENTS, Client, Config, InFlightSwap, Phase, Snapshot, World};

/// The store's time at tick 0, in ticks.
const BASE: i64 = 1_000_000;

/// A transition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Tick,
    /// The store's clock steps.
    ClockSteps(i64),
    /// A client starts an operation: the store reads the record for a request that was sent `request_ticks` ago.
    Load {
        client: usize,
        action: Action,
        request_ticks: u64,
        pause: Pause,
    },
    /// A client stops waiting for the answer to its swap, and loads the record to learn the result.
    Reload {
        client: usize,
        action: Action,
        pause: Pause,
    },
    /// A paused client or a delayed answer continues.
    Proceed {
        client: usize,
        pause: Pause,
    },
    /// A swap reaches the store. With `again`, it will arrive once more.
    Land {
        swap: usize,
        again: bool,
        pause: Pause,
    },
    /// The late answer to a swap.
    Confirm {
        client: usize,
    },
    Crash {
        client: usize,
        same_nonce: bool,
    },
}

/// Where a client pauses for at least a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    /// The answer is still on its way.
    BeforeReceipt,
    /// The client has the answer but has not decided yet.
    BeforeDecision,
}

const PAUSES: [Pause; 3] = [Pause::None, Pause::BeforeReceipt, Pause::BeforeDecision];

pub(crate) struct Leases {
    pub(crate) config: Config,
    pub(crate) nonces: Vec<Hash>,
    pub(crate) text: Text,
    pub(crate) witnessed: Cell<u32>,
}

type Next = Result<World, Violation>;

impl Leases {
    pub(crate) fn new(config: Config) -> Self {
        let nonces = (0..16u8).map(|nonce| Hash::of(&[&[nonce]])).collect();
        Self {
            config,
            nonces,
            text: "text".into(),
            witnessed: Cell::new(0),
        }
    }

    pub(crate) fn record_witness(&self, witness: Witness) {
        let bits = self.witnessed.get() | witness::bit(witness);
        self.witnessed.set(bits);
    }

    pub(crate) fn has_witness(&self, witness: Witness) -> bool {
        self.witnessed.get() & witness::bit(witness) != 0
    }

    pub(crate) fn span(&self, ticks: u64) -> Duration {
        self.config.tick * u32::try_from(ticks).expect("few ticks")
    }

    pub(crate) fn boot(&self, client: usize, world: &World) -> BootTime {
        let real = self.span(1_000 * (client as u64 + 1) + world.tick);
        let fast = self.span(world.tick).as_micros() as i64 * self.config.fast_ppm[client];
        BootTime::from_micros((real.as_micros() as i64 + fast / 1_000_000) as u64)
    }

    /// Returns the time of a node whose clock is this many ticks `ahead`.
    pub(crate) fn store_time(&self, world: &World, ahead: i64) -> Time {
        let ticks = BASE + world.tick as i64 + world.stepped + ahead;
        Time::from_micros(0) + self.span(ticks as u64)
    }

    /// Returns the store's time in an answer to this client.
    pub(crate) fn stamp(&self, client: usize, world: &World) -> Stamp {
        let time = self.store_time(world, self.config.ahead[client]);
        let resolution = self.span(self.config.resolution);
        let below = match resolution.as_micros() as u64 {
            0 => 0,
            coarse => time.as_micros() % coarse,
        };
        Stamp {
            time: time - Duration::from_micros(below),
            resolution,
        }
    }

    fn land(&self, mut world: World, index: usize, again: bool, pause: Pause) -> Next {
        let swap = world.swaps[index].clone();
        if again {
            world.duplicates -= 1;
        } else {
            world.swaps.remove(index);
        }
        let current = world.stored.as_ref().map(|stored| stored.version);
        let landed = swap.expect == current;
        if landed {
            properties::landing(self, &mut world, &swap)?;
            if swap.sent < world.tick {
                self.record_witness(Witness::LandedLate);
            }
            let version = if self.config.rules.versions_return {
                current.unwrap_or(0) + 1
            } else {
                swap.id
            };
            let put = swap.put.clone();
            world.stored = put.map(|record| Snapshot { version, record });
        } else {
            self.record_witness(Witness::Conflict);
        }
        self.answer(&mut world, &swap, landed);
        Ok(match world.clients[swap.client].phase {
            Phase::Sent {
                landed: Some(_), ..
            } if landed && pause == Pause::None => self.confirm(world, swap.client),
            _ => self.proceed(world, swap.client, pause),
        })
    }

    fn client_steps(&self, world: &World, client: usize, steps: &mut Vec<Step>) {
        let me = &world.clients[client];
        let in_turn = client >= world.turn;
        match &me.phase {
            Phase::Idle if world.operations > 0 && self.may_start(world, client) => {
                for action in self
                    .config
                    .actions
                    .iter()
                    .filter(|action| can_start(me, **action))
                {
                    for request_ticks in 0..=self.config.request_ticks {
                        steps.extend(PAUSES.map(|pause| Step::Load {
                            client,
                            action: *action,
                            request_ticks,
                            pause,
                        }));
                    }
                }
            }
            Phase::AnswerInFlight { .. } if in_turn => {
                steps.extend(
                    [Pause::None, Pause::BeforeDecision]
                        .map(|pause| Step::Proceed { client, pause }),
                );
            }
            Phase::Ready { .. } if in_turn => steps.push(Step::Proceed {
                client,
                pause: Pause::None,
            }),
            Phase::Sent { landed, action, .. } => {
                if landed.is_some() && in_turn {
                    steps.push(Step::Confirm { client });
                }
                if world.lost_answers > 0 {
                    steps.extend(PAUSES.map(|pause| Step::Reload {
                        client,
                        action: *action,
                        pause,
                    }));
                }
            }
            _ => {}
        }
        if world.crashes > 0 && (me.phase != Phase::Idle || me.belief.is_some()) {
            steps.extend([true, false].map(|same_nonce| Step::Crash { client, same_nonce }));
        }
    }

    /// Returns whether a client may start. Identical clients start in order, because other orders are equivalent.
    fn may_start(&self, world: &World, client: usize) -> bool {
        let config = &self.config;
        let alike = config.modes == [config.modes[0]; CLIENTS]
            && config.ahead == [config.ahead[0]; CLIENTS]
            && config.fast_ppm == [config.fast_ppm[0]; CLIENTS]
            && config.nonces == [0, 1, 2];
        client == 0 || !alike || world.clients[client - 1].has_started
    }

    /// Returns how many pauses a step uses.
    fn pauses(&self, world: &World, step: Step) -> u8 {
        match step {
            Step::Load {
                request_ticks,
                pause,
                ..
            } => u8::from(request_ticks > 0) + u8::from(pause != Pause::None),
            Step::Reload { pause, .. } | Step::Proceed { pause, .. } | Step::Land { pause, .. } => {
                u8::from(pause != Pause::None)
            }
            // Swaps that were sent in this tick are now late.
            Step::Tick => {
                let late = |swap: &&InFlightSwap| swap.sent == world.tick;
                world.swaps.iter().filter(late).count() as u8
            }
            Step::ClockSteps(_) | Step::Confirm { .. } | Step::Crash { .. } => 0,
        }
    }

    fn apply_step(&self, mut world: World, step: Step) -> Next {
        world.pauses -= self.pauses(&world, step);
        let turn = match step {
            Step::Tick => 0,
            Step::Proceed { client, .. } | Step::Confirm { client } => client,
            _ => CLIENTS,
        };
        world.turn = turn;
        let next = match step {
            Step::Tick => World {
                tick: world.tick + 1,
                ..world
            },
            Step::ClockSteps(by) => self.step_clock(world, by),
            Step::Load {
                client,
                action,
                request_ticks,
                pause,
            } => self.load(world, client, action, request_ticks, pause),
            Step::Reload {
                client,
                action,
                pause,
            } => self.load(world, client, action, 0, pause),
            Step::Proceed { client, pause } => self.proceed(world, client, pause),
            Step::Land { swap, again, pause } => self.land(world, swap, again, pause)?,
            Step::Confirm { client } => self.confirm(world, client),
            Step::Crash { client, same_nonce } => self.crash(world, client, same_nonce),
        };
        let next = self.normalized(next);
        properties::state(self, &next)?;
        if matches!(step, Step::Tick | Step::ClockSteps(_) | Step::Land { .. }) {
            properties::stored(self, &next)?;
        }
        Ok(next)
    }

    /// Removes details that cannot affect the future any more, so that equivalent states are equal.
    fn normalized(&self, mut world: World) -> World {
        for client in 0..CLIENTS {
            let boot = self.boot(client, &world);
            let me = &mut world.clients[client];
            let retired = me.phase == Phase::Idle && world.operations == 0;
            if let Some(belief) = &mut me.belief
                && belief.until <= boot
            {
                belief.until = BootTime::default();
                if retired {
                    me.belief = None;
                }
            }
            if retired {
                me.clock = None;
                me.observations = Observations::none();
            }
        }
        let purges = self.config.actions.contains(&Action::Purge);
        let returns = self.config.rules.versions_return;
        let current = world.stored.as_ref().map(|stored| stored.version);
        let (tick, clients) = (world.tick, &world.clients);
        world.swaps.retain(|swap| {
            let awaited =
                matches!(&clients[swap.client].phase, Phase::Sent { id, .. } if *id == swap.id);
            let may_match = swap.expect == current || returns || (purges && swap.expect.is_none());
            swap.sent + self.config.swap_lifetime >= tick && (awaited || may_match)
        });
        world.swaps.sort_by_key(|swap| (swap.client, swap.sent));
        if !returns {
            world.renumber();
        }
        world
    }
}

/// Returns whether a client in this state would perform an action.
fn can_start(me: &Client, action: Action) -> bool {
    let holds = me.belief.is_some();
    let believes = |belief: &crate::world::Belief| belief.until > BootTime::default();
    match action {
        Action::Acquire | Action::Reserve => !me.belief.as_ref().is_some_and(believes),
        Action::Keep | Action::Renew | Action::Update | Action::Complete | Action::Release => holds,
        Action::Purge | Action::Break => true,
    }
}

impl Model for Leases {
    type State = World;
    type Step = Step;

    fn start(&self) -> World {
        let config = &self.config;
        let client = |client: usize| Client {
            nonce: config.nonces[client],
            has_started: false,
            clock: None,
            observations: Observations::none(),
            belief: None,
            phase: Phase::Idle,
        };
        let mut world = World {
            tick: 0,
            turn: 0,
            stepped: 0,
            steps_left: config.step_count,
            restarted: None,
            stored: None,
            highest: Fence::default(),
            clients: std::array::from_fn(client),
            swaps: Vec::new(),
            operations: config.operations,
            pauses: config.pauses,
            crashes: config.crashes,
            lost_answers: config.lost_answers,
            duplicates: config.duplicates,
        };
        if config.connected {
            for client in 0..CLIENTS {
                let (boot, stamp) = (self.boot(client, &world), self.stamp(client, &world));
                let clock = Clock::new(boot, boot, stamp, self.span(config.margin));
                world.clients[client].clock = Some(clock);
            }
        }
        world
    }

    fn steps(&self, world: &World) -> Vec<(Step, Next)> {
        let mut steps = Vec::with_capacity(16);
        for client in 0..CLIENTS {
            self.client_steps(world, client, &mut steps);
        }
        for swap in 0..world.swaps.len() {
            for again in [false, true] {
                if !again || world.duplicates > 0 {
                    steps.extend(PAUSES.map(|pause| Step::Land { swap, again, pause }));
                }
            }
        }
        let paused = |client: &Client| client.phase != Phase::Idle || world.operations > 0;
        let over = steps.is_empty() && !world.clients.iter().any(paused);
        if world.steps_left > 0 && !over {
            steps.extend(self.config.steps.iter().map(|by| Step::ClockSteps(*by)));
        }
        // Waiting before the first operation would only shift every later step.
        let has_started = world.clients.iter().any(|client| client.has_started);
        if world.tick < self.config.horizon && has_started && !over {
            steps.push(Step::Tick);
        }
        steps.retain(|step| self.pauses(world, *step) <= world.pauses);
        let next = |step| (step, self.apply_step(world.clone(), step));
        steps.into_iter().map(next).collect()
    }
}
