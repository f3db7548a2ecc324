//! The checks of `leasehold doctor` for the account and the container.

use serde_json::Value;

use super::Cosmos;
use super::container::has_several_writers;
use crate::store::{Check, Query};
use crate::{Error, Result};
use leasehold_core::Kind;

impl Cosmos {
    pub(super) async fn checks(&self) -> Result<Vec<Check>> {
        let account = self.account().await?;
        let Some(container) = self.container().await? else {
            return Err(Error::Denied(format!(
                "the container `{}` does not exist: run `leasehold init`",
                self.options.container
            )));
        };
        let mut checks = vec![
            // Opening the store has already refused a container with another key.
            Check::green("the partition key is correct"),
            regions(&account),
            consistency(&account),
            expiry(&container),
        ];
        checks.push(self.index().await);
        Ok(checks)
    }

    /// Checks the index, which listings and claims require.
    async fn index(&self) -> Check {
        for state in [None, Some("REQUESTED".into())] {
            let query = Query {
                state,
                limit: 1,
                ..Query::all(Kind::Lock)
            };
            if let Err(error) = self.search(&query).await {
                return Check::red(
                    format!("records cannot be listed: {error}"),
                    "include in the indexing policy: `/kind/?`, `/listed/?`, `/queue/?` and `/queued/?`",
                );
            }
        }
        Check::green("records can be listed and claimed with the index")
    }
}

fn regions(account: &Value) -> Check {
    if has_several_writers(account) {
        return Check::red(
            "several write regions: two regions may hold one lease",
            "az cosmosdb update -g GROUP -n ACCOUNT --enable-multiple-write-locations false",
        );
    }
    match regions_of(account) {
        0 | 1 => Check::green("one region"),
        regions => Check::green(format!("one of {regions} regions is writable")),
    }
}

fn regions_of(account: &Value) -> usize {
    account["readableLocations"].as_array().map_or(0, Vec::len)
}

/// Checks the consistency level. Reads request the latest version at any level, but a write acknowledged before other
/// regions have it may be lost.
fn consistency(account: &Value) -> Check {
    let level = account["userConsistencyPolicy"]["defaultConsistencyLevel"]
        .as_str()
        .unwrap_or("unknown");
    let what = format!("consistency is {level}; reads request the last write");
    match level == "Strong" || regions_of(account) < 2 {
        true => Check::green(what),
        false => Check::yellow(
            format!("{what}, but the loss of a region may lose the newest leases"),
            "az cosmosdb update -g GROUP -n ACCOUNT --default-consistency-level Strong",
        ),
    }
}

fn expiry(container: &Value) -> Check {
    match container["defaultTtl"].as_i64() {
        None => Check::green("no item is deleted by time to live"),
        Some(_) => Check::yellow(
            "time to live is on in the container: records are exempt (`ttl` is -1) unless they are edited manually",
            "az cosmosdb sql container update -g GROUP -a ACCOUNT -d DATABASE -n CONTAINER --ttl 0, or use a separate container",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Level;

    #[test]
    fn possible_loss_and_expiry_are_reported() {
        let account = |level: &str, regions: usize| {
            json!({
                "userConsistencyPolicy": { "defaultConsistencyLevel": level },
                "readableLocations": vec![json!({}); regions],
            })
        };
        for (level, regions, expected) in [
            ("Strong", 1, Level::Green),
            ("Strong", 3, Level::Green),
            ("Session", 1, Level::Green),
            ("Session", 2, Level::Yellow),
            ("BoundedStaleness", 2, Level::Yellow),
        ] {
            let check = consistency(&account(level, regions));
            assert_eq!(check.level, expected, "{level} {regions}");
        }
        assert_eq!(expiry(&json!({})).level, Level::Green);
        for ttl in [-1, 60] {
            let container = json!({ "defaultTtl": ttl });
            assert_eq!(expiry(&container).level, Level::Yellow);
        }
        let several = json!({ "enableMultipleWriteLocations": true });
        assert_eq!(super::regions(&several).level, Level::Red);
    }
}
