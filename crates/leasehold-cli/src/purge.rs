//! `leasehold purge`.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use leasehold::engine::{Engine, Purged};
use serde_json::json;

use crate::arguments::Common;
use crate::exit::{Failure, USAGE};
use crate::{output, store};

/// Delete what nobody needs any more: records that are free and empty, and have been for a while.
#[derive(Args, Debug)]
#[command(after_help = "\
Leases that are held, gates that are shut, items with a state and whatever has a body stay. The fences of a deleted \
name still only grow. It can be ended at any moment, and run again. A service (`leasehold serve`) does this by itself.

Examples:
  leasehold purge
  leasehold purge --older-than 7d --prefix devices/
  leasehold purge --store postgres://localhost/app --json")]
pub(crate) struct Purge {
    /// Only what has been free for longer than this: an hour at least.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    older_than: Duration,

    /// Only names that start like this.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
}

impl Purge {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let place = store::place(common)?;
        let url = place.url();
        if matches!(store::scheme(url), "http" | "https") {
            return Err(Failure::new(
                USAGE,
                "a service purges by itself (see `leasehold serve`): to do it now, name the database behind it, as \
                 the service's own `--store` does",
            ));
        }
        let engine = Engine::start(leasehold::store::open(url).await?).await?;
        let progress = Progress::new();
        let purged = engine
            .purge(&self.prefix, self.older_than, |so_far| {
                progress.show(so_far)
            })
            .await;
        engine.close().await;
        progress.clear();
        let Purged { seen, deleted } = purged?;
        if common.json {
            output::json(&json!({ "seen": seen, "deleted": deleted }))?;
        } else {
            output::text(&summary(seen, deleted))?;
        }
        Ok(0)
    }
}

fn summary(seen: u64, deleted: u64) -> String {
    let records = if seen == 1 { "record" } else { "records" };
    format!("deleted {deleted} of {seen} {records} that nobody holds")
}

/// How far it is, on one line of the terminal.
struct Progress {
    terminal: bool,
}

impl Progress {
    fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { terminal }
    }

    fn show(&self, so_far: Purged) {
        if self.terminal {
            let Purged { seen, deleted } = so_far;
            output::rewrite(&format!("leasehold: {}…", summary(seen, deleted)));
        }
    }

    fn clear(&self) {
        if self.terminal {
            output::rewrite("");
        }
    }
}
