//! Fence checks by conditional writes to blobs.
#![cfg(feature = "azblob")]

mod azblob_support;
mod zombie;

use std::collections::HashMap;

use azblob_support::{container_url, http, sas};
use leasehold::Error;
use leasehold::fence::{self, Bearer};
use leasehold::host::{Host as _, Machine};
use zombie::{Account, Protection, acquire, take_over, unique_name};

/// A container of a single test, with the leases and with a blob that has the balance.
struct Container {
    url: String,
    port: u16,
    blob: String,
}

/// A blob that was read.
struct StoredBlob {
    balance: i64,
    etag: String,
    metadata: HashMap<String, String>,
}

impl Container {
    fn read(&self) -> StoredBlob {
        let answer = http(self.port, "GET", &self.blob, "", "");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        let headers: HashMap<String, String> = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let metadata = headers
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("x-ms-meta-")?, value)));
        StoredBlob {
            balance: body.parse().unwrap(),
            etag: headers["etag"].clone(),
            metadata: metadata
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect(),
        }
    }

    /// Replaces the blob. Returns whether the condition, if any, was met.
    fn write(&self, balance: i64, metadata: &HashMap<String, String>, etag: Option<&str>) -> bool {
        let mut headers = "x-ms-blob-type: BlockBlob\r\n".to_owned();
        for (name, value) in metadata {
            headers += &format!("x-ms-meta-{name}: {value}\r\n");
        }
        if let Some(etag) = etag {
            headers += &format!("if-match: {etag}\r\n");
        }
        let answer = http(self.port, "PUT", &self.blob, &headers, &balance.to_string());
        let was_refused = answer.starts_with("HTTP/1.1 412") && answer.contains("ConditionNotMet");
        assert!(
            was_refused || answer.starts_with("HTTP/1.1 201"),
            "{answer}"
        );
        !was_refused
    }
}

impl Account for Container {
    async fn open() -> Self {
        let name = format!("t{:016x}", Machine.random() as u64);
        let (url, port) = container_url(&name).await;
        leasehold::store::open(&url).await.unwrap();
        let rights = sas(&url, &name, "racwdl");
        let container = Self {
            blob: format!("{name}/account?{rights}"),
            url,
            port,
        };
        container.write(100, &HashMap::from([("author".into(), "ada".into())]), None);
        container
    }

    fn leases(&self) -> &str {
        &self.url
    }

    async fn balance(&self) -> i64 {
        self.read().balance
    }

    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool {
        let found = self.read();
        match protection {
            Protection::None => self.write(balance, &found.metadata, None),
            Protection::Check => unreachable!("blobs do not support checks"),
            Protection::Guard => match fence::azblob::guard(bearer).metadata(found.metadata) {
                Ok(metadata) => self.write(balance, &metadata, Some(&found.etag)),
                Err(refusal) => {
                    assert_eq!(refusal, Error::Fenced);
                    false
                }
            },
        }
    }
}

#[tokio::test]
async fn zombie_is_refused() {
    zombie::zombie_is_refused_with::<Container>(Protection::Guard).await;
}

#[tokio::test]
async fn zombie_overwrites_without_a_check() {
    zombie::zombie_overwrites_without_a_check::<Container>().await;
}

/// Lets a zombie prepare a write while it holds the lease, and send it after its successor has written. Returns whether
/// the late write succeeded.
async fn write_after_takeover(with_condition: bool) -> bool {
    let container = Container::open().await;
    let name = unique_name();
    let zombie = acquire(container.leases(), &name).await;
    let found = container.read();
    let metadata = fence::azblob::guard(&zombie).metadata(found.metadata);
    let metadata = metadata.expect("it holds the lease");

    let successor = take_over(container.leases(), &name).await;
    let changed = container.set(found.balance + 50, (&successor).into(), Protection::Guard);
    assert!(changed.await);
    let condition = with_condition.then_some(&*found.etag);
    container.write(found.balance - 10, &metadata, condition)
}

#[tokio::test]
async fn write_prepared_before_the_takeover_is_refused() {
    assert!(!write_after_takeover(true).await);
}

/// The control: without the condition on the ETag, the late write succeeds.
#[tokio::test]
async fn late_write_without_its_condition_succeeds() {
    assert!(write_after_takeover(false).await);
}

#[tokio::test]
async fn other_metadata_is_kept() {
    let container = Container::open().await;
    let lease = acquire(container.leases(), &unique_name()).await;
    assert!(container.set(1, (&lease).into(), Protection::Guard).await);
    let metadata = container.read().metadata;
    let fence = lease.fence().to_string();
    assert_eq!(metadata["author"], "ada");
    assert_eq!(metadata[fence::azblob::METADATA], fence);
}
