//! Random operations, one after the other: what comes back must be what the pure core says, step by step, and so must
//! what is shown afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{
    BootTime, Change, Clock, Fence, Mode, Name, Nonce, Observations, Outcome, Record, Stamp, Time,
    apply, view,
};

use super::Random;
use super::bench::{Bench, LONG, PATIENT, boot, nonce, shown};
use super::told::{Call, Told, shown_of};
use crate::{AcquireRequest, BreakRequest, Holding, Leases, RenewRequest, UpdateRequest};

super::promises!(Leases: agrees_with_the_pure_core_step_by_step);

const STEPS: usize = 120;
const SEEDS: u64 = 2;

async fn agrees_with_the_pure_core_step_by_step(bench: Bench) {
    let leases = bench.leases().await;
    let first = Random::any_seed();
    for seed in first..first + SEEDS {
        let mut script = Script::new(&bench.sub(&format!("{seed}")), seed);
        for step in 0..STEPS {
            let name = script.random.pick(&script.names).clone();
            let call = script.next_call(&name);
            script.check(&*leases, &name, call, step).await;
        }
        let name = script.names[0].clone();
        script
            .let_expire(&*leases, &name, bench.short().await)
            .await;
    }
}

struct Script {
    random: Random,
    names: Vec<Name>,
    nonces: Vec<Nonce>,
    model: BTreeMap<Name, Record>,
    /// Fences that were granted under each name, stale ones too.
    fences: BTreeMap<Name, Vec<Fence>>,
    now: Duration,
    seed: u64,
}

impl Script {
    fn new(bench: &Bench, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            names: vec![bench.name("one"), bench.name("other")],
            nonces: (0..3).map(|_| nonce()).collect(),
            model: BTreeMap::new(),
            fences: BTreeMap::new(),
            now: Duration::ZERO,
            seed,
        }
    }

    fn next_call(&mut self, name: &Name) -> Call {
        let fence = self.some_fence(name);
        match self.random.below(12) {
            0..=3 => Call::Acquire(self.acquire(name, LONG)),
            4..=5 => Call::Renew(RenewRequest {
                name: name.clone(),
                fence,
                ttl: *self.random.pick(&[None, Some(LONG), Some(LONG * 2)]),
            }),
            6..=8 => Call::Update(self.update(name, fence)),
            9..=10 => Call::Release(self.holding(fence)),
            _ => Call::Break(self.break_request(fence)),
        }
    }

    /// Mostly the newest fence, sometimes a stale one, sometimes one that never was.
    fn some_fence(&mut self, name: &Name) -> Fence {
        let known = self.fences.get(name).cloned().unwrap_or_default();
        match self.random.below(10) {
            0 => Fence::default(),
            1 => Fence::MAX,
            2..=3 if !known.is_empty() => *self.random.pick(&known),
            _ => known.last().copied().unwrap_or_default(),
        }
    }

    fn acquire(&mut self, name: &Name, ttl: Duration) -> AcquireRequest {
        let index = self.random.below(self.nonces.len() as u64) as usize;
        let shared = |limit| Mode::Shared { limit };
        let modes = [
            Mode::Exclusive,
            Mode::Exclusive,
            shared(None),
            shared(Some(2)),
        ];
        let fence = self.some_fence(name);
        AcquireRequest {
            name: name.clone(),
            nonce: self.nonces[index].clone(),
            owner: format!("owner {index}").into(),
            ttl,
            mode: *self.random.pick(&modes),
            fence: self.random.percent(30).then_some(fence),
            wait: Duration::ZERO,
        }
    }

    fn update(&mut self, name: &Name, fence: Fence) -> UpdateRequest {
        let body = format!("body {}", self.random.below(1_000));
        let states = [
            None,
            None,
            Some(None),
            Some(Some("A".into())),
            Some(Some("B".into())),
        ];
        UpdateRequest {
            name: name.clone(),
            fence,
            body: self.random.percent(80).then(|| body.into()),
            state: self.random.pick(&states).clone(),
            then_release: self.random.percent(25),
        }
    }

    fn holding(&mut self, fence: Fence) -> Holding {
        if self.random.percent(50) {
            return Holding::Fence(fence);
        }
        Holding::Nonce(self.random.pick(&self.nonces).clone())
    }

    fn break_request(&mut self, fence: Fence) -> BreakRequest {
        if self.random.percent(40) {
            return BreakRequest::Own(self.holding(fence));
        }
        BreakRequest::Force {
            fence: self.random.percent(50).then_some(fence),
            reason: "a drill".into(),
            // Otherwise the name stays locked by broken holders for the rest of the script.
            now: self.random.percent(85),
        }
    }

    /// Calls, asks the core, compares.
    async fn check(&mut self, leases: &dyn Leases, name: &Name, call: Call, step: usize) {
        let (seed, before) = (self.seed, self.model.get(name));
        let said = format!("step {step} of LEASEHOLD_SEED={seed}: {call:?} on {before:?}");
        let real = call.clone().perform(leases, name).await;
        let model = self.call_model(name, &call, &real);
        assert_eq!(
            real, model,
            "(left: what came back, right: the core)\n{said}"
        );
        if let Told::Granted(fence, ..) = real {
            self.fences.entry(name.clone()).or_default().push(fence);
        }
        let answer = leases.show(name).await.expect("it answers");
        let real = answer.as_ref().map(|view| shown_of(&view.record));
        let seen = Observations::none();
        let now = self.clock().now(self.boot(), &seen);
        let model = self
            .model
            .get(name)
            .map(|record| shown_of(&view(record, &now).record));
        assert_eq!(
            real, model,
            "(left: what is shown, right: the core)\nafter {said}"
        );
    }

    fn call_model(&mut self, name: &Name, call: &Call, real: &Told) -> Told {
        self.now += Duration::from_millis(1);
        let operation = call.operation(name);
        let before = self.model.get(name).cloned();
        let seen = Observations::none();
        let decision = apply(
            before.as_ref(),
            &operation,
            &self.clock().now(self.boot(), &seen),
        );
        let (mut change, mut outcome) = (decision.change, decision.outcome);
        // The fences of a new record start from the store's time, which is not the model's.
        if let (None, Told::Granted(fence, ..), Change::Write(record), Outcome::Granted(grant)) =
            (&before, real, &mut change, &mut outcome)
        {
            (record.fence, record.holders[0].fence, grant.fence) = (*fence, *fence, *fence);
        }
        match change {
            Change::None => {}
            Change::Write(record) => drop(self.model.insert(name.clone(), record)),
            Change::Delete => drop(self.model.remove(name)),
        }
        Told::of_core(call, outcome)
    }

    fn boot(&self) -> BootTime {
        BootTime::from_micros(0) + self.now
    }

    fn clock(&self) -> Clock {
        let time = Time::from_micros(1_780_000_000_000_000) + self.now;
        let stamp = Stamp {
            time,
            resolution: Duration::ZERO,
        };
        Clock::new(self.boot(), self.boot(), stamp, Duration::ZERO)
    }

    /// Frees the name, takes it for a short while, lets that run out, and goes on from there.
    async fn let_expire(&mut self, leases: &dyn Leases, name: &Name, short: Duration) {
        let free = BreakRequest::Force {
            fence: None,
            reason: "a drill".into(),
            now: true,
        };
        self.check(leases, name, Call::Break(free), STEPS).await;
        let mut request = self.acquire(name, short);
        request.fence = None;
        self.check(leases, name, Call::Acquire(request.clone()), STEPS + 1)
            .await;
        let give_up = boot() + PATIENT;
        while !shown(leases, name).await.record.holders.is_empty() {
            assert!(boot() < give_up, "{name} never expires");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.now += short + Duration::from_secs(1);
        for step in STEPS + 2..STEPS + 12 {
            let call = self.next_call(name);
            self.check(leases, name, call, step).await;
        }
    }
}
