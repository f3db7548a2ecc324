//! What is measured, in which order, how often: one after another, and then all of it again.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold_testbed::Server;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::goals::{Figure, Results};
use crate::library::{self, RedisCrate};
use crate::load;
use crate::neighbours::Neighbours;
use crate::sample::{NAMES, Sample};
use crate::service::{Service, resident};
use crate::speak::etcd;
use crate::speak::http::Http;
use crate::speak::postgres::Postgres;
use crate::speak::redis::Redis;
use crate::standing::Kept;
use crate::{Result, fail, hand_over, standing};

/// What to measure.
pub(crate) struct Plan {
    pub(crate) runs: usize,
    pub(crate) measured: Duration,
    pub(crate) only: Vec<String>,
}

impl Plan {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

/// How many connections or tasks.
pub(crate) const CALLERS: [usize; 3] = [1, 16, 64];
/// Names in a large store, and locks in memory.
const MANY: usize = 1_000_000;
const FEW: usize = 1_000;

/// Everything, in turn.
pub(crate) fn run(plan: Plan) -> Result<Results> {
    let mut bench = Bench::start(plan)?;
    type Part = fn(&mut Bench) -> Result<()>;
    let parts: [(&str, Part); 7] = [
        ("service", Bench::service),
        ("library", Bench::library),
        ("hand-over", Bench::hand_over),
        ("take-over", Bench::take_over),
        ("growth", Bench::growth),
        ("idle", Bench::idle),
        ("memory", Bench::memory),
    ];
    for (name, part) in parts {
        if bench.plan.wants(name) {
            bench.neighbours.took();
            part(&mut bench)?;
        }
    }
    eprintln!("{:>5.0} s  done", bench.started.elapsed().as_secs_f64());
    Ok(bench.results)
}

/// The contestants, and what has been seen of them.
struct Bench {
    plan: Plan,
    started: Instant,
    /// Somebody wants it to end.
    interrupted: Arc<AtomicBool>,
    /// One thread: the other processor is for the servers.
    runtime: Runtime,
    /// What libraries run on: the kind that most programs have, also with one thread.
    of_libraries: Runtime,
    folder: tempfile::TempDir,
    on_memory: Service,
    on_sqlite: Service,
    redis: Server,
    durable_redis: Server,
    etcd: Server,
    postgres: Server,
    neighbours: Neighbours,
    results: Results,
}

impl Bench {
    fn start(plan: Plan) -> Result<Self> {
        let started = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let of_libraries = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let folder = tempfile::tempdir()?;
        let sqlite = format!("sqlite:{}", folder.path().join("leases.db").display());
        let volatile = Server::builder("redis").arg("--appendonly").arg("no");
        Ok(Self {
            plan,
            started,
            interrupted: interrupted()?,
            on_memory: Service::start("memory:")?,
            on_sqlite: Service::start(&sqlite)?,
            redis: runtime.block_on(volatile.start())?,
            durable_redis: runtime.block_on(Server::start("redis"))?,
            etcd: runtime.block_on(Server::start("etcd"))?,
            postgres: runtime.block_on(postgres())?,
            runtime,
            of_libraries,
            folder,
            neighbours: Neighbours::default(),
            results: Results::default(),
        })
    }

    /// Tells what was done, and goes on unless told to end.
    fn progress(&self, what: &str) -> Result<()> {
        let seconds = self.started.elapsed().as_secs_f64();
        eprintln!("{seconds:>5.0} s  {what}");
        let _ = std::io::stderr().flush();
        match self.interrupted.load(Ordering::Relaxed) {
            true => fail("interrupted"),
            false => Ok(()),
        }
    }

    fn note(&mut self, who: &str, callers: usize, mut sample: Sample) -> Result<()> {
        sample.taken = self.neighbours.took();
        self.progress(&format!("{who:<28} {callers:>3}  {sample}"))?;
        self.results.note(who, callers, sample);
        Ok(())
    }

    fn figure(&mut self, what: &str, mut figure: Figure) -> Result<()> {
        figure.taken = self.neighbours.took();
        self.progress(&format!("{what:<28} {figure}"))?;
        self.results.figure(what, figure);
        Ok(())
    }

    fn raw_redis(&self, server: &Server, callers: usize) -> Result<Sample> {
        load::cycles(at(server), callers, self.plan.measured, Redis::default)
    }

    /// Lock cycles over the wire.
    fn service(&mut self) -> Result<()> {
        let measured = self.plan.measured;
        for _ in 0..self.plan.runs {
            for callers in CALLERS {
                let http = |service: &Service| {
                    load::cycles(service.address, callers, measured, Http::default)
                };
                let sample = http(&self.on_memory)?;
                self.note("service, memory", callers, sample)?;
                let sample = self.raw_redis(&self.redis, callers)?;
                self.note("Redis", callers, sample)?;
                let sample = http(&self.on_sqlite)?;
                self.note("service, SQLite", callers, sample)?;
                let sample = self.raw_redis(&self.durable_redis, callers)?;
                self.note("Redis, every write synced", callers, sample)?;
                let cycles = etcd::cycles(self.etcd.port(), callers, measured);
                let sample = self.runtime.block_on(cycles)?;
                self.note("etcd", callers, sample)?;
            }
        }
        Ok(())
    }

    /// Lock cycles by libraries.
    fn library(&mut self) -> Result<()> {
        let measured = self.plan.measured;
        let service = format!("http://{}", self.on_memory.address);
        let (postgres, redis) = (self.postgres.url(), self.redis.url());
        let connect = |url: &str| self.of_libraries.block_on(leasehold::connect(url));
        let (on_postgres, on_redis, remote) =
            (connect(&postgres)?, connect(&redis)?, connect(&service)?);
        let crates = self.of_libraries.block_on(RedisCrate::connect(&redis))?;
        for _ in 0..self.plan.runs {
            for callers in CALLERS {
                let sample = self.of_libraries.block_on(library::cycles(
                    &on_postgres,
                    callers,
                    NAMES,
                    measured,
                ))?;
                self.note("library, PostgreSQL", callers, sample)?;
                let sample =
                    load::cycles(at(&self.postgres), callers, measured, Postgres::default)?;
                self.note("PostgreSQL, a row", callers, sample)?;
                let sample = self
                    .of_libraries
                    .block_on(library::cycles(&on_redis, callers, NAMES, measured))?;
                self.note("library, Redis", callers, sample)?;
                let sample = self.raw_redis(&self.redis, callers)?;
                self.note("Redis, a script", callers, sample)?;
                let sample = self
                    .of_libraries
                    .block_on(library::cycles(&remote, callers, NAMES, measured))?;
                self.note("client of the service", callers, sample)?;
                let sample = self
                    .of_libraries
                    .block_on(library::cycles(&crates, callers, NAMES, measured))?;
                self.note("redis crate", callers, sample)?;
            }
        }
        Ok(())
    }

    /// A line of eight, drained.
    fn hand_over(&mut self) -> Result<()> {
        const ROUNDS: usize = 40;
        for _ in 0..self.plan.runs.div_ceil(2) {
            let took = hand_over::of_service(self.on_memory.address, ROUNDS)?;
            self.figure("hand-over, memory", Figure::micros(took))?;
            let took = hand_over::of_service(self.on_sqlite.address, ROUNDS)?;
            self.figure("hand-over, SQLite", Figure::micros(took))?;
            let handing = hand_over::of_etcd(self.etcd.port(), ROUNDS);
            let took = self.runtime.block_on(handing)?;
            self.figure("hand-over, etcd", Figure::micros(took))?;
        }
        Ok(())
    }

    /// A holder that dies.
    fn take_over(&mut self) -> Result<()> {
        const PAIRS: usize = 200;
        for _ in 0..self.plan.runs.div_ceil(2) {
            let late = hand_over::after_death(self.on_memory.address, PAIRS)?;
            self.figure("take-over, memory", Figure::micros(late))?;
            let late = hand_over::after_death(self.on_sqlite.address, PAIRS)?;
            self.figure("take-over, SQLite", Figure::micros(late))?;
        }
        Ok(())
    }

    /// A million names, and a thousand.
    fn growth(&mut self) -> Result<()> {
        let sqlite = |name| format!("sqlite:{}", self.folder.path().join(name).display());
        let other = self.runtime.block_on(postgres())?;
        let stores = [
            ("memory", "memory:".to_owned(), "memory:".to_owned()),
            ("SQLite", sqlite("few.db"), sqlite("many.db")),
            ("PostgreSQL", self.postgres.url(), other.url()),
        ];
        for (store, few, many) in stores {
            self.progress(&format!("filling {store} with a million names"))?;
            let client = |url, names| {
                self.of_libraries
                    .block_on(standing::client_among(url, names))
            };
            let (few, many) = (client(&few, FEW)?, client(&many, MANY)?);
            self.neighbours.took();
            for _ in 0..self.plan.runs {
                for (client, names, called) in [(&few, FEW, "1,000"), (&many, MANY, "1,000,000")] {
                    let cycles = library::cycles(client, 64, names, 2 * self.plan.measured);
                    let sample = self.of_libraries.block_on(cycles)?;
                    self.note(&format!("{store}, {called} names"), 64, sample)?;
                }
            }
        }
        Ok(())
    }

    /// Leases that are merely kept, second by second.
    fn idle(&mut self) -> Result<()> {
        const LEASES: usize = 10_000;
        const SECONDS: usize = 10;
        let services = [("memory", &self.on_memory), ("SQLite", &self.on_sqlite)];
        for (store, address, process) in
            services.map(|(store, service)| (store, service.address, service.id()))
        {
            let mut kept = Kept::take(address, LEASES)?;
            self.neighbours.took();
            for _ in 0..SECONDS.min(self.plan.runs) {
                let share = kept.renew(process, Duration::from_secs(1))?;
                self.figure(&format!("idle leases, {store}"), Figure::share(share))?;
            }
        }
        Ok(())
    }

    /// Bytes of a held lock.
    fn memory(&mut self) -> Result<()> {
        let service = Service::start("memory:")?;
        let volatile = Server::builder("redis").arg("--appendonly").arg("no");
        let redis = self.runtime.block_on(volatile.start())?;
        let process = self
            .runtime
            .block_on(library::redis_process(&redis.url()))?;
        let before = [resident(service.id())?, resident(process)?];
        load::hold(service.address, MANY, Http::default)?;
        load::hold(at(&redis), MANY, Redis::default)?;
        let after = [resident(service.id())?, resident(process)?];
        let each = |who: usize| (after[who] - before[who]) / MANY as f64;
        self.figure("memory of a lock", Figure::bytes(each(0)))?;
        self.figure("memory of a lock, Redis", Figure::bytes(each(1)))?;
        Ok(())
    }
}

/// Set by Ctrl-C and by SIGTERM: what was started is ended, and its folders are removed, only where this program ends by
/// itself.
fn interrupted() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let seen = interrupted.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let (Ok(mut interrupt), Ok(mut end)) = (
                signal(SignalKind::interrupt()),
                signal(SignalKind::terminate()),
            ) else {
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = end.recv() => {}
                }
                seen.store(true, Ordering::Relaxed);
                eprintln!("         ends after this measurement");
            }
        });
    });
    Ok(interrupted)
}

/// A PostgreSQL that makes no checkpoint meanwhile: it comes every few minutes, and would count for all of them in the
/// few seconds that it falls into.
async fn postgres() -> Result<Server> {
    let settings = ["max_wal_size=8GB", "checkpoint_timeout=30min"];
    let builder = settings
        .into_iter()
        .fold(Server::builder("postgres"), |builder, setting| {
            builder.arg("-c").arg(setting)
        });
    Ok(builder.start().await?)
}

fn at(server: &Server) -> std::net::SocketAddr {
    ([127, 0, 0, 1], server.port()).into()
}
