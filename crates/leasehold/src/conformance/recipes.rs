//! What a client makes of leases: gates, semaphores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::bench::{Bench, PATIENT, boot, side_by_side};
use crate::{Client, Error, Gated};

super::promises!(Leases:
    passes_of_a_gate_are_a_period_apart,
    a_failed_action_opens_its_gate,
    a_semaphore_is_never_overfull,
);

async fn client(bench: &Bench) -> Client {
    Client::new(bench.leases().await)
}

async fn passes_of_a_gate_are_a_period_apart(bench: Bench) {
    const PERIOD: Duration = Duration::from_millis(50);
    let id = bench.prefix().to_owned();
    let mut callers = Vec::new();
    for _ in 0..2 {
        let client = client(&bench).await;
        for _ in 0..2 {
            let gate = client.gate(&id).every(PERIOD);
            callers.push(async move {
                loop {
                    let asked = boot();
                    match gate.clone().pass().await.expect("the store answers") {
                        Gated::Passed(pass) => return (pass.fence(), asked, boot()),
                        Gated::Throttled { retry_after } => tokio::time::sleep(retry_after).await,
                    }
                }
            });
        }
    }
    let mut passes = side_by_side(callers).await;
    passes.sort();
    for pair in passes.windows(2) {
        let ((first, asked, _), (second, _, told)) = (pair[0], pair[1]);
        assert_ne!(first, second);
        // Each was granted between its question and its answer. What the grants say themselves is no measure: two
        // engines do not know the store's time equally well. And clocks need not run equally fast.
        let apart = told.since(asked);
        assert!(apart >= PERIOD * 99 / 100, "{apart:?}: {passes:?}");
    }
}

async fn a_failed_action_opens_its_gate(bench: Bench) {
    let (here, there) = (client(&bench).await, client(&bench).await);
    let years = Duration::from_secs(3_000 * 24 * 60 * 60);
    let gate = |client: &Client| client.gate(bench.prefix()).every(years);
    let failed = gate(&here).run(async || Err::<(), _>(Error::Unavailable("no paper".into())));
    assert_eq!(
        failed.await,
        Err(Error::Unavailable("no paper".into())),
        "handed on"
    );
    let printed = gate(&there).run(async || Ok::<_, Error>("printed")).await;
    assert_eq!(printed, Ok(Gated::Passed("printed")));
    let again = gate(&here).run(async || Ok::<_, Error>("printed twice"));
    let again = again.await.expect("the store answers");
    let left = again.retry_after().expect("it is shut");
    assert!(left > years / 2 && left < years * 2, "{left:?}");
}

async fn a_semaphore_is_never_overfull(bench: Bench) {
    const PLACES: usize = 4;
    let clients = [client(&bench).await, client(&bench).await];
    let (inside, name) = (Arc::new(AtomicUsize::new(0)), bench.prefix().to_owned());
    let contenders = (0..32).map(|number| {
        let place = clients[number % 2].semaphore(&name, PLACES as u16);
        let (place, inside) = (place.wait(PATIENT), inside.clone());
        async move {
            let lease = place.acquire().await.expect("everybody gets a turn");
            let others = inside.fetch_add(1, Ordering::SeqCst);
            assert!(others < PLACES, "{} at once", others + 1);
            tokio::time::sleep(Duration::from_millis(2)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            lease.release().await.expect("the store answers");
        }
    });
    side_by_side(contenders.collect::<Vec<_>>()).await;
}
