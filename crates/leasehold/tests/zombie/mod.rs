//! A lease passes to the next holder while the first one is paused. When the first one resumes, its write must be
//! refused, in every database.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::time::Duration;

use leasehold::core::{Fence, Mode, Name, Nonce};
use leasehold::fence::Bearer;
use leasehold::host::{Host as _, Machine};
use leasehold::{AcquireOutcome, AcquireRequest, BreakRequest, Client, Lease};

/// The protection against zombies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protection {
    /// None: the control.
    None,
    Check,
    Guard,
}

/// An account in the database that also has the leases.
pub(crate) trait Account: Sized {
    /// Creates an account with a balance of 100.
    async fn open() -> Self;

    /// Returns the store URL of the leases.
    fn leases(&self) -> &str;

    async fn balance(&self) -> i64;

    /// Sets the balance in a transaction. Returns whether it was committed.
    async fn set(&self, balance: i64, bearer: Bearer<'_>, protection: Protection) -> bool;
}

/// The holder reads the balance and is paused. The lease passes on, and the new holder deposits 50. Then the old one
/// resumes and withdraws 10 from the balance that it had read. Returns the balance.
async fn balance_after_zombie_write<A: Account>(protection: Protection) -> i64 {
    let account = A::open().await;
    let name = unique_name();
    let zombie = acquire(account.leases(), &name).await;
    let seen = account.balance().await;
    assert!(
        account.set(seen, (&zombie).into(), protection).await,
        "{protection:?}"
    );

    let successor = take_over(account.leases(), &name).await;
    let current = account.balance().await;
    for balance in [current, current + 50] {
        assert!(
            account.set(balance, (&successor).into(), protection).await,
            "{protection:?}"
        );
    }

    let written = account.set(seen - 10, (&zombie).into(), protection).await;
    assert_eq!(written, protection == Protection::None, "{protection:?}");
    // The holder is not affected by the zombie's attempt.
    let current = account.balance().await;
    assert!(
        account.set(current, (&successor).into(), protection).await,
        "{protection:?}"
    );
    account.balance().await
}

/// Checks that the zombie is refused, with the check and with the guard, and that the balance is right.
pub(crate) async fn zombie_is_refused<A: Account>() {
    zombie_is_refused_with::<A>(Protection::Check).await;
    zombie_is_refused_with::<A>(Protection::Guard).await;
}

/// Checks the same with only one of the two, for databases that support only one.
pub(crate) async fn zombie_is_refused_with<A: Account>(protection: Protection) {
    assert_eq!(
        balance_after_zombie_write::<A>(protection).await,
        150,
        "{protection:?}"
    );
}

/// The control: without protection, the zombie overwrites its successor's data.
pub(crate) async fn zombie_overwrites_without_a_check<A: Account>() {
    assert_eq!(balance_after_zombie_write::<A>(Protection::None).await, 90);
}

/// Checks that only current holders pass a check, and not those that released or were broken.
pub(crate) async fn only_current_holders_pass<A: Account>() {
    let account = A::open().await;
    let (client, text) = (
        leasehold::connect(account.leases()).await.unwrap(),
        unique_name(),
    );
    let name = Name::lock(&text).unwrap();
    let share = async |client: &Client| client.lease(&text).shared(3).acquire().await.unwrap();
    let passes = async |fence: Fence| {
        account
            .set(1, (&name, fence).into(), Protection::Check)
            .await
    };

    assert!(
        !passes(Fence::new(1).unwrap()).await,
        "there was no holder yet"
    );
    let (one, two, three) = (
        share(&client).await,
        share(&client).await,
        share(&client).await,
    );
    for lease in [&one, &two, &three] {
        assert!(passes(lease.fence()).await, "it holds the lease");
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
    assert!(passes(two.fence()).await, "it still holds the lease");
    assert!(!passes(released).await, "it has released the lease");
    assert!(!passes(three.fence()).await, "it was broken");
    let shorter = Fence::new(two.fence().get() / 10).unwrap();
    assert!(!passes(shorter).await, "a part of a fence does not match");
    let gate = Name::gate(&text).unwrap();
    let as_gate = account.set(1, (&gate, two.fence()).into(), Protection::Check);
    assert!(!as_gate.await, "a gate of this name is another record");
}

/// Checks that an expired holder passes until another one acquires the lease.
pub(crate) async fn expired_holder_is_refused_once_replaced<A: Account>(ttl: Duration) {
    let account = A::open().await;
    let (client, text) = (
        leasehold::connect(account.leases()).await.unwrap(),
        unique_name(),
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
    let AcquireOutcome::Granted(hold) = client.leases().acquire(request).await.unwrap() else {
        panic!("there is no contender");
    };
    let bearer = Bearer::from((&name, hold.grant.fence));
    tokio::time::sleep(ttl * 2).await;
    assert!(account.set(1, bearer, Protection::Check).await);
    let wait = Duration::from_secs(20);
    let successor = client.lease(&text).wait(wait).acquire().await.unwrap();
    assert!(!account.set(1, bearer, Protection::Check).await);
    assert!(account.set(1, (&successor).into(), Protection::Check).await);
}

/// Returns a unique name whose characters all need quoting.
pub(crate) fn unique_name() -> String {
    format!("réport '{:x}' %_\\\"`{{\"fence\":1,", Machine.random())
}

/// Acquires the lease from a separate client.
pub(crate) async fn acquire(url: &str, name: &str) -> Lease {
    let client = leasehold::connect(url).await.unwrap();
    client.lease(name).acquire().await.unwrap()
}

/// Breaks the lease at once and acquires it from another client, as if its ttl had passed.
pub(crate) async fn take_over(url: &str, name: &str) -> Lease {
    let client = leasehold::connect(url).await.unwrap();
    let breaking = BreakRequest::Force {
        fence: None,
        reason: "it is paused".into(),
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
