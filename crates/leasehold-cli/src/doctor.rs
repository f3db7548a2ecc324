//! `leasehold doctor`.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use leasehold::Error;
use leasehold::store::{self as stores, Check, Level};
use serde_json::json;

use crate::arguments::Common;
use crate::exit::Failure;
use crate::{default_store, output, store};

/// The exit code if a check is red.
const UNSAFE: u8 = 1;
/// How long all checks together may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Check whether leases are safe on this database, and how to fix what is not.
///
/// Measures the response time and the clock of the database, and checks the settings that leases depend on. Each check is
/// green (safe), yellow (safe, with a caveat) or red (unsafe), and comes with a fix. Missing tables are created, as
/// whenever a store is opened; nothing else is written.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0    no check is red
  1    a check is red: leases are not safe on this database, or it does not answer

Examples:
  leasehold doctor
  leasehold doctor --store postgres://db1/app
  leasehold doctor --json | jq -r '.checks[] | select(.level != \"green\") | .fix'")]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let url = store::database(common)?;
        let checks = match tokio::time::timeout(TIMEOUT, examine(&url)).await {
            Ok(checks) => checks?,
            Err(_) => vec![Check::from(Error::Unavailable(format!(
                "the checks did not finish within {}",
                output::span(TIMEOUT)
            )))],
        };
        let worst = checks.iter().map(|check| check.level).max();
        let worst = worst.unwrap_or(Level::Green);
        if common.json {
            let scheme = store::scheme(&url);
            let shown = store::shown(&url);
            output::json(
                &json!({ "store": scheme, "url": shown, "level": worst, "checks": checks }),
            )?;
        } else {
            let colours = std::io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
            let default = match (&common.store, url.strip_prefix("sqlite:")) {
                (None, Some(path)) => format!(" ({})", default_store::description(path)),
                _ => String::new(),
            };
            let shown = format!("{}{default}", store::shown(&url));
            output::raw(&for_people(&checks, &shown, worst, colours))?;
        }
        Ok(if worst == Level::Red { UNSAFE } else { 0 })
    }
}

/// Runs the checks. An invalid URL is an error; every other failure is a red check.
async fn examine(url: &str) -> Result<Vec<Check>, Error> {
    match stores::open(url).await {
        Ok(store) => Ok(stores::examine(store.as_ref()).await),
        Err(Error::Invalid(invalid)) => Err(invalid.into()),
        Err(error) => Ok(vec![Check::from(error)]),
    }
}

fn for_people(checks: &[Check], store: &str, worst: Level, colours: bool) -> String {
    let mut lines: Vec<_> = checks.iter().map(|check| line(check, colours)).collect();
    lines.push(String::new());
    lines.push(format!("Store: {}", output::escaped(store)));
    lines.push(match worst {
        Level::Green => "Leases are safe here.".to_owned(),
        Level::Yellow => "Leases are safe here; see the yellow lines.".to_owned(),
        Level::Red => "Leases are not safe here until the red lines are fixed.".to_owned(),
    });
    lines.join("\n")
}

fn line(check: &Check, colours: bool) -> String {
    let (word, colour) = match check.level {
        Level::Green => ("green", 32),
        Level::Yellow => ("yellow", 33),
        Level::Red => ("red", 31),
    };
    let word = if colours {
        format!("\x1b[{colour}m{word:<6}\x1b[0m")
    } else {
        format!("{word:<6}")
    };
    let what = output::escaped(&check.what);
    match check.fix.as_deref().map(output::escaped) {
        Some(fix) => format!("{word}  {what}\n        fix: {fix}"),
        None => format!("{word}  {what}"),
    }
}
