//! `leasehold watch` on PostgreSQL shows what commands do that end at once.
#![cfg(feature = "postgres")]

#[path = "cli/support.rs"]
#[allow(dead_code, reason = "each test uses its own part of it")]
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
async fn watch_shows_every_command() {
    let database = Server::start("postgres").await.expect("installed");
    let shell = Shell {
        home: Home::new(),
        store: database.url(),
    };
    let mut watching = shell.home.start(["--store", &shell.store, "watch"]);
    // It has begun once it shows something.
    std::thread::scope(|scope| {
        let seeing = scope.spawn(|| watching.expect("granted"));
        for turn in 0.. {
            if seeing.is_finished() {
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
