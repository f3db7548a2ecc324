//! The measurements, their order and their repetitions: contestants are measured in turn, then all of them again.

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

use crate::protocols::etcd;
use crate::protocols::http::Http;
use crate::protocols::postgres::Postgres;
use crate::protocols::redis::Redis;
use crate::sample::{NAMES, Sample};
use crate::scale::HeldLeases;
use crate::service::{Service, resident};
use crate::steal::StealTime;
use crate::{Result, fail, handoff, scale};

/// What to measure.
pub(crate) struct Plan {
    pub(crate) runs: usize,
    pub(crate) measured: Duration,
    pub(crate) only: Vec<String>,
}

impl Plan {
    fn includes(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

/// The numbers of connections or tasks.
pub(crate) const CALLERS: [usize; 3] = [1, 16, 64];
/// The number of names in a large store, and of locks in memory.
const MANY: usize = 1_000_000;
/// The number of names in a small store.
const FEW: usize = 1_000;

/// Runs the parts of the plan.
pub(crate) fn run(plan: Plan) -> Result<Results> {
    let mut bench = Bench::start(plan)?;
    type Part = fn(&mut Bench) -> Result<()>;
    let parts: [(&str, Part); 7] = [
        ("service", Bench::service),
        ("library", Bench::library),
        ("hand-off", Bench::handoff),
        ("takeover", Bench::takeover),
        ("growth", Bench::growth),
        ("idle", Bench::idle),
        ("memory", Bench::memory),
    ];
    for (name, part) in parts {
        if bench.plan.includes(name) {
            bench.steal.since_last();
            part(&mut bench)?;
        }
    }
    eprintln!("{:>5.0} s  done", bench.started.elapsed().as_secs_f64());
    Ok(bench.results)
}

/// The contestants, and their measurements so far.
struct Bench {
    plan: Plan,
    started: Instant,
    /// Whether a signal asked this program to end.
    interrupted: Arc<AtomicBool>,
    /// Single-threaded: the other processor is for the servers.
    runtime: Runtime,
    /// For client libraries: the multi-threaded kind that most programs use, with one thread.
    library_runtime: Runtime,
    folder: tempfile::TempDir,
    memory_service: Service,
    sqlite_service: Service,
    redis: Server,
    durable_redis: Server,
    etcd: Server,
    postgres: Server,
    steal: StealTime,
    results: Results,
}

impl Bench {
    fn start(plan: Plan) -> Result<Self> {
        let started = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let library_runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let folder = tempfile::tempdir()?;
        let sqlite = format!("sqlite:{}", folder.path().join("leases.db").display());
        let volatile = Server::builder("redis").arg("--appendonly").arg("no");
        Ok(Self {
            plan,
            started,
            interrupted: catch_signals()?,
            memory_service: Service::start("memory:")?,
            sqlite_service: Service::start(&sqlite)?,
            redis: runtime.block_on(volatile.start())?,
            durable_redis: runtime.block_on(Server::start("redis"))?,
            etcd: runtime.block_on(Server::start("etcd"))?,
            postgres: runtime.block_on(postgres())?,
            runtime,
            library_runtime,
            folder,
            steal: StealTime::default(),
            results: Results::default(),
        })
    }

    /// Prints progress; fails if a signal asked this program to end.
    fn progress(&self, line: &str) -> Result<()> {
        let seconds = self.started.elapsed().as_secs_f64();
        eprintln!("{seconds:>5.0} s  {line}");
        let _ = std::io::stderr().flush();
        match self.interrupted.load(Ordering::Relaxed) {
            true => fail("interrupted"),
            false => Ok(()),
        }
    }

    fn add_sample(&mut self, contestant: &str, callers: usize, mut sample: Sample) -> Result<()> {
        sample.steal = self.steal.since_last();
        self.progress(&format!("{contestant:<28} {callers:>3}  {sample}"))?;
        self.results.add_sample(contestant, callers, sample);
        Ok(())
    }

    fn add_figure(&mut self, label: &str, mut figure: Figure) -> Result<()> {
        figure.steal = self.steal.since_last();
        self.progress(&format!("{label:<28} {figure}"))?;
        self.results.add_figure(label, figure);
        Ok(())
    }

    fn raw_redis(&self, server: &Server, callers: usize) -> Result<Sample> {
        load::cycles(address(server), callers, self.plan.measured, Redis::default)
    }

    /// Measures lock cycles over the network protocols.
    fn service(&mut self) -> Result<()> {
        let measured = self.plan.measured;
        for _ in 0..self.plan.runs {
            for callers in CALLERS {
                let http = |service: &Service| {
                    load::cycles(service.address, callers, measured, Http::default)
                };
                let sample = http(&self.memory_service)?;
                self.add_sample("service, memory", callers, sample)?;
                let sample = self.raw_redis(&self.redis, callers)?;
                self.add_sample("Redis", callers, sample)?;
                let sample = http(&self.sqlite_service)?;
                self.add_sample("service, SQLite", callers, sample)?;
                let sample = self.raw_redis(&self.durable_redis, callers)?;
                self.add_sample("Redis, every write synced", callers, sample)?;
                let cycles = etcd::cycles(self.etcd.port(), callers, measured);
                let sample = self.runtime.block_on(cycles)?;
                self.add_sample("etcd", callers, sample)?;
            }
        }
        Ok(())
    }

    /// Measures lock cycles with client libraries.
    fn library(&mut self) -> Result<()> {
        let measured = self.plan.measured;
        let service = format!("http://{}", self.memory_service.address);
        let (postgres, redis) = (self.postgres.url(), self.redis.url());
        let connect = |url: &str| self.library_runtime.block_on(leasehold::connect(url));
        let (on_postgres, on_redis, remote) =
            (connect(&postgres)?, connect(&redis)?, connect(&service)?);
        let redis_crate = self.library_runtime.block_on(RedisCrate::connect(&redis))?;
        for _ in 0..self.plan.runs {
            for callers in CALLERS {
                let sample = self.library_runtime.block_on(library::cycles(
                    &on_postgres,
                    callers,
                    NAMES,
                    measured,
                ))?;
                self.add_sample("library, PostgreSQL", callers, sample)?;
                let sample = load::cycles(
                    address(&self.postgres),
                    callers,
                    measured,
                    Postgres::default,
                )?;
                self.add_sample("PostgreSQL, a row", callers, sample)?;
                let sample = self
                    .library_runtime
                    .block_on(library::cycles(&on_redis, callers, NAMES, measured))?;
                self.add_sample("library, Redis", callers, sample)?;
                let sample = self.raw_redis(&self.redis, callers)?;
                self.add_sample("Redis, a script", callers, sample)?;
                let sample = self
                    .library_runtime
                    .block_on(library::cycles(&remote, callers, NAMES, measured))?;
                self.add_sample("client of the service", callers, sample)?;
                let sample = self.library_runtime.block_on(library::cycles(
                    &redis_crate,
                    callers,
                    NAMES,
                    measured,
                ))?;
                self.add_sample("redis crate", callers, sample)?;
            }
        }
        Ok(())
    }

    /// Measures hand-offs to a queue of waiters.
    fn handoff(&mut self) -> Result<()> {
        const ROUNDS: usize = 40;
        for _ in 0..self.plan.runs.div_ceil(2) {
            let times = handoff::of_service(self.memory_service.address, ROUNDS)?;
            self.add_figure("hand-off, memory", Figure::micros(times))?;
            let times = handoff::of_service(self.sqlite_service.address, ROUNDS)?;
            self.add_figure("hand-off, SQLite", Figure::micros(times))?;
            let measuring = handoff::of_etcd(self.etcd.port(), ROUNDS);
            let times = self.runtime.block_on(measuring)?;
            self.add_figure("hand-off, etcd", Figure::micros(times))?;
        }
        Ok(())
    }

    /// Measures takeovers after the death of a holder.
    fn takeover(&mut self) -> Result<()> {
        const PAIRS: usize = 200;
        for _ in 0..self.plan.runs.div_ceil(2) {
            let delays = handoff::takeover_delays(self.memory_service.address, PAIRS)?;
            self.add_figure("takeover, memory", Figure::micros(delays))?;
            let delays = handoff::takeover_delays(self.sqlite_service.address, PAIRS)?;
            self.add_figure("takeover, SQLite", Figure::micros(delays))?;
        }
        Ok(())
    }

    /// Compares stores with a million and with a thousand names.
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
                self.library_runtime
                    .block_on(scale::filled_store(url, names))
            };
            let (few, many) = (client(&few, FEW)?, client(&many, MANY)?);
            self.steal.since_last();
            for _ in 0..self.plan.runs {
                for (client, names, label) in [(&few, FEW, "1,000"), (&many, MANY, "1,000,000")] {
                    let cycles = library::cycles(client, 64, names, 2 * self.plan.measured);
                    let sample = self.library_runtime.block_on(cycles)?;
                    self.add_sample(&format!("{store}, {label} names"), 64, sample)?;
                }
            }
        }
        Ok(())
    }

    /// Measures the processor time that idle leases need, second by second.
    fn idle(&mut self) -> Result<()> {
        const LEASES: usize = 10_000;
        const SECONDS: usize = 10;
        let services = [
            ("memory", &self.memory_service),
            ("SQLite", &self.sqlite_service),
        ];
        for (store, address, process) in
            services.map(|(store, service)| (store, service.address, service.id()))
        {
            let mut held = HeldLeases::acquire(address, LEASES)?;
            self.steal.since_last();
            for _ in 0..SECONDS.min(self.plan.runs) {
                let share = held.renew(process, Duration::from_secs(1))?;
                self.add_figure(
                    &format!("idle leases, {store}"),
                    Figure::share_of_core(share),
                )?;
            }
        }
        Ok(())
    }

    /// Measures the memory of a held lock.
    fn memory(&mut self) -> Result<()> {
        let service = Service::start("memory:")?;
        let volatile = Server::builder("redis").arg("--appendonly").arg("no");
        let redis = self.runtime.block_on(volatile.start())?;
        let process = self
            .runtime
            .block_on(library::redis_process(&redis.url()))?;
        let before = [resident(service.id())?, resident(process)?];
        load::hold(service.address, MANY, Http::default)?;
        load::hold(address(&redis), MANY, Redis::default)?;
        let after = [resident(service.id())?, resident(process)?];
        let per_lock = |contestant: usize| (after[contestant] - before[contestant]) / MANY as f64;
        self.add_figure("memory of a lock", Figure::bytes(per_lock(0)))?;
        self.add_figure("memory of a lock, Redis", Figure::bytes(per_lock(1)))?;
        Ok(())
    }
}

/// Returns a flag that Ctrl-C and SIGTERM set, so that this program ends the servers and removes its folders before it ends.
fn catch_signals() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let (Ok(mut interrupt), Ok(mut terminate)) = (
                signal(SignalKind::interrupt()),
                signal(SignalKind::terminate()),
            ) else {
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                flag.store(true, Ordering::Relaxed);
                eprintln!("         ending after this measurement");
            }
        });
    });
    Ok(interrupted)
}

/// Starts a PostgreSQL without checkpoints during the measurements: a checkpoint every few minutes would distort the few
/// seconds that it falls into.
async fn postgres() -> Result<Server> {
    let settings = ["max_wal_size=8GB", "checkpoint_timeout=30min"];
    let builder = settings
        .into_iter()
        .fold(Server::builder("postgres"), |builder, setting| {
            builder.arg("-c").arg(setting)
        });
    Ok(builder.start().await?)
}

fn address(server: &Server) -> std::net::SocketAddr {
    ([127, 0, 0, 1], server.port()).into()
}
