//! The transitions of the model: time passes, messages arrive late, twice or never, clients pause and crash, and the
//! store's clock steps.
//!
//! The local steps of a client do not affect other clients. So within a tick they are explored only at one moment: at
//! once, or at the start of the tick after a pause. Reads and writes of the store are explored in every order.

use std::cell::Cell;
use std::time::Duration;

use leasehold_core::{BootTime, Clock, Fence, Hash, Observations, Stamp, Text, Time};

use crate::explore::{Broken, Model};
use crate::properties;
use crate::witness::{self, Witness};
use crate::world::{Act, CLIENTS, Client, Config, Flight, Phase, Snapshot, World};

/// The store's time at tick 0, in ticks.
const BASE: i64 = 1_000_000;

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Tick,
    /// The store's clock steps.
    ClockSteps(i64),
    /// A client begins: the store reads the record, to a request sent so many ticks ago.
    Load {
        client: usize,
        act: Act,
        slow: u64,
        pause: Pause,
    },
    /// A client gives up waiting for the answer to its swap, and looks what became of it.
    LookAgain {
        client: usize,
        act: Act,
        pause: Pause,
    },
    /// A paused client or a delayed answer continues.
    GoOn {
        client: usize,
        pause: Pause,
    },
    /// A swap reaches the store; `again`: and will once more.
    Land {
        flight: usize,
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

/// Where a client stops for at least a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    /// The answer is still on its way.
    OnTheWay,
    /// It has the answer, but not yet decided.
    BeforeDeciding,
}

const PAUSES: [Pause; 3] = [Pause::None, Pause::OnTheWay, Pause::BeforeDeciding];

pub(crate) struct Leases {
    pub(crate) config: Config,
    pub(crate) nonces: Vec<Hash>,
    pub(crate) text: Text,
    pub(crate) witnessed: Cell<u32>,
}

type Next = Result<World, Broken>;

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

    pub(crate) fn saw(&self, witness: Witness) {
        let bits = self.witnessed.get() | witness::bit(witness);
        self.witnessed.set(bits);
    }

    pub(crate) fn has_seen(&self, witness: Witness) -> bool {
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

    /// What the store answers this client about its time.
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
        let flight = world.flights[index].clone();
        if again {
            world.duplicates -= 1;
        } else {
            world.flights.remove(index);
        }
        let current = world.stored.as_ref().map(|stored| stored.version);
        let landed = flight.expect == current;
        if landed {
            properties::landing(self, &mut world, &flight)?;
            if flight.sent < world.tick {
                self.saw(Witness::LandedLate);
            }
            let version = if self.config.rules.versions_return {
                current.unwrap_or(0) + 1
            } else {
                flight.id
            };
            let put = flight.put.clone();
            world.stored = put.map(|record| Snapshot { version, record });
        } else {
            self.saw(Witness::Conflict);
        }
        self.answer(&mut world, &flight, landed);
        Ok(match world.clients[flight.client].phase {
            Phase::Sent {
                landed: Some(_), ..
            } if landed && pause == Pause::None => self.confirm(world, flight.client),
            _ => self.go_on(world, flight.client, pause),
        })
    }

    fn client_steps(&self, world: &World, client: usize, steps: &mut Vec<Step>) {
        let me = &world.clients[client];
        let in_turn = client >= world.turn;
        match &me.phase {
            Phase::Idle if world.begins > 0 && self.may_begin(world, client) => {
                for act in self.config.menu.iter().filter(|act| fits(me, **act)) {
                    for slow in 0..=self.config.slow {
                        steps.extend(PAUSES.map(|pause| Step::Load {
                            client,
                            act: *act,
                            slow,
                            pause,
                        }));
                    }
                }
            }
            Phase::Answered { .. } if in_turn => {
                steps.extend(
                    [Pause::None, Pause::BeforeDeciding].map(|pause| Step::GoOn { client, pause }),
                );
            }
            Phase::Ready { .. } if in_turn => steps.push(Step::GoOn {
                client,
                pause: Pause::None,
            }),
            Phase::Sent { landed, act, .. } => {
                if landed.is_some() && in_turn {
                    steps.push(Step::Confirm { client });
                }
                if world.lost > 0 {
                    steps.extend(PAUSES.map(|pause| Step::LookAgain {
                        client,
                        act: *act,
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

    /// Clients that are all alike begin in order: the other orders are the same histories under other names.
    fn may_begin(&self, world: &World, client: usize) -> bool {
        let config = &self.config;
        let alike = config.modes == [config.modes[0]; CLIENTS]
            && config.ahead == [config.ahead[0]; CLIENTS]
            && config.fast_ppm == [config.fast_ppm[0]; CLIENTS]
            && config.nonces == [0, 1, 2];
        client == 0 || !alike || world.clients[client - 1].begun
    }

    /// How many pauses a step takes.
    fn pauses(&self, world: &World, step: Step) -> u8 {
        match step {
            Step::Load { slow, pause, .. } => u8::from(slow > 0) + u8::from(pause != Pause::None),
            Step::LookAgain { pause, .. } | Step::GoOn { pause, .. } | Step::Land { pause, .. } => {
                u8::from(pause != Pause::None)
            }
            // Swaps that were sent in this tick are now late.
            Step::Tick => {
                let late = |flight: &&Flight| flight.sent == world.tick;
                world.flights.iter().filter(late).count() as u8
            }
            Step::ClockSteps(_) | Step::Confirm { .. } | Step::Crash { .. } => 0,
        }
    }

    fn take(&self, mut world: World, step: Step) -> Next {
        world.pauses -= self.pauses(&world, step);
        let turn = match step {
            Step::Tick => 0,
            Step::GoOn { client, .. } | Step::Confirm { client } => client,
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
                act,
                slow,
                pause,
            } => self.load(world, client, act, slow, pause),
            Step::LookAgain { client, act, pause } => self.load(world, client, act, 0, pause),
            Step::GoOn { client, pause } => self.go_on(world, client, pause),
            Step::Land {
                flight,
                again,
                pause,
            } => self.land(world, flight, again, pause)?,
            Step::Confirm { client } => self.confirm(world, client),
            Step::Crash { client, same_nonce } => self.crash(world, client, same_nonce),
        };
        let next = self.tidied(next);
        properties::state(self, &next)?;
        if matches!(step, Step::Tick | Step::ClockSteps(_) | Step::Land { .. }) {
            properties::stored(self, &next)?;
        }
        Ok(next)
    }

    /// Forgets what can make no difference any more, so that equal futures are one state.
    fn tidied(&self, mut world: World) -> World {
        for client in 0..CLIENTS {
            let boot = self.boot(client, &world);
            let me = &mut world.clients[client];
            let retired = me.phase == Phase::Idle && world.begins == 0;
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
        let purges = self.config.menu.contains(&Act::Purge);
        let returns = self.config.rules.versions_return;
        let current = world.stored.as_ref().map(|stored| stored.version);
        let (tick, clients) = (world.tick, &world.clients);
        world.flights.retain(|flight| {
            let awaited =
                matches!(&clients[flight.client].phase, Phase::Sent { id, .. } if *id == flight.id);
            let may_match =
                flight.expect == current || returns || (purges && flight.expect.is_none());
            flight.sent + self.config.life >= tick && (awaited || may_match)
        });
        world
            .flights
            .sort_by_key(|flight| (flight.client, flight.sent));
        if !returns {
            world.renumber();
        }
        world
    }
}

/// Whether a client in this situation would do that.
fn fits(me: &Client, act: Act) -> bool {
    let holds = me.belief.is_some();
    let believes = |belief: &crate::world::Belief| belief.until > BootTime::default();
    match act {
        Act::Acquire | Act::Reserve => !me.belief.as_ref().is_some_and(believes),
        Act::Keep | Act::Renew | Act::Update | Act::Complete | Act::Release => holds,
        Act::Purge | Act::Break => true,
    }
}

impl Model for Leases {
    type State = World;
    type Step = Step;

    fn start(&self) -> World {
        let config = &self.config;
        let client = |client: usize| Client {
            nonce: config.nonces[client],
            begun: false,
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
            flights: Vec::new(),
            begins: config.begins,
            pauses: config.pauses,
            crashes: config.crashes,
            lost: config.lost,
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
        for flight in 0..world.flights.len() {
            for again in [false, true] {
                if !again || world.duplicates > 0 {
                    steps.extend(PAUSES.map(|pause| Step::Land {
                        flight,
                        again,
                        pause,
                    }));
                }
            }
        }
        let paused = |client: &Client| client.phase != Phase::Idle || world.begins > 0;
        let over = steps.is_empty() && !world.clients.iter().any(paused);
        if world.steps_left > 0 && !over {
            steps.extend(self.config.steps.iter().map(|by| Step::ClockSteps(*by)));
        }
        // Waiting before anything has begun would only shift everything.
        let begun = world.clients.iter().any(|client| client.begun);
        if world.tick < self.config.horizon && begun && !over {
            steps.push(Step::Tick);
        }
        steps.retain(|step| self.pauses(world, *step) <= world.pauses);
        let next = |step| (step, self.take(world.clone(), step));
        steps.into_iter().map(next).collect()
    }
}
