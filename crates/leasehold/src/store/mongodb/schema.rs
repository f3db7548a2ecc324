//! Creates the collection and its index, and checks whether leases are safe there.

use mongodb::bson::{Bson, Document, doc};

use super::failure::Ambiguity;
use super::{Mongodb, commands};
use crate::store::Check;
use crate::{Error, Result};

const INDEX: &str = "leasehold_by_state";

/// The wire version of MongoDB 4.4, the first whose projections can return the time.
const MIN_WIRE_VERSION: i32 = 9;

/// Refuses unsafe servers, and creates the index, and with it the collection, if it is missing.
pub(super) async fn init(store: &Mongodb) -> Result<()> {
    let hello = store.run(doc! { "hello": 1 }, Ambiguity::None).await?;
    check_topology(&hello)?;
    let collection = &store.options.collection;
    let create = doc! {
        "createIndexes": collection,
        "indexes": [{
            "name": INDEX,
            "key": { "kind": 1, "state": 1, "state_since": 1, "_id": 1 },
            "partialFilterExpression": { "state": { "$exists": true } },
        }],
        "writeConcern": commands::write_concern(),
    };
    match store.run(create, Ambiguity::None).await {
        Ok(_) => Ok(()),
        Err(Error::Denied(why)) => match indexes(store).await {
            Ok(indexes) if indexes.iter().any(is_own_index) => Ok(()),
            _ => Err(Error::Denied(format!(
                "the index `{INDEX}` on the collection `{collection}` is missing, and this user may not create it \
                 ({why}): either grant the role `readWrite` on this database, or ask an administrator to run \
                 `leasehold init` on it"
            ))),
        },
        Err(other) => Err(other),
    }
}

/// Refuses a standalone server, which has no majority and may lose writes when it restarts.
fn check_topology(hello: &Document) -> Result<()> {
    let is_router = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
    if !is_router && !hello.contains_key("setName") {
        return Err(Error::Denied(
            "this MongoDB server is standalone, so it supports neither majority writes nor linearizable reads: start it with \
             `--replSet rs0` and run `rs.initiate()` once; a replica set of one member suffices"
                .into(),
        ));
    }
    if hello.get_i32("maxWireVersion").unwrap_or_default() < MIN_WIRE_VERSION {
        return Err(Error::Denied(
            "MongoDB 4.4 or newer is required: upgrade the server".into(),
        ));
    }
    Ok(())
}

fn is_own_index(index: &Document) -> bool {
    index.get_str("name").is_ok_and(|name| name == INDEX)
}

async fn indexes(store: &Mongodb) -> Result<Vec<Document>> {
    let list = doc! { "listIndexes": &store.options.collection, "cursor": { "batchSize": 1_000 } };
    let answer = store.run(list, Ambiguity::None).await?;
    let cursor = answer.get_document("cursor").ok();
    let batch = cursor.and_then(|cursor| cursor.get_array("firstBatch").ok());
    let documents = batch.into_iter().flatten().filter_map(Bson::as_document);
    Ok(documents.cloned().collect())
}

/// Checks the server and the collection.
pub(super) async fn check(store: &Mongodb) -> Result<Vec<Check>> {
    let hello = store.run(doc! { "hello": 1 }, Ambiguity::None).await?;
    let indexes = indexes(store).await?;
    Ok(vec![
        Check::green(
            "writes are acknowledged by a majority and journaled there, reads are linearizable",
        ),
        members(&hello),
        index(&indexes),
        ttl(&indexes),
    ])
}

fn members(hello: &Document) -> Check {
    match hello.get_array("hosts").map(Vec::len) {
        Err(_) => Check::green("it is behind mongos"),
        Ok(1) => Check::yellow(
            "the replica set has one member: while it is down, no lease is available",
            "rs.add() two more members",
        ),
        Ok(2) => Check::yellow(
            "the replica set has two members: if either is down, there is no majority",
            "rs.add() a third member",
        ),
        Ok(many) => Check::green(format!("the replica set has {many} members")),
    }
}

fn index(indexes: &[Document]) -> Check {
    match indexes.iter().any(is_own_index) {
        true => Check::green("work items are indexed by state"),
        false => Check::yellow(
            format!(
                "the index `{INDEX}` is missing: finding work items by state reads the whole collection"
            ),
            "leasehold init",
        ),
    }
}

/// Checks for TTL indexes: a document that the server deletes may contain a live lease.
fn ttl(indexes: &[Document]) -> Check {
    let deleting = indexes
        .iter()
        .find(|index| index.contains_key("expireAfterSeconds"));
    match deleting.and_then(|index| index.get_str("name").ok()) {
        None => Check::green("no TTL index deletes records"),
        Some(name) => Check::red(
            format!("the TTL index `{name}` deletes records, including held leases"),
            format!("drop the index `{name}`"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standalone_server_is_refused() {
        let member = doc! { "setName": "rs0", "maxWireVersion": 17 };
        assert_eq!(check_topology(&member), Ok(()));
        let router = doc! { "msg": "isdbgrid", "maxWireVersion": 17 };
        assert_eq!(check_topology(&router), Ok(()));
        for (unsafe_server, hint) in [
            (doc! { "maxWireVersion": 17 }, "rs.initiate()"),
            (doc! { "setName": "rs0", "maxWireVersion": 8 }, "4.4"),
        ] {
            let refused = check_topology(&unsafe_server).unwrap_err();
            assert!(
                matches!(&refused, Error::Denied(why) if why.contains(hint)),
                "{refused:?}"
            );
        }
    }
}
