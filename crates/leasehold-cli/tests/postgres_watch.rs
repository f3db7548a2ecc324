//! `leasehold watch` on PostgreSQL shows the events of short-lived commands.
#![cfg(feature = "postgres")]

#[path = "cli/support.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use leasehold_testbed::Server;
use nix::sys::signal::Signal;
use support::{Home, Ran};

/// A command line on this store.
struct Shell {
    home: Home,
    store: String,
}

impl Shell {
    fn run(&self, arguments: &[&str]) -> Ran {
        let store = ["--store", &self.store];
        self.home.run(store.iter().chain(arguments)).ok()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_shows_events_of_short_lived_commands() {
    let database = Server::start("postgres").await.expect("installed");
    let shell = Shell {
        home: Home::new(),
        store: database.url(),
    };
    let mut watching = shell.home.start(["--store", &shell.store, "watch"]);
    // `watch` has started once it prints an event.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.expect("granted"));
        for turn in 0.. {
            if waiting.is_finished() {
                break;
            }
            shell.run(&["acquire", &format!("warm-up {turn}"), "-n"]);
        }
    });
    for round in 0..12 {
        let name = format!("job {round}");
        shell.run(&["acquire", &name, "-n"]);
        watching.expect(&name);
    }
    shell.run(&["run", "nightly", "-n", "true"]);
    watching.expect("nightly");
    shell.run(&["put", "order", "--state", "READY"]);
    watching.expect("order");
    shell.run(&["break", "job 0", "--force", "--reason", "test", "--now"]);
    watching.expect("job 0");
    watching.signal(Signal::SIGINT);
    watching.ends_with(0);
}
