//! `leasehold init`.

use clap::Args;
use leasehold::store as stores;
use serde_json::json;

use crate::arguments::Common;
use crate::exit::{self, Failure};
use crate::{default_store, output, store};

/// Create the tables and indexes that leases need in a database.
///
/// Safe to repeat at any time. Other commands do the same automatically if their database user has the right to; if not,
/// an administrator runs this once.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold init --store postgres://admin@db1/app
  sudo leasehold init --system                  one default store for the users of the group `leasehold`
  leasehold init --store 'dynamodb://leases?region=eu-central-1'")]
pub(crate) struct Init {
    /// Create the store of the system, a SQLite file that is then the default store of all users of a group.
    #[arg(long)]
    system: bool,

    /// Group whose users share the store of the system.
    #[arg(long, requires = "system", default_value = default_store::SYSTEM_GROUP)]
    group: String,
}

impl Init {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let url = if self.system {
            if common.store.is_some() {
                return Err(Failure::new(
                    exit::USAGE,
                    "cannot use `--system` with `--store` or LEASEHOLD_STORE: the store of the system has a fixed path",
                ));
            }
            let file = default_store::create_system_file(&self.group)?;
            format!("sqlite:{}", file.display())
        } else {
            store::database(common)?
        };
        stores::open(&url).await?.init().await?;
        let scheme = store::scheme(&url);
        if common.json {
            output::json(&json!({ "store": scheme, "ready": true }))?;
        } else {
            let shown = if self.system {
                store::shown(&url)
            } else {
                format!("the {scheme} store")
            };
            output::confirmation(&format!("{shown} is ready"))?;
        }
        Ok(0)
    }
}
