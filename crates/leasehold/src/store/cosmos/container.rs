//! The account and the container: what they must be like, and making what is missing.

use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Cosmos;
use super::client::{Ask, PATIENCE, Reply, Resource};
use super::failure::{self, Doubt};
use crate::{Error, Result};

/// By what the items of a container are spread: each may be anywhere, so that no limit of one partition is theirs.
const PARTITION_KEY: &str = "/id";
/// The key of containers in which the user's items share the lease's partition, and so a batch with it.
const SHARED_PARTITION_KEY: &str = "/lease";

impl Cosmos {
    /// Makes the container if there is none, and refuses what leases would not be safe on.
    pub(super) async fn prepare(&self) -> Result<()> {
        check_account(&self.account().await?)?;
        let container = match self.container().await? {
            Some(container) => container,
            None => {
                self.create().await?;
                self.container().await?.ok_or_else(failure::odd)?
            }
        };
        check_container(&self.options.container, &container)
    }

    /// The account as it is.
    pub(super) async fn account(&self) -> Result<Value> {
        let account = Resource {
            of_type: "",
            link: String::new(),
            is_feed: false,
        };
        let reply = self.get(account).await?;
        match reply.status {
            200 => reply.json(),
            _ => Err(failure::refused(&reply, Doubt::None)),
        }
    }

    /// The container as it is; `None` if there is none.
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
            _ => Err(failure::refused(&reply, Doubt::None)),
        }
    }

    async fn create(&self) -> Result<()> {
        let database = &self.options.database;
        let container = json!({
            "id": self.options.container,
            "partitionKey": { "paths": [PARTITION_KEY], "kind": "Hash", "version": 2 },
            // Only what is searched by: a renewal changes none of it.
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
            let made = self.post(databases, &json!({ "id": database })).await?;
            self.is_made(&made)?;
            reply = self.post(containers(), &container).await?;
        }
        self.is_made(&reply)
    }

    /// Whether it was made, by us or by somebody else.
    fn is_made(&self, reply: &Reply) -> Result<()> {
        if matches!(reply.status, 201 | 409) {
            return Ok(());
        }
        Err(match failure::refused(reply, Doubt::None) {
            Error::Denied(why) => {
                let (database, container) = (&self.options.database, &self.options.container);
                Error::Denied(format!(
                    "there is no container `{container}` in the database `{database}`, and it cannot be made: {why}: `az \
                     cosmosdb sql database create -g GROUP -a ACCOUNT -n {database}` and `az cosmosdb sql container create -g \
                     GROUP -a ACCOUNT -d {database} -n {container} -p {PARTITION_KEY}`"
                ))
            }
            other => other,
        })
    }

    async fn get(&self, resource: Resource) -> Result<Reply> {
        let ask = Ask {
            method: Method::GET,
            resource,
            headers: Vec::new(),
            body: Bytes::new(),
            doubt: Doubt::None,
        };
        self.client.ask(&ask, Instant::now() + PATIENCE).await
    }

    /// Making what is already there does no harm, so that there is never a doubt.
    async fn post(&self, resource: Resource, body: &Value) -> Result<Reply> {
        let ask = Ask {
            method: Method::POST,
            resource,
            headers: vec![("content-type", "application/json".into())],
            body: body.to_string().into(),
            doubt: Doubt::None,
        };
        self.client.ask(&ask, Instant::now() + PATIENCE).await
    }
}

/// Refuses an account in which two regions could hold one lease.
fn check_account(account: &Value) -> Result<()> {
    match has_several_writers(account) {
        false => Ok(()),
        true => Err(Error::Denied(
            "this Cosmos DB account has several write regions, of which two could hold one lease: `az cosmosdb update -g \
             GROUP -n ACCOUNT --enable-multiple-write-locations false`, or use another account"
                .into(),
        )),
    }
}

/// Whether regions write without asking each other.
pub(super) fn has_several_writers(account: &Value) -> bool {
    account["enableMultipleWriteLocations"].as_bool() == Some(true)
}

/// Refuses a container whose partition key is another, or that cannot be searched.
fn check_container(name: &str, container: &Value) -> Result<()> {
    let key = &container["partitionKey"]["paths"];
    if ![PARTITION_KEY, SHARED_PARTITION_KEY]
        .map(|path| json!([path]))
        .contains(key)
    {
        return Err(Error::Denied(format!(
            "the container `{name}` is another program's: its partition key is neither `{PARTITION_KEY}` nor \
             `{SHARED_PARTITION_KEY}`; name another one, and `leasehold init` makes it"
        )));
    }
    let mode = container["indexingPolicy"]["indexingMode"].as_str();
    if mode.is_some_and(|mode| !mode.eq_ignore_ascii_case("consistent")) {
        return Err(Error::Denied(format!(
            "the container `{name}` has no index (`indexingMode` is not `consistent`), so that nothing is found in it: change \
             its indexing policy, or name another one, and `leasehold init` makes it"
        )));
    }
    Ok(())
}
