//! Follows other processes' writes with a change stream.

use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold_core::{Kind, Name};
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use tokio::sync::mpsc;

use crate::store::Changes;

/// The maximum number of queued names. More are dropped, because the engine polls as well.
const BACKLOG: usize = 1_024;
/// The pause before opening another stream after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// Watches the collection until the receiver is dropped.
pub(super) fn follow(collection: Collection<Document>) -> Changes {
    let (sender, changes) = mpsc::channel(BACKLOG);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                ended = watch(&collection, &sender) => if let Err(error) = ended {
                    tracing::debug!(error = %error.kind, "cannot watch for changes in MongoDB");
                }
            }
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    });
    changes
}

/// Forwards changes until the stream fails.
///
/// Renewals are left out, because they change neither owners nor fences, and so are records that were only marked by
/// a conflict.
async fn watch(
    collection: &Collection<Document>,
    sender: &mpsc::Sender<Name>,
) -> mongodb::error::Result<()> {
    let is_relevant = doc! { "$match": { "$or": [
        { "operationType": { "$in": ["insert", "replace", "delete"] } },
        { "updateDescription.updatedFields.owner": { "$exists": true } },
        { "updateDescription.updatedFields.state": { "$exists": true } },
    ] } };
    let name_only = doc! { "$project": { "documentKey": 1 } };
    let stream = collection.watch().pipeline([is_relevant, name_only]);
    let mut events = stream.await?.with_type::<Document>();
    while let Some(event) = events.next().await {
        if let Some(name) = name(&event?) {
            let _ = sender.try_send(name);
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
