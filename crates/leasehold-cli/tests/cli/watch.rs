//! `watch`: events on a database and through a service.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::service::Service;
use crate::support::Home;

#[test]
fn events_are_printed_as_lines_until_interrupted() {
    let home = Home::new();
    let mut watching = home.start(["watch", "job", "--every", "20ms"]);
    // `watch` has started once it prints an event.
    let ready = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.expect("granted"));
        let mut turn = 0;
        while !waiting.is_finished() {
            turn += 1;
            home.run(["acquire", &format!("job-{turn}"), "-n", "--owner", "me"])
                .ok();
        }
        waiting.join().unwrap()
    });
    assert!(ready.contains("job-") && ready.contains("me"), "{ready}");
    home.run(["acquire", "other", "-n"]).ok();
    home.run(["run", "job/x", "-n", "--owner", "runner", "true"])
        .ok();
    let line = watching.expect("job/x");
    assert!(line.contains("runner"), "{line}");
    watching.signal(Signal::SIGINT);
    watching.ends_with(0);
}

#[test]
fn watch_prints_events_of_a_service_as_json_and_reconnects() {
    let home = Home::new();
    let mut service = Service::start(&home);
    let mut watching = home.start(["--store", &service.url(), "--json", "watch"]);
    let event = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| watching.expect("granted"));
        while !waiting.is_finished() {
            service.post("/locks/job?nonce=n&owner=web");
        }
        waiting.join().unwrap()
    });
    let event: Value = serde_json::from_str(&event).unwrap();
    assert_eq!(
        (&event["name"], &event["owner"]),
        (&"job".into(), &"web".into())
    );
    service.process.signal(Signal::SIGTERM);
    service.process.ends_with(0);
    watching.expect("retrying");
    watching.signal(Signal::SIGTERM);
    watching.ends_with(0);
}

#[test]
fn watch_fails_if_the_service_was_never_reachable() {
    let home = Home::new();
    home.run(["--store", "http://127.0.0.1:1", "watch"])
        .failed(69, "cannot be reached");
}
