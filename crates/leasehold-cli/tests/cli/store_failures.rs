//! The log of `serve` when the store fails.

use std::fs;

use nix::sys::signal::Signal;

use crate::service::Service;
use crate::support::Home;

#[test]
fn store_failure_is_logged_once_when_it_begins_and_once_when_it_ends() {
    let home = Home::new();
    let mut service = Service::start_with(&home, &["--store", "sqlite:leases.db"]);
    let (file, aside) = (home.file("leases.db"), home.file("aside.db"));
    for _ in 0..2 {
        assert!(service.post("/locks/a?nonce=n").starts_with("HTTP/1.1 200"));
        fs::rename(&file, &aside).unwrap();
        for _ in 0..5 {
            assert!(service.post("/locks/a?nonce=n").starts_with("HTTP/1.1 503"));
        }
        service.process.expect("the store fails");
        fs::rename(&aside, &file).unwrap();
        service.process.expect("the store answers again");
    }
    service.process.signal(Signal::SIGTERM);
    let log = service.process.ends_with(0);
    // Each change was logged once, and consumed above.
    for change in ["the store fails", "the store answers again"] {
        let again = log.iter().find(|line| line.contains(change));
        assert_eq!(again, None, "{log:?}");
    }
}
