//! `leasehold doctor`.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use leasehold::Error;
use leasehold::store::{self as stores, Check, Level};
use serde_json::json;

use crate::arguments::Common;
use crate::exit::Failure;
use crate::{output, store};

/// The exit code where something is red.
const UNSAFE: u8 = 1;
/// How long the whole examination may take: every call of a store is bounded, and there are not many.
const PATIENCE: Duration = Duration::from_secs(60);

/// Check whether this database is set up so that leases are safe on it.
///
/// Measures how fast it answers and what its clock shows, and looks at the settings that leases depend on. Every line
/// is green, yellow (safe, but worth a thought) or red (not safe), with the fix. Tables that are missing are made, as
/// always when a store is opened; nothing else is written.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0    nothing is red
  1    something is red: leases are not safe on it, or it does not answer

Examples:
  leasehold doctor
  leasehold doctor --store postgres://db1/app
  leasehold doctor --json | jq -r '.checks[] | select(.level != \"green\") | .fix'")]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let url = store::database(common)?;
        let checks = match tokio::time::timeout(PATIENCE, examine(&url)).await {
            Ok(checks) => checks?,
            Err(_) => vec![Check::from(Error::Unavailable(format!(
                "it did not answer within {}",
                output::span(PATIENCE)
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
            let whose = match common.store {
                Some(_) => "",
                None => " (the default store of this user; other users have their own)",
            };
            let place = format!("{}{whose}", store::shown(&url));
            output::raw(&for_people(&checks, &place, worst, colours))?;
        }
        Ok(if worst == Level::Red { UNSAFE } else { 0 })
    }
}

/// A URL that makes no sense is the caller's failure. All else that goes wrong is what a doctor is for.
async fn examine(url: &str) -> Result<Vec<Check>, Error> {
    match stores::open(url).await {
        Ok(store) => Ok(stores::examine(store.as_ref()).await),
        Err(Error::Invalid(invalid)) => Err(invalid.into()),
        Err(error) => Ok(vec![Check::from(error)]),
    }
}

fn for_people(checks: &[Check], place: &str, worst: Level, colours: bool) -> String {
    let mut lines: Vec<_> = checks.iter().map(|check| line(check, colours)).collect();
    lines.push(String::new());
    lines.push(format!("Store: {}", output::escaped(place)));
    lines.push(match worst {
        Level::Green => "Leases are safe here.".to_owned(),
        Level::Yellow => "Leases are safe here; see the yellow lines.".to_owned(),
        Level::Red => "Leases are not safe here until the red lines are mended.".to_owned(),
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
