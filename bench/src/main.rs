//! Leasehold next to what people would take instead: Redis with a script, etcd's lock, a row in PostgreSQL. On one
//! machine, in one run, interleaved. `bench/compare` builds and starts it.
//!
//! | file | what it does |
//! |---|---|
//! | `load.rs` | the load generator: one thread, raw connections |
//! | `speak/` | the protocols: ours, Redis, PostgreSQL, etcd |
//! | `library.rs` | the same cycle by libraries in this process |
//! | `hand_over.rs` | release to next grant, and death to next grant |
//! | `standing.rs` | many names, many idle leases |
//! | `rounds.rs` | what is measured, in which order, how often |
//! | `neighbours.rs` | how much of the processors others took meanwhile |
//! | `goals.rs` | what must come out |
//! | `report.rs`, `plot.rs` | table, JSON, picture |

mod goals;
mod hand_over;
mod library;
mod load;
mod neighbours;
mod plot;
mod report;
mod rounds;
mod sample;
mod service;
mod speak;
mod standing;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use speak::http::Http;

/// The one that our service has: libraries are measured with what a program that cares for speed would take.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

fn fail<T>(why: &str) -> Result<T> {
    Err(why.into())
}

/// Compares Leasehold with Redis, etcd and PostgreSQL on this machine. Under ten minutes.
#[derive(Debug, Parser)]
struct Args {
    /// How often lock cycles are measured, and everything else half as often: the median of the quieter half counts.
    #[arg(long, default_value_t = 12)]
    runs: usize,

    /// For how long each measurement runs, in seconds.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,

    /// Only these parts: `service`, `library`, `hand-over`, `take-over`, `growth`, `idle`, `memory`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// Only lock cycles on a service that runs already, for a profiler to watch.
    #[arg(long, value_name = "ADDRESS")]
    load: Option<SocketAddr>,

    /// With so many connections.
    #[arg(long, default_value_t = 64, requires = "load")]
    callers: usize,

    /// Where `results.json` and `results.svg` go; nowhere unless it is given.
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
        return fail("TMPDIR must name a folder on a disk: run `bench/compare`");
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
