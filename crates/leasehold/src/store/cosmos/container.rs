//! Checks the account and the container, and creates what is missing.

use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Cosmos;
use super::client::{ApiRequest, CALL_TIMEOUT, Reply, Resource};
use super::failure::{self, Ambiguity};
use crate::{Error, Result};

/// The partition key: each item has its own partition, so that no limit of a partition applies.
const PARTITION_KEY: &str = "/id";
/// The partition key of containers in which user items share the lease's partition, and so can be written in one
/// batch with it.
const SHARED_PARTITION_KEY: &str = "/lease";

impl Cosmos {
    /// Creates the container if it is missing, and refuses an unsafe account or container.
    pub(super) async fn prepare(&self) -> Result<()> {
        check_account(&self.account().await?)?;
        let container = match self.container().await? {
            Some(container) => container,
            None => {
                self.create().await?;
                self.container()
                    .await?
                    .ok_or_else(failure::unexpected_answer)?
            }
        };
        check_container(&self.options.container, &container)
    }

    /// Returns the account's properties.
    pub(super) async fn account(&self) -> Result<Value> {
        let account = Resource {
            of_type: "",
            link: String::new(),
            is_feed: false,
        };
        let reply = self.get(account).await?;
        match reply.status {
            200 => reply.json(),
            _ => Err(failure::refused(&reply, Ambiguity::None)),
        }
    }

    /// Returns the container's properties; `None` if it does not exist.
    pub(super) async fn container(&self) -> Result<Option<Value>> {
        let container = Resource {
            of_type: "colls",
            link: self.link.clone(),
            is_feed: false,
        };
        let reply = self.get(container).await?;
        match reply.status {
            200 => reply.json().map(Some),
            404 => Ok(None),
            _ => Err(failure::refused(&reply, Ambiguity::None)),
        }
    }

    async fn create(&self) -> Result<()> {
        let database = &self.options.database;
        let container = json!({
            "id": self.options.container,
            "partitionKey": { "paths": [PARTITION_KEY], "kind": "Hash", "version": 2 },
            // Only the properties that queries use: a renewal changes none of them.
            "indexingPolicy": {
                "indexingMode": "consistent",
                "includedPaths": [
                    { "path": "/kind/?" },
                    { "path": "/listed/?" },
                    { "path": "/queue/?" },
                    { "path": "/queued/?" },
                ],
                "excludedPaths": [{ "path": "/*" }],
            },
        });
        let containers = || Resource {
            of_type: "colls",
            link: format!("dbs/{database}"),
            is_feed: true,
        };
        let mut reply = self.post(containers(), &container).await?;
        if reply.status == 404 {
            let databases = Resource {
                of_type: "dbs",
                link: String::new(),
                is_feed: true,
            };
            let created = self.post(databases, &json!({ "id": database })).await?;
            self.check_created(&created)?;
            reply = self.post(containers(), &container).await?;
        }
        self.check_created(&reply)
    }

    /// Checks that a resource was created, by this process or another one.
    fn check_created(&self, reply: &Reply) -> Result<()> {
        if matches!(reply.status, 201 | 409) {
            return Ok(());
        }
        Err(match failure::refused(reply, Ambiguity::None) {
            Error::Denied(why) => {
                let (database, container) = (&self.options.database, &self.options.container);
                Error::Denied(format!(
                    "the container `{container}` in the database `{database}` does not exist, and cannot be created: {why}; run `az \
                     cosmosdb sql database create -g GROUP -a ACCOUNT -n {database}` and `az cosmosdb sql container create -g \
                     GROUP -a ACCOUNT -d {database} -n {container} -p {PARTITION_KEY}`"
                ))
            }
            other => other,
        })
    }

    async fn get(&self, resource: Resource) -> Result<Reply> {
        let request = ApiRequest {
            method: Method::GET,
            resource,
            headers: Vec::new(),
            body: Bytes::new(),
            ambiguity: Ambiguity::None,
        };
        self.client
            .send(&request, Instant::now() + CALL_TIMEOUT)
            .await
    }

    /// Sends a request that creates a resource, which is never ambiguous, because it is idempotent.
    async fn post(&self, resource: Resource, body: &Value) -> Result<Reply> {
        let request = ApiRequest {
            method: Method::POST,
            resource,
            headers: vec![("content-type", "application/json".into())],
            body: body.to_string().into(),
            ambiguity: Ambiguity::None,
        };
        self.client
            .send(&request, Instant::now() + CALL_TIMEOUT)
            .await
    }
}

/// Refuses an account in which two regions could hold one lease.
fn check_account(account: &Value) -> Result<()> {
    match has_several_writers(account) {
        false => Ok(()),
        true => Err(Error::Denied(
            "this Cosmos DB account has several write regions, so two regions could hold one lease: run `az cosmosdb update -g \
             GROUP -n ACCOUNT --enable-multiple-write-locations false`, or use another account"
                .into(),
        )),
    }
}

/// Returns whether regions write without coordination.
pub(super) fn has_several_writers(account: &Value) -> bool {
    account["enableMultipleWriteLocations"].as_bool() == Some(true)
}

/// Refuses a container with another partition key, or without an index.
fn check_container(name: &str, container: &Value) -> Result<()> {
    let key = &container["partitionKey"]["paths"];
    if ![PARTITION_KEY, SHARED_PARTITION_KEY]
        .map(|path| json!([path]))
        .contains(key)
    {
        return Err(Error::Denied(format!(
            "the container `{name}` belongs to another program: its partition key is neither `{PARTITION_KEY}` nor \
             `{SHARED_PARTITION_KEY}`; use another name, and `leasehold init` creates it"
        )));
    }
    let mode = container["indexingPolicy"]["indexingMode"].as_str();
    if mode.is_some_and(|mode| !mode.eq_ignore_ascii_case("consistent")) {
        return Err(Error::Denied(format!(
            "the container `{name}` has no index (`indexingMode` is not `consistent`), which searches require: change \
             its indexing policy, or use another name, and `leasehold init` creates it"
        )));
    }
    Ok(())
}
