//! Sequences of random operations: each outcome, and each record afterwards, must equal those of the core.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{
    BootTime, Change, Clock, Fence, Mode, Name, Nonce, Observations, Outcome, Record, Stamp, Time,
    apply, view,
};

use super::Random;
use super::calls::{Call, CallOutcome, summary_of};
use super::context::{LONG_TTL, TIMEOUT, TestContext, boot_time, nonce, show};
use crate::{AcquireRequest, BreakRequest, HolderKey, Leases, RenewRequest, UpdateRequest};

super::define_cases!(Leases: leases_agree_with_the_core);

const STEPS: usize = 120;
const SEEDS: u64 = 2;

async fn leases_agree_with_the_core(context: TestContext) {
    let leases = context.leases().await;
    let first = Random::any_seed();
    for seed in first..first + SEEDS {
        let mut run = RandomRun::new(&context.nested(&format!("{seed}")), seed);
        for step in 0..STEPS {
            let name = run.random.pick(&run.names).clone();
            let call = run.next_call(&name);
            run.check(&*leases, &name, call, step).await;
        }
        let name = run.names[0].clone();
        run.let_expire(&*leases, &name, context.short_ttl().await)
            .await;
    }
}

struct RandomRun {
    random: Random,
    names: Vec<Name>,
    nonces: Vec<Nonce>,
    model: BTreeMap<Name, Record>,
    /// The fences that were granted for each name, including stale ones.
    fences: BTreeMap<Name, Vec<Fence>>,
    now: Duration,
    seed: u64,
}

impl RandomRun {
    fn new(context: &TestContext, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            names: vec![context.name("one"), context.name("other")],
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
            0..=3 => Call::Acquire(self.acquire(name, LONG_TTL)),
            4..=5 => Call::Renew(RenewRequest {
                name: name.clone(),
                fence,
                ttl: *self
                    .random
                    .pick(&[None, Some(LONG_TTL), Some(LONG_TTL * 2)]),
            }),
            6..=8 => Call::Update(self.update(name, fence)),
            9..=10 => Call::Release(self.holding(fence)),
            _ => Call::Break(self.break_request(fence)),
        }
    }

    /// Returns the newest fence, or sometimes a stale one or one that was never granted.
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

    fn holding(&mut self, fence: Fence) -> HolderKey {
        if self.random.percent(50) {
            return HolderKey::Fence(fence);
        }
        HolderKey::Nonce(self.random.pick(&self.nonces).clone())
    }

    fn break_request(&mut self, fence: Fence) -> BreakRequest {
        if self.random.percent(40) {
            return BreakRequest::Own(self.holding(fence));
        }
        BreakRequest::Force {
            fence: self.random.percent(50).then_some(fence),
            reason: "a drill".into(),
            // Otherwise broken holders block the name for the rest of the run.
            now: self.random.percent(85),
        }
    }

    /// Performs the call on the leases and on the core, and compares the results.
    async fn check(&mut self, leases: &dyn Leases, name: &Name, call: Call, step: usize) {
        let (seed, before) = (self.seed, self.model.get(name));
        let description = format!("step {step} of LEASEHOLD_SEED={seed}: {call:?} on {before:?}");
        let actual = call.clone().perform(leases, name).await;
        let model = self.call_model(name, &call, &actual);
        assert_eq!(
            actual, model,
            "(left: the leases, right: the core)\n{description}"
        );
        if let CallOutcome::Granted(fence, ..) = actual {
            self.fences.entry(name.clone()).or_default().push(fence);
        }
        let answer = leases.show(name).await.expect("the store answers");
        let actual = answer.as_ref().map(|view| summary_of(&view.record));
        let seen = Observations::none();
        let now = self.clock().now(self.boot_time(), &seen);
        let model = self
            .model
            .get(name)
            .map(|record| summary_of(&view(record, &now).record));
        assert_eq!(
            actual, model,
            "(left: the leases show, right: the core)\nafter {description}"
        );
    }

    fn call_model(&mut self, name: &Name, call: &Call, real: &CallOutcome) -> CallOutcome {
        self.now += Duration::from_millis(1);
        let operation = call.operation(name);
        let before = self.model.get(name).cloned();
        let seen = Observations::none();
        let decision = apply(
            before.as_ref(),
            &operation,
            &self.clock().now(self.boot_time(), &seen),
        );
        let (mut change, mut outcome) = (decision.change, decision.outcome);
        // The fences of a new record start at the store's time, which differs from the model's.
        if let (
            None,
            CallOutcome::Granted(fence, ..),
            Change::Write(record),
            Outcome::Granted(grant),
        ) = (&before, real, &mut change, &mut outcome)
        {
            (record.fence, record.holders[0].fence, grant.fence) = (*fence, *fence, *fence);
        }
        match change {
            Change::None => {}
            Change::Write(record) => drop(self.model.insert(name.clone(), record)),
            Change::Delete => drop(self.model.remove(name)),
        }
        CallOutcome::from_core(call, outcome)
    }

    fn boot_time(&self) -> BootTime {
        BootTime::from_micros(0) + self.now
    }

    fn clock(&self) -> Clock {
        let time = Time::from_micros(1_780_000_000_000_000) + self.now;
        let stamp = Stamp {
            time,
            resolution: Duration::ZERO,
        };
        Clock::new(self.boot_time(), self.boot_time(), stamp, Duration::ZERO)
    }

    /// Frees the name, acquires it with a short ttl, lets that expire, and continues with random operations.
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
        let give_up = boot_time() + TIMEOUT;
        while !show(leases, name).await.record.holders.is_empty() {
            assert!(boot_time() < give_up, "{name} never expires");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.now += short + Duration::from_secs(1);
        for step in STEPS + 2..STEPS + 12 {
            let call = self.next_call(name);
            self.check(leases, name, call, step).await;
        }
    }
}
