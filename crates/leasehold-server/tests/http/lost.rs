//! `Remote` when answers about gates, items, claims and several leases are lost.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::core::{Fence, GrantKind, Mode, Name, Nonce};
use leasehold::{
    AcquireAllOutcome, AcquireAllRequest, AcquireOutcome, AcquireRequest, ClaimRequest, Error,
    HolderKey, Leases as _, PutRequest, Remote, RenewRequest, UpdateRequest,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::common::Server;
use crate::faults::{listen, start_dying, start_losing};

const TTL: Duration = Duration::from_secs(60);

fn nonce() -> Nonce {
    Nonce::new("mine").unwrap()
}

fn item() -> Name {
    Name::lock("item").unwrap()
}

fn gate() -> Name {
    Name::gate("gate").unwrap()
}

fn pass() -> AcquireRequest {
    AcquireRequest {
        name: gate(),
        nonce: nonce(),
        owner: "me".into(),
        ttl: TTL,
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    }
}

fn both() -> AcquireAllRequest {
    AcquireAllRequest {
        names: ["b", "a"].map(|name| Name::lock(name).unwrap()).into(),
        nonce: nonce(),
        owner: "me".into(),
        ttl: TTL,
        wait: Duration::ZERO,
    }
}

fn claim() -> ClaimRequest {
    ClaimRequest {
        state: "NEW".into(),
        prefix: String::new(),
        limit: 10,
        ttl: TTL,
        owner: "me".into(),
        nonce: nonce(),
        wait: Duration::ZERO,
    }
}

fn put(nonce: Option<Nonce>) -> PutRequest {
    PutRequest {
        name: item(),
        state: "NEW".into(),
        body: Some("work".into()),
        nonce,
    }
}

/// Checks that a call without an answer is ambiguous, and returns how often it was sent.
async fn attempts<T>(call: impl AsyncFnOnce(Remote) -> Result<T, Error>) -> u32 {
    let (remote, connections) = start_dying().await;
    let error = call(remote).await.err();
    assert!(matches!(error, Some(Error::Indeterminate(_))), "{error:?}");
    connections.load(Ordering::SeqCst)
}

#[tokio::test]
async fn only_requests_that_a_nonce_makes_repeatable_are_retried() {
    assert_eq!(
        attempts(async |remote| remote.acquire(pass()).await).await,
        4
    );
    let all = attempts(async |remote| remote.acquire_all(both()).await);
    assert_eq!(all.await, 4);
    // A copy of a put that arrives late would undo the next one.
    let put_by_nonce = attempts(async |remote| remote.put(put(Some(nonce()))).await);
    assert_eq!(put_by_nonce.await, 1);
    assert_eq!(
        attempts(async |remote| remote.put(put(None)).await).await,
        1
    );
    assert_eq!(
        attempts(async |remote| remote.claim(claim()).await).await,
        1
    );
    assert_eq!(
        attempts(async |remote| remote.remove(&item()).await).await,
        1
    );
}

#[tokio::test]
async fn requests_with_lost_answers_are_retried() {
    let server = Server::start().await;
    let (remote, _) = start_losing(server.address, 1).await;
    let passed = remote.acquire(pass()).await.unwrap();
    let again =
        matches!(&passed, AcquireOutcome::Granted(hold) if hold.grant.granted == GrantKind::Again);
    assert!(again, "{passed:?}");

    let (remote, _) = start_losing(server.address, 1).await;
    let AcquireAllOutcome::Granted(all) = remote.acquire_all(both()).await.unwrap() else {
        panic!("the leases are free");
    };
    let again = all
        .iter()
        .all(|one| one.hold.grant.granted == GrantKind::Again);
    assert!(again && all.len() == 2, "{all:?}");
}

#[tokio::test]
async fn put_whose_answer_was_lost_is_confirmed_by_its_nonce() {
    let server = Server::start().await;
    let (remote, _) = start_losing(server.address, 1).await;
    let lost = remote.put(put(Some(nonce()))).await;
    assert!(matches!(lost, Err(Error::Indeterminate(_))), "{lost:?}");
    server.acquire("/locks/item?nonce=worker").await;
    // Another put would be refused, because the item is leased.
    assert_eq!(remote.put(put(Some(nonce()))).await, Ok(()));
}

#[tokio::test]
async fn lost_end_of_a_shared_lease_is_ambiguous() {
    let server = Server::start().await;
    let name = Name::lock("shared").unwrap();
    for how in ["complete", "release"] {
        let target = format!("/locks/shared?nonce={how}&mode=shared");
        let fence = Fence::new(server.acquire(&target).await).unwrap();
        let (remote, connections) = start_losing(server.address, 1).await;
        let answer = if how == "complete" {
            let update = UpdateRequest {
                name: name.clone(),
                fence,
                body: Some("done".into()),
                state: None,
                then_release: true,
            };
            remote.update(update).await.map(drop)
        } else {
            remote
                .release(&name, HolderKey::Fence(fence))
                .await
                .map(drop)
        };
        // The lease has ended, but the record does not show how.
        assert!(matches!(answer, Err(Error::Indeterminate(_))), "{answer:?}");
        assert_eq!(connections.load(Ordering::SeqCst), 2);
        assert_eq!(server.get("/locks/shared").await.ok().text("body"), "done");
    }
}

#[tokio::test]
async fn unavailability_after_a_lost_answer_is_ambiguous() {
    let remote = lost_then_unavailable().await;
    let passed = remote.acquire(pass()).await;
    assert!(matches!(passed, Err(Error::Indeterminate(_))), "{passed:?}");
    // A read changes nothing, so it is never ambiguous.
    let remote = lost_then_unavailable().await;
    let shown = remote.show(&item()).await;
    assert!(matches!(shown, Err(Error::Unavailable(_))), "{shown:?}");
}

/// Starts a service that closes the first connection without an answer, and then reports that its store is unavailable.
async fn lost_then_unavailable() -> Remote {
    let (remote, _) = listen(|mut near, number| async move {
        let mut request = vec![0; 4096];
        let _ = near.read(&mut request).await.unwrap();
        if number > 0 {
            let body =
                r#"{"type":"store-unavailable","title":"away","status":503,"detail":"away"}"#;
            let head = format!(
                "HTTP/1.1 503 Away\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            near.write_all((head + body).as_bytes()).await.unwrap();
        }
    })
    .await;
    remote
}

#[tokio::test]
async fn items_of_a_lost_claim_can_be_claimed_after_their_ttl() {
    let server = Server::start().await;
    let direct = Remote::connect(&server.url()).unwrap();
    direct.put(put(None)).await.unwrap();
    let (remote, _) = start_losing(server.address, 1).await;
    let ttl = Duration::from_millis(300);
    let lost = remote.claim(ClaimRequest { ttl, ..claim() }).await;
    assert!(matches!(lost, Err(Error::Indeterminate(_))), "{lost:?}");
    let nonce = Nonce::new("next").unwrap();
    let wait = Duration::from_secs(30);
    let next = direct
        .claim(ClaimRequest {
            nonce,
            wait,
            ..claim()
        })
        .await;
    assert_eq!(next.unwrap()[0].name, item());
}

#[tokio::test]
async fn gate_is_not_accepted_as_a_lock_or_an_item() {
    let server = Server::start().await;
    let remote = Remote::connect(&server.url()).unwrap();
    server.acquire("/locks/gate?nonce=n").await;
    let before = server.everything().await;
    let AcquireOutcome::Granted(hold) = remote.acquire(pass()).await.unwrap() else {
        panic!("the gate is open");
    };
    let renewal = RenewRequest {
        name: gate(),
        fence: hold.grant.fence,
        ttl: None,
    };
    let put = PutRequest {
        name: gate(),
        ..put(None)
    };
    let all = AcquireAllRequest {
        names: vec![gate()],
        ..both()
    };
    for refused in [
        remote.renew(vec![renewal], TTL).await.remove(0).map(drop),
        remote.put(put).await,
        remote.remove(&gate()).await,
        remote.acquire_all(all).await.map(drop),
    ] {
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(server.everything().await, before);
}
