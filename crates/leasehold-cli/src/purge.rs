//! `leasehold purge`.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use leasehold::engine::{Engine, PurgeProgress};
use serde_json::json;

use crate::arguments::{self, Common};
use crate::exit::{Failure, USAGE};
use crate::{output, store};

/// Delete unused records: those that have been free and empty for some time.
#[derive(Args, Debug)]
#[command(after_help = "\
Held leases, shut gates, items with a state and records with a body are kept. The fences of a deleted name keep \
growing. A purge can be interrupted and repeated at any time. A service (`leasehold serve`) purges automatically.

Examples:
  leasehold purge
  leasehold purge --older-than 7d --prefix devices/
  leasehold purge --store postgres://localhost/app --json")]
pub(crate) struct Purge {
    /// Delete only records that have been free for longer than this; at least an hour.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true)]
    older_than: Duration,

    /// Only names with this prefix.
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
}

impl Purge {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let target = store::target(common)?;
        let url = target.url();
        if matches!(store::scheme(url), "http" | "https") {
            return Err(Failure::new(
                USAGE,
                "cannot purge through a service: it purges automatically (see `leasehold serve`); to purge now, name \
                 the database behind it, the `--store` of `leasehold serve`",
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
        let PurgeProgress { seen, deleted } = purged?;
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
    format!("deleted {deleted} of {seen} free {records}")
}

/// A progress line on the terminal.
struct Progress {
    is_terminal: bool,
}

impl Progress {
    fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { is_terminal }
    }

    fn show(&self, so_far: PurgeProgress) {
        if self.is_terminal {
            let PurgeProgress { seen, deleted } = so_far;
            output::rewrite(&format!("leasehold: {}…", summary(seen, deleted)));
        }
    }

    fn clear(&self) {
        if self.is_terminal {
            output::rewrite("");
        }
    }
}
