//! Configuration errors of every store. An error is reported in time and names the fix. Neither the error nor a log
//! contains a secret.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Error;
use leasehold::store::{self, Check, Level};
use tracing_subscriber::filter::LevelFilter;

/// The password in the URLs of these tests.
pub(crate) const SECRET: &str = "s3cret";

/// How long an error may take: the timeout of an engine.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a store that must fail, and returns its error.
pub(crate) async fn open_error(url: &str) -> Error {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    let opened = {
        let _guard = tracing::subscriber::set_default(subscriber);
        tokio::time::timeout(ERROR_TIMEOUT, store::open(url)).await
    };
    let Err(error) = opened.unwrap_or_else(|_| panic!("no error in time: {url}")) else {
        panic!("{url} was opened");
    };
    for message in [error.to_string(), format!("{error:?}"), log.text()] {
        assert!(!message.contains(SECRET), "{url}: {message}");
    }
    error
}

/// Asserts that the error requires a configuration change and contains a hint.
#[track_caller]
pub(crate) fn assert_denied(error: &Error, hint: &str) {
    assert!(
        matches!(error, Error::Denied(why) if why.contains(hint)),
        "{error:?} should contain `{hint}`"
    );
}

/// Asserts that the call certainly had no effect and that the error contains a hint.
#[track_caller]
pub(crate) fn assert_unavailable(error: &Error, hint: &str) {
    assert!(
        matches!(error, Error::Unavailable(why) if why.contains(hint)),
        "{error:?} should contain `{hint}`"
    );
}

/// Checks a host that does not answer, a closed port, and a host that does not exist. `url` returns a URL for
/// `HOST:PORT`.
pub(crate) async fn unreachable_hosts_are_reported(url: impl Fn(&str) -> String) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    assert_unavailable(&open_error(&url(&address)).await, "");
    drop(silent);
    assert_unavailable(&open_error(&url(&address)).await, "cannot connect");
    let nowhere = open_error(&url("no-such-host.invalid:1")).await;
    assert_unavailable(&nowhere, "cannot connect");
}

/// Returns the level of the check that contains this word.
#[track_caller]
pub(crate) fn level(checks: &[Check], word: &str) -> Level {
    let found = checks.iter().find(|check| check.what.contains(word));
    found
        .unwrap_or_else(|| panic!("no check contains `{word}`: {checks:?}"))
        .level
}

/// The captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
