//! The collection, its index, and whether leases are safe there.

use mongodb::bson::{Bson, Document, doc};

use super::failure::Doubt;
use super::{Mongodb, commands};
use crate::store::Check;
use crate::{Error, Result};

const INDEX: &str = "leasehold_by_state";

/// The wire version of MongoDB 4.4, whose projections can tell the time.
const OLDEST: i32 = 9;

/// Refuses what is unsafe, and makes the index, and with it the collection, if it is not there.
pub(super) async fn init(store: &Mongodb) -> Result<()> {
    let hello = store.run(doc! { "hello": 1 }, Doubt::None).await?;
    refuse_what_is_unsafe(&hello)?;
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
    match store.run(create, Doubt::None).await {
        Ok(_) => Ok(()),
        Err(Error::Denied(why)) => match indexes(store).await {
            Ok(indexes) if indexes.iter().any(is_ours) => Ok(()),
            _ => Err(Error::Denied(format!(
                "the index `{INDEX}` on the collection `{collection}` is not there, and this user may not create it \
                 ({why}). Either grant it the role `readWrite` on this database, or have an administrator run \
                 `leasehold init` on it"
            ))),
        },
        Err(other) => Err(other),
    }
}

/// A server that stands alone has no majority, and a restart of it may forget.
fn refuse_what_is_unsafe(hello: &Document) -> Result<()> {
    let is_router = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
    if !is_router && !hello.contains_key("setName") {
        return Err(Error::Denied(
            "this MongoDB stands alone, and can neither write by majority nor read linearizably: start it with \
             `--replSet rs0` and run `rs.initiate()` once; a replica set of one member will do"
                .into(),
        ));
    }
    if hello.get_i32("maxWireVersion").unwrap_or_default() < OLDEST {
        return Err(Error::Denied(
            "MongoDB 4.4 or newer is needed: upgrade the server".into(),
        ));
    }
    Ok(())
}

fn is_ours(index: &Document) -> bool {
    index.get_str("name").is_ok_and(|name| name == INDEX)
}

async fn indexes(store: &Mongodb) -> Result<Vec<Document>> {
    let list = doc! { "listIndexes": &store.options.collection, "cursor": { "batchSize": 1_000 } };
    let answer = store.run(list, Doubt::None).await?;
    let cursor = answer.get_document("cursor").ok();
    let batch = cursor.and_then(|cursor| cursor.get_array("firstBatch").ok());
    let documents = batch.into_iter().flatten().filter_map(Bson::as_document);
    Ok(documents.cloned().collect())
}

/// What the server and the collection say of themselves.
pub(super) async fn check(store: &Mongodb) -> Result<Vec<Check>> {
    let hello = store.run(doc! { "hello": 1 }, Doubt::None).await?;
    let indexes = indexes(store).await?;
    Ok(vec![
        Check::green(
            "writes are acknowledged by a majority and in its journals, reads are linearizable",
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
            "the replica set has one member: while it is away, so are all leases",
            "rs.add() two more members",
        ),
        Ok(2) => Check::yellow(
            "the replica set has two members: without either one there is no majority",
            "rs.add() a third member",
        ),
        Ok(many) => Check::green(format!("the replica set has {many} members")),
    }
}

fn index(indexes: &[Document]) -> Check {
    match indexes.iter().any(is_ours) {
        true => Check::green("work items are indexed by state"),
        false => Check::yellow(
            format!("the index `{INDEX}` is missing: finding work by state reads everything"),
            "leasehold init",
        ),
    }
}

/// A document that the server deletes takes a live lease with it.
fn ttl(indexes: &[Document]) -> Check {
    let deleting = indexes
        .iter()
        .find(|index| index.contains_key("expireAfterSeconds"));
    match deleting.and_then(|index| index.get_str("name").ok()) {
        None => Check::green("no index deletes records after a time"),
        Some(name) => Check::red(
            format!("the index `{name}` deletes records after a time, whoever holds them"),
            format!("drop the index `{name}`"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_stands_alone_is_refused() {
        let member = doc! { "setName": "rs0", "maxWireVersion": 17 };
        assert_eq!(refuse_what_is_unsafe(&member), Ok(()));
        let router = doc! { "msg": "isdbgrid", "maxWireVersion": 17 };
        assert_eq!(refuse_what_is_unsafe(&router), Ok(()));
        for (unsafe_one, hint) in [
            (doc! { "maxWireVersion": 17 }, "rs.initiate()"),
            (doc! { "setName": "rs0", "maxWireVersion": 8 }, "4.4"),
        ] {
            let refused = refuse_what_is_unsafe(&unsafe_one).unwrap_err();
            assert!(
                matches!(&refused, Error::Denied(why) if why.contains(hint)),
                "{refused:?}"
            );
        }
    }
}
