//! Writes that land while their answers stall, as every store on a server may see them.

use std::time::{Duration, Instant};

use leasehold::core::{Fence, Mode, Name, Nonce, Record};
use leasehold::engine::{Config, Engine};
use leasehold::host::{Host as _, Machine};
use leasehold::{
    AcquireRequest, Acquired, BreakRequest, Error, Holding, Leases as _, PutRequest, RenewRequest,
    Result, UpdateRequest, Updated, store,
};
use leasehold_testbed::Proxy;

const TTL: Duration = Duration::from_secs(120);
/// Within which a write reaches the server, on a busy machine too.
const LANDED: Duration = Duration::from_secs(30);

/// Where records are.
pub(crate) struct Place {
    pub(crate) scheme: &'static str,
    /// Of the URL of the engine whose answers stall.
    pub(crate) options: &'static str,
    /// Further options that make its driver notice sooner, if it has any.
    pub(crate) hasty: &'static str,
    /// Of the URL of the other engine: its store waits for as long as a slow server needs.
    pub(crate) patient: &'static str,
}

/// A write that landed unanswered is not run again, and not reported as refused.
pub(crate) async fn landed_writes_are_not_repeated(place: Place) {
    for stall in [Stall::UntilNoticed, Stall::SevenSeconds] {
        tokio::join!(
            put_is_not_repeated(&place, stall),
            break_spares_the_next_holder(&place, stall),
            update_is_not_refused(&place, stall),
        );
    }
}

/// For how long answers stall.
#[derive(Clone, Copy, Debug)]
enum Stall {
    /// Until the engine has seen a call fail, and before it answers its caller.
    UntilNoticed,
    /// For longer than an engine waits, with the timeouts that a user has.
    SevenSeconds,
}

/// Two engines on one server. The answers to one of them can be stalled.
struct Site {
    proxy: Proxy,
    behind: Engine,
    other: Engine,
    stall: Stall,
    name: Name,
}

impl Site {
    async fn new(place: &Place, stall: Stall, name: &str) -> Self {
        let server = leasehold_testbed::shared(place.scheme).await.unwrap();
        let proxy = Proxy::to(server.port()).await;
        let hasty = match stall {
            Stall::UntilNoticed => place.hasty,
            Stall::SevenSeconds => "",
        };
        let url = server.url_at(proxy.port()) + place.options + hasty;
        Self {
            proxy,
            behind: engine(&url, Config::default()).await,
            other: engine(&(server.url() + place.patient), patient()).await,
            stall,
            name: Name::lock(format!("{name} {stall:?}")).unwrap(),
        }
    }

    /// Starts a call whose write lands unanswered, runs `meanwhile` on the written record, and lets answers through.
    /// Returns the answer of the call and the output of `meanwhile`.
    async fn unanswered<T: Send + 'static, M>(
        &self,
        call: impl Future<Output = Result<T>> + Send + 'static,
        meanwhile: impl Future<Output = M>,
    ) -> (Result<T>, M) {
        let before = self.seen().await;
        self.proxy.stall_answers();
        let began = Instant::now();
        let calling = tokio::spawn(call);
        while self.seen().await == before {
            assert!(began.elapsed() < LANDED, "nothing was written");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let done = meanwhile.await;
        match self.stall {
            Stall::UntilNoticed => {
                let failures = || self.behind.measures().failures.iter();
                while failures().all(|counter| counter.get() == 0) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            Stall::SevenSeconds => {
                tokio::time::sleep_until((began + Duration::from_secs(7)).into()).await;
            }
        }
        self.proxy.forward();
        let answer = calling.await.unwrap();
        // Closing completes the writes that the engine still has queued.
        self.behind.close().await;
        (answer, done)
    }

    async fn seen(&self) -> Option<Record> {
        let view = self.other.show(&self.name).await.unwrap();
        view.map(|view| view.record)
    }

    async fn state(&self) -> String {
        self.seen().await.unwrap().state.unwrap().label.to_string()
    }
}

/// The limits of an engine that only looks on.
fn patient() -> Config {
    let mut config = Config::default();
    config.timeout = LANDED;
    config
}

async fn engine(url: &str, config: Config) -> Engine {
    let store = store::open(url).await.unwrap();
    let started = Engine::start_with(store, Machine::shared(), config).await;
    started.unwrap()
}

async fn acquire(engine: &Engine, name: &Name) -> Fence {
    let request = AcquireRequest {
        name: name.clone(),
        nonce: Nonce::new(format!("{:032x}", Machine.random())).unwrap(),
        owner: "test".into(),
        ttl: TTL,
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    };
    match engine.acquire(request).await.unwrap() {
        Acquired::Granted(hold) => hold.grant.fence,
        Acquired::Held(held) => panic!("`{name}`: {held:?}"),
    }
}

fn update(name: &Name, fence: Fence, state: &str) -> UpdateRequest {
    UpdateRequest {
        name: name.clone(),
        fence,
        body: None,
        state: Some(Some(state.into())),
        then_release: true,
    }
}

#[track_caller]
fn assert_indeterminate<T: std::fmt::Debug>(answer: &Result<T>, stall: Stall) {
    assert!(
        matches!(answer, Err(Error::Indeterminate(_))),
        "{stall:?}: {answer:?}"
    );
}

async fn put_is_not_repeated(place: &Place, stall: Stall) {
    let site = Site::new(place, stall, "put").await;
    // A first write may take more than one round trip: Redis, for example, has to be sent the script.
    let first = Name::lock(format!("first write {stall:?}")).unwrap();
    acquire(&site.behind, &first).await;
    let (engine, name) = (site.behind.clone(), site.name.clone());
    let put = async move {
        let request = PutRequest {
            name,
            state: "REQUESTED".into(),
            body: Some("order".into()),
            nonce: None,
        };
        engine.put(request).await
    };
    let finish = async {
        let fence = acquire(&site.other, &site.name).await;
        let finished = site.other.update(update(&site.name, fence, "DONE")).await;
        assert_eq!(finished, Ok(Updated::Completed));
    };
    let (answer, ()) = site.unanswered(put, finish).await;
    assert_eq!(site.state().await, "DONE", "{stall:?}");
    assert_indeterminate(&answer, stall);
}

async fn break_spares_the_next_holder(place: &Place, stall: Stall) {
    let site = Site::new(place, stall, "break").await;
    // By the same engine, so that it has the record and need not load it.
    acquire(&site.behind, &site.name).await;
    let (engine, name) = (site.behind.clone(), site.name.clone());
    let break_now = async move {
        let how = BreakRequest::Force {
            fence: None,
            reason: "stuck".into(),
            now: true,
        };
        engine.break_lease(&name, how).await
    };
    let next = acquire(&site.other, &site.name);
    let (answer, fence) = site.unanswered(break_now, next).await;
    let renewal = RenewRequest {
        name: site.name.clone(),
        fence,
        ttl: None,
    };
    let renewed = site.other.renew(vec![renewal], TTL).await;
    assert!(renewed[0].is_ok(), "{stall:?}: {renewed:?}");
    assert_indeterminate(&answer, stall);
}

async fn update_is_not_refused(place: &Place, stall: Stall) {
    let site = Site::new(place, stall, "update").await;
    let fence = acquire(&site.behind, &site.name).await;
    let (engine, name) = (site.behind.clone(), site.name.clone());
    let finish = async move { engine.update(update(&name, fence, "DONE")).await };
    // The record remembers how its last holder ended, which is no longer this one.
    let next = async {
        let fence = acquire(&site.other, &site.name).await;
        let released = site.other.release(&site.name, Holding::Fence(fence)).await;
        assert_eq!(released, Ok(true));
    };
    let (answer, ()) = site.unanswered(finish, next).await;
    assert_eq!(site.state().await, "DONE", "{stall:?}");
    assert_indeterminate(&answer, stall);
}
