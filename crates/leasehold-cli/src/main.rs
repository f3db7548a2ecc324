//! Leasehold on the command line.

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
mod token;
mod update;
mod usage;
mod watch;
mod work;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use exit::Failure;
use tokio::runtime::Builder;

/// A service allocates and frees some twenty times for each request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // `run` starts this program anew to become the command and its watchdog.
    if let Some(code) = run::helper(std::env::args_os().skip(1)) {
        return code;
    }
    let arguments = match config::arguments(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(failure) => return failure.tell(false),
    };
    let json = arguments.common.json;
    match dispatch(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.tell(json),
    }
}

fn dispatch(arguments: Arguments) -> Result<u8, Failure> {
    let common = arguments.common;
    let command = match arguments.command {
        Command::Completions(command) => return command.execute(&common),
        Command::Man(command) => return command.execute(&common),
        Command::Token(command) => return command.execute(&common),
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
            Command::Completions(_) | Command::Man(_) | Command::Token(_) => Ok(0),
        }
    })
}

/// With one thread or several, as the command needs it.
fn runtime(command: &Command) -> Result<tokio::runtime::Runtime, Failure> {
    let threads = threads()?;
    let mut runtime = match command {
        // One thread alone needs no precautions against others. Other commands keep their leases on another thread while
        // the main one may wait for a terminal.
        Command::Serve(_) if threads == 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let built = runtime.worker_threads(threads).enable_all().build();
    built.map_err(|error| Failure::system("the runtime cannot start", error))
}

/// Half of the processors, because whoever asks needs some as well: threads that wake each other for every small
/// request cost more than they bring. `TOKIO_WORKER_THREADS` says otherwise.
fn threads() -> Result<usize, Failure> {
    let Some(told) = std::env::var_os("TOKIO_WORKER_THREADS") else {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        return Ok(processors.div_ceil(2));
    };
    let told = told.to_string_lossy();
    let threads = told
        .parse()
        .ok()
        .filter(|threads| (1..=1_024).contains(threads));
    threads.ok_or_else(|| {
        let message = format!("TOKIO_WORKER_THREADS is `{told}`: give a number from 1 to 1024");
        Failure::new(exit::USAGE, message)
    })
}
