//! `Remote` against a real service.

use std::time::Duration;

use crate::common::Server;
use leasehold::core::{EndReason, Fence, GrantKind, Hash, Mode, Name, Nonce, View};
use leasehold::host::{Host as _, Machine};
use leasehold::{
    AcquireOutcome, AcquireRequest, BreakOutcome, BreakRequest, Error, Hold, HolderKey, Leases,
    ListRequest, Remote, RenewRequest, UpdateOutcome, UpdateRequest,
};

fn name(text: &str) -> Name {
    Name::lock(text).unwrap()
}

fn nonce(text: &str) -> Nonce {
    Nonce::new(text).unwrap()
}

fn acquire(text: &str, by: &str) -> AcquireRequest {
    AcquireRequest {
        name: name(text),
        nonce: nonce(by),
        owner: "me".into(),
        ttl: Duration::from_secs(30),
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    }
}

fn update(text: &str, fence: Fence, body: &str) -> UpdateRequest {
    UpdateRequest {
        name: name(text),
        fence,
        body: Some(body.into()),
        state: None,
        then_release: false,
    }
}

async fn granted(leases: &impl Leases, request: AcquireRequest) -> Hold {
    match leases.acquire(request).await.unwrap() {
        AcquireOutcome::Granted(hold) => hold,
        AcquireOutcome::Held(held) => panic!("{held:?}"),
    }
}

/// Returns the parts of a view that are sent over HTTP: no hashes, and no exact remaining times.
fn visible(mut view: View) -> View {
    for holder in &mut view.record.holders {
        holder.nonce = Hash::of(&[]);
    }
    if let Some(last) = &mut view.record.last
        && let EndReason::Completed(hash) = &mut last.how
    {
        *hash = Hash::of(&[]);
    }
    view.remaining.clear();
    view
}

#[tokio::test]
async fn lease_is_acquired_updated_and_released_through_the_service() {
    let server = Server::start_on_sqlite().await;
    let remote = Remote::connect(&server.url()).unwrap();
    assert_eq!(remote.show(&name("job")).await.unwrap(), None);

    let before = Machine.boot_time();
    let hold = granted(&remote, acquire("job", "mine")).await;
    assert_eq!(hold.grant.granted, GrantKind::Fresh);
    assert_eq!(hold.grant.ttl, Duration::from_secs(30));
    assert!(hold.deadline > before + Duration::from_secs(29));
    assert!(hold.deadline <= Machine.boot_time() + Duration::from_secs(30));
    let fence = hold.grant.fence;

    let AcquireOutcome::Held(held) = remote.acquire(acquire("job", "yours")).await.unwrap() else {
        panic!("one lease, two holders");
    };
    assert_eq!((&*held.owner, held.since), ("me", hold.grant.acquired_at));

    let UpdateOutcome::Renewed(renewed) =
        remote.update(update("job", fence, "half")).await.unwrap()
    else {
        panic!("the update does not release");
    };
    assert_eq!(
        (&*renewed.renewal.body, renewed.renewal.fence),
        ("half", fence)
    );

    let again = granted(&remote, acquire("job", "mine")).await;
    assert_eq!(
        (again.grant.granted, &*again.grant.body),
        (GrantKind::Again, "half")
    );
    let stale = remote.update(update("job", fence, "zombie")).await;
    assert_eq!(stale, Err(Error::Fenced));
    let kept = AcquireRequest {
        fence: Some(again.grant.fence),
        ..acquire("job", "mine")
    };
    assert_eq!(granted(&remote, kept).await.grant.granted, GrantKind::Kept);

    let fence = again.grant.fence;
    let done = UpdateRequest {
        state: Some(Some("DONE".into())),
        then_release: true,
        ..update("job", fence, "all")
    };
    assert_eq!(
        remote.update(done.clone()).await,
        Ok(UpdateOutcome::Completed)
    );
    assert_eq!(remote.update(done).await, Ok(UpdateOutcome::Completed));
    assert_eq!(
        remote.release(&name("job"), HolderKey::Fence(fence)).await,
        Ok(true)
    );
    let next = granted(&remote, acquire("job", "next")).await;
    let last = next.grant.last.unwrap();
    assert_eq!(
        (last.fence, last.how),
        (fence, EndReason::Completed(Hash::of(&[])))
    );
    assert_eq!(&*next.grant.state.unwrap().label, "DONE");
    let cleared = UpdateRequest {
        body: None,
        state: Some(None),
        ..update("job", next.grant.fence, "")
    };
    remote.update(cleared).await.unwrap();
    let view = remote.show(&name("job")).await.unwrap().unwrap();
    assert_eq!((&*view.record.body, view.record.state), ("all", None));
    assert_eq!(
        remote
            .release(&name("job"), HolderKey::Nonce(nonce("next")))
            .await,
        Ok(true)
    );
    assert_eq!(
        remote
            .release(&name("job"), HolderKey::Nonce(nonce("next")))
            .await,
        Ok(false)
    );
}

#[tokio::test]
async fn the_service_shows_what_its_engine_shows() {
    let server = Server::start_on_sqlite().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let names = [
        "a/b/c",
        "#?%",
        "..",
        ".",
        "émoji 🔒",
        "a b+c",
        "break",
        "\\x",
        "a&b=c",
    ];
    for (number, text) in names.iter().enumerate() {
        let mode = if number % 2 == 0 {
            Mode::Exclusive
        } else {
            Mode::Shared { limit: Some(3) }
        };
        let request = AcquireRequest {
            mode,
            ..acquire(text, "ünïcode\n nonce")
        };
        let hold = granted(&remote, request.clone()).await;
        let again = granted(&remote, request).await;
        assert_eq!(again.grant.granted, GrantKind::Again);
        assert_eq!(again.grant.fence.get(), hold.grant.fence.get() + 1);
        remote
            .update(update(text, again.grant.fence, text))
            .await
            .unwrap();
        let seen = remote.show(&name(text)).await.unwrap().unwrap();
        assert_eq!(&*seen.record.body, *text);
        let direct = server.engine.show(&name(text)).await.unwrap().unwrap();
        assert_eq!(visible(seen), visible(direct));
    }
    let mut listed = Vec::new();
    let mut request = ListRequest {
        limit: 2,
        held: Some(true),
        ..ListRequest::default()
    };
    loop {
        let page = remote.list(request.clone()).await.unwrap();
        listed.extend(
            page.leases
                .into_iter()
                .map(|(name, _)| name.as_str().to_owned()),
        );
        match page.cursor {
            Some(cursor) => request.cursor = Some(cursor),
            None => break,
        }
    }
    let mut names: Vec<_> = names.iter().map(|text| (*text).to_owned()).collect();
    names.sort();
    assert_eq!(listed, names);
}

#[tokio::test]
async fn each_of_many_renewals_has_its_own_result() {
    let server = Server::start().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let mut requests = Vec::new();
    for number in 0..1_100 {
        let text = format!("job/{number}");
        let hold = granted(&server.engine, acquire(&text, "n")).await;
        requests.push(RenewRequest {
            name: name(&text),
            fence: hold.grant.fence,
            ttl: (number == 7).then(|| Duration::from_secs(300)),
        });
    }
    requests[3].fence = Fence::new(1).unwrap();
    let before = Machine.boot_time();
    let renewed = remote.renew(requests.clone(), crate::common::TIMEOUT).await;
    assert_eq!(renewed.len(), requests.len());
    for (number, (renewed, request)) in renewed.into_iter().zip(requests).enumerate() {
        match renewed {
            Err(error) => assert_eq!((number, error), (3, Error::Fenced)),
            Ok(renewed) => {
                assert_eq!(renewed.renewal.fence, request.fence);
                let ttl = renewed.renewal.ttl;
                assert_eq!(ttl, Duration::from_secs(if number == 7 { 300 } else { 30 }));
                assert!(renewed.deadline > before + ttl * 9 / 10);
            }
        }
    }
    assert_eq!(remote.renew(Vec::new(), crate::common::TIMEOUT).await, []);
}

#[tokio::test]
async fn leases_are_broken_through_the_service() {
    let server = Server::start().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let hold = granted(&remote, acquire("job", "mine")).await;
    let own = BreakRequest::Own;
    let force = |now| BreakRequest::Force {
        fence: None,
        reason: "stuck".into(),
        now,
    };
    let job = name("job");
    let other = remote
        .break_lease(&job, own(HolderKey::Nonce(nonce("other"))))
        .await;
    assert_eq!(other, Err(Error::Fenced));
    let broken = remote.break_lease(&job, force(false)).await;
    assert_eq!(broken, Ok(BreakOutcome::Until(hold.grant.expires_at)));
    assert_eq!(
        remote.break_lease(&job, force(true)).await,
        Ok(BreakOutcome::Free)
    );
    assert_eq!(
        remote.break_lease(&job, force(true)).await,
        Ok(BreakOutcome::NotHeld)
    );
    let hold = granted(&remote, acquire("job", "mine")).await;
    let mine = remote
        .break_lease(&job, own(HolderKey::Fence(hold.grant.fence)))
        .await;
    assert_eq!(mine, Ok(BreakOutcome::Free));
}

#[tokio::test]
async fn cancelled_waiter_leaves_the_queue_and_the_next_one_is_granted() {
    let server = Server::start().await;
    let remote = Remote::connect(&server.url()).unwrap();
    let hold = granted(&remote, acquire("job", "mine")).await;
    let waiting = AcquireRequest {
        wait: Duration::from_secs(300),
        ..acquire("job", "yours")
    };
    let task = tokio::spawn({
        let (remote, waiting) = (remote.clone(), waiting.clone());
        async move { remote.acquire(waiting).await }
    });
    server.wait_for_waiters("job", 1).await;
    task.abort();
    server.wait_for_waiters("job", 0).await;

    let task = tokio::spawn({
        let remote = remote.clone();
        async move { remote.acquire(waiting).await }
    });
    server.wait_for_waiters("job", 1).await;
    remote
        .release(&name("job"), HolderKey::Fence(hold.grant.fence))
        .await
        .unwrap();
    let AcquireOutcome::Granted(next) = task.await.unwrap().unwrap() else {
        panic!("it was released");
    };
    assert_eq!(next.grant.fence.get(), hold.grant.fence.get() + 1);
    assert!(next.deadline <= Machine.boot_time() + Duration::from_secs(30));
}

#[tokio::test]
async fn remote_and_engine_refuse_invalid_requests_equally() {
    let server = Server::start().await;
    let remote = Remote::connect(&server.url()).unwrap();
    for request in [
        AcquireRequest {
            ttl: Duration::ZERO,
            ..acquire("job", "n")
        },
        AcquireRequest {
            ttl: Duration::from_secs(100_000),
            ..acquire("job", "n")
        },
        AcquireRequest {
            owner: "o".repeat(129).into(),
            ..acquire("job", "n")
        },
    ] {
        let through = remote.acquire(request.clone()).await.unwrap_err();
        assert_eq!(through, server.engine.acquire(request).await.unwrap_err());
        assert!(matches!(through, Error::Invalid(_)), "{through:?}");
    }
    let hold = granted(&remote, acquire("job", "n")).await;
    let large = remote
        .update(update("job", hold.grant.fence, &"x".repeat(70 * 1024)))
        .await;
    assert!(matches!(large, Err(Error::Invalid(_))), "{large:?}");
}

#[tokio::test]
async fn lease_guard_works_over_http() {
    let server = Server::start_on_sqlite().await;
    let client = leasehold::connect(&server.url()).await.unwrap();
    let lease = client.lease("job").acquire().await.unwrap();
    lease.update("step 3").await.unwrap();
    let other = leasehold::connect(&server.url()).await.unwrap();
    let refused = other.lease("job").acquire().await.map(drop);
    assert!(matches!(refused, Err(Error::Held(_))), "{refused:?}");
    lease.release().await.unwrap();
    assert_eq!(
        &*other.lease("job").acquire().await.unwrap().body(),
        "step 3"
    );
    other.close().await;
    client.close().await;
}
