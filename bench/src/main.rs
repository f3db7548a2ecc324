//! Compares Leasehold with its alternatives: a script on Redis, the lock of etcd, a row in PostgreSQL. All are measured on
//! one machine, in one run, interleaved. `bench/compare` builds and starts this program.
//!
//! | file | what it does |
//! |---|---|
//! | `load.rs` | the load generator: one thread, raw connections |
//! | `protocols/` | the protocols of Leasehold, Redis, PostgreSQL and etcd |
//! | `library.rs` | the same cycle with client libraries in this process |
//! | `handoff.rs` | hand-offs after a release, takeovers after a death |
//! | `scale.rs` | many names, many idle leases |
//! | `rounds.rs` | the measurements, their order and repetitions |
//! | `steal.rs` | steal time of the processors |
//! | `goals.rs` | the goals |
//! | `report.rs`, `plot.rs` | table, JSON, chart |

mod goals;
mod handoff;
mod library;
mod load;
mod plot;
mod protocols;
mod report;
mod rounds;
mod sample;
mod scale;
mod service;
mod steal;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use protocols::http::Http;

/// The allocator of the service, so that libraries are measured with the same one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

fn fail<T>(message: &str) -> Result<T> {
    Err(message.into())
}

/// Compare Leasehold with Redis, etcd and PostgreSQL on this machine, in less than ten minutes.
#[derive(Debug, Parser)]
struct Args {
    /// How often to measure lock cycles; everything else is measured half as often. Results are medians of the quieter half.
    #[arg(long, default_value_t = 12)]
    runs: usize,

    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,

    /// Measure only these parts: `service`, `library`, `hand-off`, `takeover`, `growth`, `idle`, `memory`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// Only run lock cycles on a running service at this address, for a profiler to observe.
    #[arg(long, value_name = "ADDRESS")]
    load: Option<SocketAddr>,

    /// Number of connections for `--load`.
    #[arg(long, default_value_t = 64, requires = "load")]
    callers: usize,

    /// Write `results.json` and `results.svg` into this folder.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let measured = Duration::from_secs_f64(args.seconds);
    if let Some(address) = args.load {
        let sample = load::cycles(address, args.callers, measured, Http::default)?;
        println!("{sample}");
        return Ok(());
    }
    if std::env::var_os("TMPDIR").is_none() {
        return fail(
            "TMPDIR is not set: it must name a folder on a disk; run `bench/compare`, which sets it",
        );
    }
    let plan = rounds::Plan {
        runs: args.runs.max(1),
        measured,
        only: args.only,
    };
    let results = rounds::run(plan)?;
    report::print(&results);
    if let Some(folder) = args.out {
        std::fs::create_dir_all(&folder)?;
        report::write(&results, &folder)?;
    }
    Ok(())
}
