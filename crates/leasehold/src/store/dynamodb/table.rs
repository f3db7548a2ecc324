//! Creates the table and checks its schema and replication.

use std::time::Duration;

use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, IndexStatus, KeySchemaElement, KeyType,
    MultiRegionConsistency, Projection, ProjectionType, ScalarAttributeType, TableDescription,
    TableStatus,
};
use tokio::time::Instant;

use super::failure::{self, Ambiguity};
use super::request_trace::RequestTrace;
use super::{DynamoDb, item, require_stamp};
use crate::{Error, Result};

/// The index of all names of a kind, in order.
pub(super) const BY_NAME: &str = "by_name";
/// The index of items by state, oldest first.
pub(super) const BY_STATE: &str = "by_state";

/// How long creating a table may take. It usually takes about ten seconds.
const CREATE_TIMEOUT: Duration = Duration::from_secs(60);

const INDEXES: [(&str, &str, &str); 2] = [
    (BY_NAME, item::KIND, item::NAME),
    (BY_STATE, item::QUEUE, item::QUEUED),
];

impl DynamoDb {
    /// Creates the table if it is missing, and refuses an unsafe one.
    pub(super) async fn prepare(&self) -> Result<()> {
        let table = match self.describe().await? {
            Some(table) if is_ready(&table) => table,
            Some(_) => self.wait_until_active().await?,
            None => {
                self.create().await?;
                self.wait_until_active().await?
            }
        };
        check_shape(&self.options.table, &table)
    }

    /// Returns the table's description; `None` if it does not exist.
    pub(super) async fn describe(&self) -> Result<Option<TableDescription>> {
        let trace = RequestTrace::default();
        let request = self.clients.reads.describe_table();
        let answer = request
            .table_name(&self.options.table)
            .customize()
            .interceptor(trace.clone())
            .send()
            .await;
        match answer {
            Ok(answer) => {
                // Leases require the time, so report a missing one immediately.
                require_stamp(trace.stamp())?;
                Ok(answer.table)
            }
            Err(error) => match error.as_service_error() {
                Some(DescribeTableError::ResourceNotFoundException(_)) => Ok(None),
                _ => Err(failure::of(&error, &trace, Ambiguity::None)),
            },
        }
    }

    async fn create(&self) -> Result<()> {
        let trace = RequestTrace::default();
        let mut request = self
            .clients
            .writes
            .create_table()
            .table_name(&self.options.table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute(item::ID)?)
            .key_schema(key(item::ID, KeyType::Hash)?);
        for (name, partition, position) in INDEXES {
            let projection = Projection::builder().projection_type(ProjectionType::KeysOnly);
            let index = GlobalSecondaryIndex::builder()
                .index_name(name)
                .key_schema(key(partition, KeyType::Hash)?)
                .key_schema(key(position, KeyType::Range)?)
                .projection(projection.build());
            request = request
                .attribute_definitions(attribute(partition)?)
                .attribute_definitions(attribute(position)?)
                .global_secondary_indexes(index.build().map_err(build_error)?);
        }
        let answer = request.customize().interceptor(trace.clone()).send().await;
        let Err(error) = answer else { return Ok(()) };
        match (
            error.as_service_error(),
            failure::of(&error, &trace, Ambiguity::None),
        ) {
            // Another process is creating it.
            (Some(CreateTableError::ResourceInUseException(_)), _) => Ok(()),
            (_, Error::Denied(why)) => Err(Error::Denied(format!(
                "the table `{}` does not exist, and cannot be created: {why}; creating it requires dynamodb:CreateTable",
                self.options.table
            ))),
            (_, other) => Err(other),
        }
    }

    /// Waits until the table and its indexes are active.
    async fn wait_until_active(&self) -> Result<TableDescription> {
        let deadline = Instant::now() + CREATE_TIMEOUT;
        let mut pause = Duration::from_millis(20);
        loop {
            if let Some(table) = self.describe().await?.filter(is_ready) {
                return Ok(table);
            }
            if Instant::now() + pause > deadline {
                return Err(Error::Unavailable(format!(
                    "the table `{}` is still being created after {CREATE_TIMEOUT:?}",
                    self.options.table
                )));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

fn is_ready(table: &TableDescription) -> bool {
    let usable = matches!(
        table.table_status,
        Some(TableStatus::Active | TableStatus::Updating)
    );
    let indexes = table.global_secondary_indexes();
    usable
        && indexes.iter().all(|index| {
            // An emulator may omit it.
            !matches!(index.index_status, Some(IndexStatus::Creating))
        })
}

/// Refuses a table with other keys, or with replicas that may disagree.
fn check_shape(name: &str, table: &TableDescription) -> Result<()> {
    if keys_of(table.key_schema()) != [(item::ID, KeyType::Hash)] {
        return Err(Error::Denied(format!(
            "the table `{name}` belongs to another program: its key is not just `{}`; use another name, and `leasehold init` \
             creates it",
            item::ID
        )));
    }
    for (index, partition, position) in INDEXES {
        let keys = [(partition, KeyType::Hash), (position, KeyType::Range)];
        let mut there = table.global_secondary_indexes().iter();
        if !there.any(|it| it.index_name() == Some(index) && keys_of(it.key_schema()) == keys) {
            return Err(Error::Denied(format!(
                "the table `{name}` has no index `{index}` with the keys `{partition}` and `{position}`: add it, or use \
                 another name, and `leasehold init` creates the table"
            )));
        }
    }
    if is_eventual(table) {
        return Err(Error::Denied(format!(
            "the table `{name}` is a global table with eventual consistency, on which two regions could hold one lease: \
             use a table of one region, or one with multi-Region strong consistency"
        )));
    }
    Ok(())
}

/// Returns whether other regions write without coordination with this one.
pub(super) fn is_eventual(table: &TableDescription) -> bool {
    let is_global = !table.replicas().is_empty() || table.global_table_version().is_some();
    is_global && table.multi_region_consistency() != Some(&MultiRegionConsistency::Strong)
}

fn keys_of(schema: &[KeySchemaElement]) -> Vec<(&str, KeyType)> {
    let keys = schema
        .iter()
        .map(|key| (key.attribute_name(), key.key_type().clone()));
    keys.collect()
}

fn attribute(name: &str) -> Result<AttributeDefinition> {
    AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .map_err(build_error)
}

fn key(name: &str, of_type: KeyType) -> Result<KeySchemaElement> {
    KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(of_type)
        .build()
        .map_err(build_error)
}

fn build_error(error: aws_sdk_dynamodb::error::BuildError) -> Error {
    Error::Corrupt(format!("cannot build a request to DynamoDB: {error}"))
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::ReplicaDescription;
    use aws_sdk_dynamodb::types::builders::TableDescriptionBuilder;

    use super::*;

    fn replicated() -> TableDescriptionBuilder {
        let replica = ReplicaDescription::builder().region_name("eu-west-1");
        TableDescription::builder().replicas(replica.build())
    }

    #[test]
    fn replicas_must_be_strongly_consistent() {
        let strong = MultiRegionConsistency::Strong;
        let eventual = MultiRegionConsistency::Eventual;
        for (table, refused) in [
            (TableDescription::builder(), false),
            (replicated(), true),
            (replicated().multi_region_consistency(eventual), true),
            (replicated().multi_region_consistency(strong), false),
        ] {
            assert_eq!(is_eventual(&table.build()), refused);
        }
    }
}
