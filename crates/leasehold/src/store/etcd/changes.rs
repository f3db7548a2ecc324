//! Follows what others write, by a watch.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use leasehold_core::{Mode, Name};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::gateway::Gateway;
use super::keys::Keys;
use crate::store::Changes;
use crate::store::watched::Watched;

/// Names that wait to be looked at; more are dropped, since the engine polls anyway.
const BACKLOG: usize = 1_024;
/// How long to leave a server alone that gives no watch.
const PAUSE: Duration = Duration::from_millis(500);

/// Watches the records for as long as somebody listens.
pub(super) fn follow(gateway: Arc<Gateway>, keys: Keys, watched: Watched) -> Changes {
    let (told, changes) = mpsc::channel(BACKLOG);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = told.closed() => return,
                () = watch(&gateway, &keys, &watched, &told) => {}
            }
            tokio::select! {
                () = told.closed() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    });
    changes
}

/// Passes on what changes, until the watch breaks.
async fn watch(gateway: &Gateway, keys: &Keys, watched: &Watched, told: &mpsc::Sender<Name>) {
    // Gates and locks are neighbours: nothing else lies between them.
    let create = json!({ "create_request": {
        "key": keys.encoded("gate/"),
        "range_end": keys.encoded_end("lock/"),
    } });
    let mut stream = match gateway.stream("/v3/watch", &create).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "changes in etcd are not heard of"),
    };
    let mut unread = Vec::new();
    while let Some(Ok(frame)) = stream.frame().await {
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        unread.extend_from_slice(&bytes);
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            let answer: Value = serde_json::from_slice(&line).unwrap_or_default();
            let events = answer["result"]["events"].as_array();
            for name in events
                .into_iter()
                .flatten()
                .filter_map(|event| changed(keys, event, watched.is_true()))
            {
                let _ = told.try_send(name);
            }
        }
    }
}

/// The name that somebody may wait for, or watches. One that has an exclusive holder was not freed.
fn changed(keys: &Keys, event: &Value, watched: bool) -> Option<Name> {
    let pair = &event["kv"];
    if event["type"] == "DELETE" {
        return keys.name(pair);
    }
    let (name, stored) = keys.stored(pair).ok()?;
    let mut holders = stored.record.holders.iter();
    (watched || holders.all(|holder| holder.mode != Mode::Exclusive)).then_some(name)
}
