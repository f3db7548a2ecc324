//! The `leasehold` command-line program.

mod acquire;
mod arguments;
mod bench;
mod body;
mod break_lease;
mod claim;
mod completions;
mod config;
mod default_store;
mod doctor;
mod exit;
mod gate;
mod init;
mod list;
mod log;
mod man;
mod notify;
mod output;
mod purge;
mod put;
mod release;
mod remove;
mod renew;
mod run;
mod secret;
mod serve;
mod show;
mod signals;
mod store;
mod stores;
mod table;
mod token;
mod update;
mod usage;
mod watch;
mod work;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use exit::Failure;
use tokio::runtime::Builder;

/// mimalloc, because `serve` allocates and frees about twenty times per request. Without huge pages, which take megabytes for
/// a program that needs kilobytes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // `run` starts this program again as the shim of its command and as its watchdog.
    if let Some(code) = run::helper(std::env::args_os().skip(1)) {
        return code;
    }
    run::disable_huge_pages();
    let arguments = match config::arguments(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(failure) => return failure.report(false),
    };
    let json = arguments.common.json;
    if arguments.common.quiet {
        output::be_quiet();
    }
    match dispatch(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(json),
    }
}

fn dispatch(arguments: Arguments) -> Result<u8, Failure> {
    let common = arguments.common;
    let command = match arguments.command {
        Command::Completions(command) => return command.execute(&common),
        Command::Man(command) => return command.execute(&common),
        Command::Token(command) => return command.execute(&common),
        Command::Stores(command) => return command.execute(&common),
        command => command,
    };
    runtime(&command)?.block_on(async {
        match command {
            Command::Run(command) => command.execute(&common).await,
            Command::Gate(command) => command.execute(&common).await,
            Command::Acquire(command) => command.execute(&common).await,
            Command::Renew(command) => command.execute(&common).await,
            Command::Update(command) => command.execute(&common).await,
            Command::Release(command) => command.execute(&common).await,
            Command::Break(command) => command.execute(&common).await,
            Command::Put(command) => command.execute(&common).await,
            Command::Remove(command) => command.execute(&common).await,
            Command::Claim(command) => command.execute(&common).await,
            Command::Work(command) => command.execute(&common).await,
            Command::Show(command) => command.execute(&common).await,
            Command::List(command) => command.execute(&common).await,
            Command::Watch(command) => command.execute(&common).await,
            Command::Serve(command) => command.execute(&common).await,
            Command::Doctor(command) => command.execute(&common).await,
            Command::Init(command) => command.execute(&common).await,
            Command::Purge(command) => command.execute(&common).await,
            Command::Bench(command) => command.execute(&common).await,
            Command::Completions(_) | Command::Man(_) | Command::Stores(_) | Command::Token(_) => {
                Ok(0)
            }
        }
    })
}

/// Builds the runtime: single-threaded for a `serve` with one thread, multi-threaded otherwise.
fn runtime(command: &Command) -> Result<tokio::runtime::Runtime, Failure> {
    let threads = threads()?;
    let mut runtime = match command {
        // A single-threaded runtime saves the synchronisation between threads. Other commands renew their leases on a
        // worker thread, because the main thread may block on a terminal.
        Command::Serve(_) if threads == 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let built = runtime.worker_threads(threads).enable_all().build();
    built.map_err(|error| Failure::system("cannot start the async runtime", error))
}

/// Returns the number of worker threads: `TOKIO_WORKER_THREADS`, or half of the processors.
///
/// The clients on this machine need processors too, and threads that wake each other for every small request cost more
/// than they gain.
fn threads() -> Result<usize, Failure> {
    let Some(given) = std::env::var_os("TOKIO_WORKER_THREADS") else {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        return Ok(processors.div_ceil(2));
    };
    let given = given.to_string_lossy();
    let threads = given
        .parse()
        .ok()
        .filter(|threads| (1..=1_024).contains(threads));
    threads.ok_or_else(|| {
        let message =
            format!("invalid TOKIO_WORKER_THREADS `{given}`: give a number from 1 to 1024");
        Failure::new(exit::USAGE, message)
    })
}
