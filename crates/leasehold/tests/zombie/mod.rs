//! A lease passes from one holder to the next while the first one sleeps. What it writes when it wakes up is the
//! question, and the same one for every database.

#![allow(dead_code, reason = "each test uses its own part of it")]

use std::time::Duration;

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::fence::Bearer;
use leasehold::host::{Host as _, Machine};
use leasehold::{AcquireRequest, Acquired, BreakRequest, Client, Lease};

/// What keeps a zombie from writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum With {
    /// The control.
    Nothing,
    Check,
    Guard,
}

/// An account in the database that also has the leases.
pub(crate) trait Account: Sized {
    /// A new one, with a balance of 100.
    async fn open() -> Self;

    /// The store URL of the leases.
    fn leases(&self) -> &str;

    async fn balance(&self) -> i64;

    /// Sets the balance in a transaction of its own. Whether that was committed.
    async fn set(&self, balance: i64, bearer: Bearer<'_>, with: With) -> bool;
}

/// The holder reads the balance, and falls asleep. The lease passes on, and the new holder pays in 50. Then the old one
/// wakes up, and pays out 10 of what it had read. Returns the balance.
async fn after_a_zombie<A: Account>(with: With) -> i64 {
    let account = A::open().await;
    let name = any_name();
    let zombie = hold(account.leases(), &name).await;
    let seen = account.balance().await;
    assert!(account.set(seen, (&zombie).into(), with).await, "{with:?}");

    let heir = take_over(account.leases(), &name).await;
    let current = account.balance().await;
    for balance in [current, current + 50] {
        assert!(account.set(balance, (&heir).into(), with).await, "{with:?}");
    }

    let written = account.set(seen - 10, (&zombie).into(), with).await;
    assert_eq!(written, with == With::Nothing, "{with:?}");
    // Whoever holds it is not disturbed by whoever does not.
    let current = account.balance().await;
    assert!(account.set(current, (&heir).into(), with).await, "{with:?}");
    account.balance().await
}

/// With the check, and with the guard, the zombie is refused, and the balance is right.
pub(crate) async fn a_zombie_is_refused<A: Account>() {
    a_zombie_is_refused_with::<A>(With::Check).await;
    a_zombie_is_refused_with::<A>(With::Guard).await;
}

/// The same with one of the two, for a database that has no other.
pub(crate) async fn a_zombie_is_refused_with<A: Account>(with: With) {
    assert_eq!(after_a_zombie::<A>(with).await, 150, "{with:?}");
}

/// The control: without either, the zombie undoes what its successor did.
pub(crate) async fn unchecked_a_zombie_corrupts<A: Account>() {
    assert_eq!(after_a_zombie::<A>(With::Nothing).await, 90);
}

/// The check passes for whoever holds the lease, and for nobody else, however the others ended.
pub(crate) async fn only_holders_pass<A: Account>() {
    let account = A::open().await;
    let (client, text) = (
        leasehold::connect(account.leases()).await.unwrap(),
        any_name(),
    );
    let name = Name::lock(&text).unwrap();
    let share = async |client: &Client| client.lease(&text).shared(3).acquire().await.unwrap();
    let passes = async |fence: Fence| account.set(1, (&name, fence).into(), With::Check).await;

    assert!(!passes(Fence::new(1).unwrap()).await, "nobody was here yet");
    let (one, two, three) = (
        share(&client).await,
        share(&client).await,
        share(&client).await,
    );
    for lease in [&one, &two, &three] {
        assert!(passes(lease.fence()).await, "it holds");
    }
    two.renew().await.unwrap();
    let released = one.fence();
    one.release().await.unwrap();
    let breaking = BreakRequest::Force {
        fence: Some(three.fence()),
        reason: "\"fence\":1,".into(),
        now: false,
    };
    client.leases().break_lease(&name, breaking).await.unwrap();
    assert!(passes(two.fence()).await, "it still holds");
    assert!(!passes(released).await, "it has let go");
    assert!(!passes(three.fence()).await, "it was broken");
    let shorter = Fence::new(two.fence().get() / 10).unwrap();
    assert!(!passes(shorter).await, "a part of a fence is none");
    let gate = Name::gate(&text).unwrap();
    let as_gate = account.set(1, (&gate, two.fence()).into(), With::Check);
    assert!(!as_gate.await, "a gate of this name is something else");
}

/// A holder whose time is over passes until somebody else is granted the lease: until then it overlaps with nobody.
pub(crate) async fn an_expired_holder_is_refused_once_replaced<A: Account>(ttl: Duration) {
    let account = A::open().await;
    let (client, text) = (
        leasehold::connect(account.leases()).await.unwrap(),
        any_name(),
    );
    let request = AcquireRequest {
        name: Name::lock(&text).unwrap(),
        nonce: Nonce::new("asleep").unwrap(),
        owner: "asleep".into(),
        ttl,
        mode: Mode::Exclusive,
        fence: None,
        wait: Duration::ZERO,
    };
    let name = request.name.clone();
    let Acquired::Granted(hold) = client.leases().acquire(request).await.unwrap() else {
        panic!("nobody else is here");
    };
    let bearer = Bearer::from((&name, hold.grant.fence));
    tokio::time::sleep(ttl * 2).await;
    assert!(account.set(1, bearer, With::Check).await);
    let wait = Duration::from_secs(20);
    let heir = client.lease(&text).wait(wait).acquire().await.unwrap();
    assert!(!account.set(1, bearer, With::Check).await);
    assert!(account.set(1, (&heir).into(), With::Check).await);
}

/// A name of a test's own, of which every character matters.
pub(crate) fn any_name() -> String {
    format!("réport '{:x}' %_\\\"`{{\"fence\":1,", Machine.random())
}

/// Holds it, from a client of its own.
pub(crate) async fn hold(url: &str, name: &str) -> Lease {
    let client = leasehold::connect(url).await.unwrap();
    client.lease(name).acquire().await.unwrap()
}

/// Breaks it at once, and holds it, from another client: as if its ttl were over.
pub(crate) async fn take_over(url: &str, name: &str) -> Lease {
    let client = leasehold::connect(url).await.unwrap();
    let breaking = BreakRequest::Force {
        fence: None,
        reason: "it sleeps".into(),
        now: true,
    };
    let broken = Name::lock(name).unwrap();
    client
        .leases()
        .break_lease(&broken, breaking)
        .await
        .unwrap();
    client.lease(name).acquire().await.unwrap()
}
