//! What `leasehold doctor` finds out about the table.

use aws_sdk_dynamodb::types::{BillingMode, TableDescription, TimeToLiveStatus};

use super::DynamoDb;
use super::table::is_eventual;
use crate::store::Check;
use crate::{Error, Result};

impl DynamoDb {
    pub(super) async fn checks(&self) -> Result<Vec<Check>> {
        let Some(table) = self.describe().await? else {
            return Err(Error::Denied(format!(
                "there is no table `{}`: run `leasehold init`",
                self.options.table
            )));
        };
        let mut checks = vec![
            // A table with other keys or indexes would not have been opened.
            Check::green("keys and indexes are as they should be"),
            regions(&table),
            capacity(&table),
        ];
        checks.extend(deletion(&table));
        checks.push(self.expiry().await);
        Ok(checks)
    }

    /// Items that DynamoDB deletes by itself would take fences with them, and leases that somebody holds.
    async fn expiry(&self) -> Check {
        let request = self.clients.reads.describe_time_to_live();
        let answer = request.table_name(&self.options.table).send().await;
        let Ok(answer) = answer else {
            return Check::yellow(
                "whether DynamoDB deletes items by itself cannot be told",
                "allow dynamodb:DescribeTimeToLive on the table",
            );
        };
        let described = answer.time_to_live_description;
        let status = described.as_ref().and_then(|it| it.time_to_live_status());
        let attribute = described.as_ref().and_then(|it| it.attribute_name());
        match status {
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => Check::red(
                "items may be deleted while leases are held: time to live is enabled on the table",
                format!(
                    "aws dynamodb update-time-to-live --table-name {} --time-to-live-specification \
                     Enabled=false,AttributeName={}",
                    self.options.table,
                    attribute.unwrap_or("ATTRIBUTE")
                ),
            ),
            _ => Check::green("no item is deleted by time to live"),
        }
    }
}

fn regions(table: &TableDescription) -> Check {
    if is_eventual(table) {
        return Check::red(
            "a global table with eventual consistency: two regions may hold one lease",
            "use a table of one region, or one with multi-Region strong consistency",
        );
    }
    match table.replicas() {
        [] => Check::green("one region"),
        replicas => Check::green(format!(
            "strongly consistent with {} other regions",
            replicas.len()
        )),
    }
}

fn capacity(table: &TableDescription) -> Check {
    let mode = table
        .billing_mode_summary()
        .and_then(|summary| summary.billing_mode());
    let provisioned = table.provisioned_throughput();
    let units = |units: Option<i64>| units.unwrap_or_default();
    let (reads, writes) = (
        units(provisioned.and_then(|it| it.read_capacity_units())),
        units(provisioned.and_then(|it| it.write_capacity_units())),
    );
    if mode == Some(&BillingMode::PayPerRequest) || (reads, writes) == (0, 0) {
        return Check::green("capacity on demand");
    }
    Check::yellow(
        format!(
            "provisioned capacity ({reads} reads, {writes} writes a second): when it is used up, leases are not renewed"
        ),
        update(table, "--billing-mode PAY_PER_REQUEST"),
    )
}

/// What changes the table.
fn update(table: &TableDescription, how: &str) -> String {
    let name = table.table_name().unwrap_or("TABLE");
    format!("aws dynamodb update-table --table-name {name} {how}")
}

fn deletion(table: &TableDescription) -> Option<Check> {
    // An emulator may leave it out.
    Some(match table.deletion_protection_enabled()? {
        true => Check::green("the table is protected from being deleted"),
        false => Check::yellow(
            "the table is not protected from being deleted, with all leases in it",
            update(table, "--deletion-protection-enabled"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::ProvisionedThroughputDescription;

    use super::*;
    use crate::store::Level;

    #[test]
    fn provisioned_capacity_is_worth_a_thought() {
        let provisioned = ProvisionedThroughputDescription::builder()
            .read_capacity_units(5)
            .write_capacity_units(7);
        let table = TableDescription::builder().provisioned_throughput(provisioned.build());
        let check = capacity(&table.build());
        assert_eq!(check.level, Level::Yellow);
        assert!(check.what.contains("5 reads, 7 writes"), "{}", check.what);
        let on_demand = TableDescription::builder().build();
        assert_eq!(capacity(&on_demand).level, Level::Green);
    }
}
