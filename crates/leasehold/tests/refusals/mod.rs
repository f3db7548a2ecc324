//! What every store owes to whoever has set something up wrongly: an error in time that says what to do, and no secret,
//! neither in the error nor in a log.

#![allow(dead_code, reason = "each test uses its own part of it")]

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Error;
use leasehold::store::{self, Check, Level};
use tracing_subscriber::filter::LevelFilter;

/// Stands in the URLs of these tests wherever a password does.
pub(crate) const SECRET: &str = "s3cret";

/// How long anybody may have to wait for an error: an engine waits no longer for a store.
const WITHIN: Duration = Duration::from_secs(5);

/// The error of opening this URL.
pub(crate) async fn refused(url: &str) -> Error {
    let log = Log::default();
    let listening = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    let opened = {
        let _listening = tracing::subscriber::set_default(listening);
        tokio::time::timeout(WITHIN, store::open(url)).await
    };
    let Err(error) = opened.unwrap_or_else(|_| panic!("no error in time: {url}")) else {
        panic!("{url} can be opened");
    };
    for told in [error.to_string(), format!("{error:?}"), log.text()] {
        assert!(!told.contains(SECRET), "{url}: {told}");
    }
    error
}

/// The error is that the set-up must be mended, and it says how.
#[track_caller]
pub(crate) fn denied(error: &Error, hint: &str) {
    assert!(
        matches!(error, Error::Denied(why) if why.contains(hint)),
        "{error:?} should say `{hint}`"
    );
}

/// The error is that nothing has happened, and it says why.
#[track_caller]
pub(crate) fn unavailable(error: &Error, hint: &str) {
    assert!(
        matches!(error, Error::Unavailable(why) if why.contains(hint)),
        "{error:?} should say `{hint}`"
    );
}

/// A host that says nothing, one where nobody is, and one that there is not: given `HOST:PORT`, a URL that leads there.
pub(crate) async fn nobody_is_there(url: impl Fn(&str) -> String) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = silent.local_addr().unwrap().to_string();
    unavailable(&refused(&url(&place)).await, "");
    drop(silent);
    unavailable(&refused(&url(&place)).await, "cannot be reached");
    let nowhere = refused(&url("no-such-host.invalid:1")).await;
    unavailable(&nowhere, "cannot be reached");
}

/// How bad the line of a check-up is that has this word.
#[track_caller]
pub(crate) fn level(checks: &[Check], word: &str) -> Level {
    let found = checks.iter().find(|check| check.what.contains(word));
    found
        .unwrap_or_else(|| panic!("nothing says `{word}`: {checks:?}"))
        .level
}

/// What was logged.
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
