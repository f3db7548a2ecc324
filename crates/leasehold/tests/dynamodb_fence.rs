//! Fence checks in DynamoDB transactions.
#![cfg(feature = "dynamodb")]

mod zombie;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TransactWriteItem, Update,
};
use leasehold::fence::{self, Bearer};
use leasehold::host::{Host as _, Machine};
use zombie::{Account, Protection};

/// A table of a single test, with an account and with fences. The leases are in another table.
struct Table {
    client: Client,
    name: String,
    leases: String,
}

impl Table {
    fn balance_is(&self, balance: i64) -> Update {
        Update::builder()
            .table_name(&self.name)
            .key("id", AttributeValue::S("account".into()))
            .update_expression("SET balance = :balance")
            .expression_attribute_values(":balance", AttributeValue::N(balance.to_string()))
            .build()
            .unwrap()
    }

    async fn create(&self) {
        let id = AttributeDefinition::builder()
            .attribute_name("id")
            .attribute_type(ScalarAttributeType::S);
        let key = KeySchemaElement::builder()
            .attribute_name("id")
            .key_type(KeyType::Hash);
        let create = self.client.create_table().table_name(&self.name);
        create
            .attribute_definitions(id.build().unwrap())
            .key_schema(key.build().unwrap())
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await
            .unwrap();
    }
}

impl Account for Table {
    async fn open() -> Self {
        let server = leasehold_testbed::shared("dynamodb").await.unwrap();
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .region(Region::new("us-east-1"))
            .endpoint_url(format!("http://127.0.0.1:{}", server.port()))
            .credentials_provider(Credentials::new("local", "local", None, None, "test"));
        let table = Self {
            client: Client::from_conf(config.build()),
            name: format!("t{:016x}", Machine.random() as u64),
            leases: server.url(),
        };
        table.create().await;
        let write = TransactWriteItem::builder().update(table.balance_is(100));
        let request = table.client.transact_write_items();
        request.transact_items(write.build()).send().await.unwrap();
        table
    }

    fn leases(&self) -> &str {
        &self.leases
    }

    async fn balance(&self) -> i64 {
        let request = self.client.get_item().table_name(&self.name);
        let answer = request
            .key("id", AttributeValue::S("account".into()))
            .consistent_read(true)
            .send();
        let item = answer.await.unwrap().item.unwrap();
        item["balance"].as_n().unwrap().parse().unwrap()
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool {
        let write = TransactWriteItem::builder().update(self.balance_is(balance));
        let mut request = self
            .client
            .transact_write_items()
            .transact_items(write.build());
        let item = TransactWriteItem::builder();
        let item = match protection {
            Protection::None => None,
            Protection::Check => {
                Some(item.condition_check(fence::dynamodb::check(bearer).on("leasehold")))
            }
            Protection::Guard => Some(item.update(fence::dynamodb::guard(bearer).on(&self.name))),
        };
        if let Some(item) = item {
            request = request.transact_items(item.build());
        }
        match request
            .send()
            .await
            .map_err(|error| error.into_service_error())
        {
            Ok(_) => true,
            Err(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                let reasons = cancelled.cancellation_reasons();
                let codes: Vec<_> = reasons.iter().filter_map(|reason| reason.code()).collect();
                assert_eq!(codes, ["None", "ConditionalCheckFailed"]);
                false
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test]
async fn zombie_is_refused() {
    zombie::zombie_is_refused::<Table>().await;
}

#[tokio::test]
async fn zombie_overwrites_without_a_check() {
    zombie::zombie_overwrites_without_a_check::<Table>().await;
}

#[tokio::test]
async fn only_current_holders_pass() {
    zombie::only_current_holders_pass::<Table>().await;
}
