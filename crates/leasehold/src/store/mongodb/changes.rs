//! Follows what others write, by a change stream.

use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold_core::{Kind, Name};
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use tokio::sync::mpsc;

use crate::store::Changes;

/// Names that wait to be looked at; more are dropped, since the engine polls anyway.
const BACKLOG: usize = 1_024;
/// How long to leave a server alone that gives no stream.
const PAUSE: Duration = Duration::from_millis(500);

/// Watches the collection for as long as somebody listens.
pub(super) fn follow(collection: Collection<Document>) -> Changes {
    let (told, changes) = mpsc::channel(BACKLOG);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = told.closed() => return,
                ended = watch(&collection, &told) => if let Err(error) = ended {
                    tracing::debug!(error = %error.kind, "changes in MongoDB are not heard of");
                }
            }
            tokio::select! {
                () = told.closed() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    });
    changes
}

/// Passes on what changes, until the stream breaks for good.
///
/// A renewal changes neither owners nor fences, and nobody waits for one; a record that was only marked as asked for
/// did not change at all.
async fn watch(
    collection: &Collection<Document>,
    told: &mpsc::Sender<Name>,
) -> mongodb::error::Result<()> {
    let is_worth_telling = doc! { "$match": { "$or": [
        { "operationType": { "$in": ["insert", "replace", "delete"] } },
        { "updateDescription.updatedFields.owner": { "$exists": true } },
        { "updateDescription.updatedFields.state": { "$exists": true } },
    ] } };
    let only_the_name = doc! { "$project": { "documentKey": 1 } };
    let stream = collection
        .watch()
        .pipeline([is_worth_telling, only_the_name]);
    let mut events = stream.await?.with_type::<Document>();
    while let Some(event) = events.next().await {
        if let Some(name) = name(&event?) {
            let _ = told.try_send(name);
        }
    }
    Ok(())
}

fn name(event: &Document) -> Option<Name> {
    let id = event
        .get_document("documentKey")
        .ok()?
        .get_str("_id")
        .ok()?;
    let (kind, name) = id.split_once(':')?;
    Name::new(Kind::parse(kind)?, name).ok()
}
