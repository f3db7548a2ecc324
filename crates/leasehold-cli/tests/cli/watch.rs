//! `watch`.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::service::Service;
use crate::support::Home;

#[test]
fn what_happens_is_told_as_lines_until_it_is_interrupted() {
    let home = Home::new();
    let mut watching = home.start(["watch", "job", "--every", "20ms"]);
    // It has begun once it tells of something.
    let ready = std::thread::scope(|scope| {
        let telling = scope.spawn(|| watching.expect("granted"));
        let mut turn = 0;
        while !telling.is_finished() {
            turn += 1;
            home.run(["acquire", &format!("job-{turn}"), "-n", "--owner", "me"])
                .ok();
        }
        telling.join().unwrap()
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
fn a_service_is_watched_in_json_and_again_when_it_is_back() {
    let home = Home::new();
    let mut service = Service::start(&home);
    let mut watching = home.start(["--store", &service.url(), "--json", "watch"]);
    let told = std::thread::scope(|scope| {
        let telling = scope.spawn(|| watching.expect("granted"));
        while !telling.is_finished() {
            service.post("/locks/job?nonce=n&owner=web");
        }
        telling.join().unwrap()
    });
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["name"], &told["owner"]),
        (&"job".into(), &"web".into())
    );
    service.process.signal(Signal::SIGTERM);
    service.process.ends_with(0);
    watching.expect("trying again");
    watching.signal(Signal::SIGTERM);
    watching.ends_with(0);
}

#[test]
fn a_service_that_was_never_there_is_a_failure() {
    let home = Home::new();
    home.run(["--store", "http://127.0.0.1:1", "watch"])
        .failed(69, "cannot be reached");
}
