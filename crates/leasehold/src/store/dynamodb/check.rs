//! The checks of `leasehold doctor` for the table.

use aws_sdk_dynamodb::types::{BillingMode, TableDescription, TimeToLiveStatus};

use super::DynamoDb;
use super::table::is_eventual;
use crate::store::Check;
use crate::{Error, Result};

impl DynamoDb {
    pub(super) async fn checks(&self) -> Result<Vec<Check>> {
        let Some(table) = self.describe().await? else {
            return Err(Error::Denied(format!(
                "the table `{}` does not exist: run `leasehold init`",
                self.options.table
            )));
        };
        let mut checks = vec![
            // Opening the store has already refused a table with other keys or indexes.
            Check::green("keys and indexes are correct"),
            regions(&table),
            capacity(&table),
        ];
        checks.extend(deletion(&table));
        checks.push(self.expiry().await);
        Ok(checks)
    }

    /// Checks time to live: deleting items automatically would delete fences and held leases.
    async fn expiry(&self) -> Check {
        let request = self.clients.reads.describe_time_to_live();
        let answer = request.table_name(&self.options.table).send().await;
        let Ok(answer) = answer else {
            return Check::yellow(
                "cannot determine whether time to live deletes items",
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
            "provisioned capacity ({reads} reads, {writes} writes a second): when it is exhausted, leases are not renewed"
        ),
        update(table, "--billing-mode PAY_PER_REQUEST"),
    )
}

/// Returns the command that changes the table.
fn update(table: &TableDescription, how: &str) -> String {
    let name = table.table_name().unwrap_or("TABLE");
    format!("aws dynamodb update-table --table-name {name} {how}")
}

fn deletion(table: &TableDescription) -> Option<Check> {
    // An emulator may omit it.
    Some(match table.deletion_protection_enabled()? {
        true => Check::green("the table has deletion protection"),
        false => Check::yellow(
            "the table has no deletion protection: deleting it deletes all leases",
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
    fn provisioned_capacity_is_reported() {
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
