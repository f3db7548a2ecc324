//! `leasehold init`.

use clap::Args;
use leasehold::store as stores;
use serde_json::json;

use crate::arguments::Common;
use crate::exit::Failure;
use crate::{output, store};

/// Create the tables and indexes that leases need in a database.
///
/// Safe to repeat at any time. Other commands do the same automatically if their database user has the right to; if not,
/// an administrator runs this once.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold init --store postgres://admin@db1/app
  leasehold init --store 'dynamodb://leases?region=eu-central-1'")]
pub(crate) struct Init {}

impl Init {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let url = store::database(common)?;
        stores::open(&url).await?.init().await?;
        let scheme = store::scheme(&url);
        if common.json {
            output::json(&json!({ "store": scheme, "ready": true }))?;
        } else {
            output::confirmation(&format!("the {scheme} store is ready"))?;
        }
        Ok(0)
    }
}
