//! Gates and semaphores through [`Client`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::context::{TIMEOUT, TestContext, boot_time, run_concurrently};
use crate::{Client, Error, GateOutcome};

super::define_cases!(Leases:
    passes_of_a_gate_are_one_period_apart,
    failed_action_opens_its_gate,
    semaphore_never_exceeds_its_limit,
);

async fn client(context: &TestContext) -> Client {
    Client::new(context.leases().await)
}

async fn passes_of_a_gate_are_one_period_apart(context: TestContext) {
    const PERIOD: Duration = Duration::from_millis(50);
    let id = context.prefix().to_owned();
    let mut callers = Vec::new();
    for _ in 0..2 {
        let client = client(&context).await;
        for _ in 0..2 {
            let gate = client.gate(&id).every(PERIOD);
            callers.push(async move {
                loop {
                    let sent = boot_time();
                    match gate.clone().pass().await.expect("the store answers") {
                        GateOutcome::Passed(pass) => return (pass.fence(), sent, boot_time()),
                        GateOutcome::Throttled { retry_after } => {
                            tokio::time::sleep(retry_after).await
                        }
                    }
                }
            });
        }
    }
    let mut passes = run_concurrently(callers).await;
    passes.sort();
    for pair in passes.windows(2) {
        let ((first, sent, _), (second, _, received)) = (pair[0], pair[1]);
        assert_ne!(first, second);
        // Each pass was granted between its request and its answer. The times in the grants are no measure: the error
        // bounds of the two engines differ. The tolerance covers clock drift.
        let apart = received.since(sent);
        assert!(apart >= PERIOD * 99 / 100, "{apart:?}: {passes:?}");
    }
}

async fn failed_action_opens_its_gate(context: TestContext) {
    let (here, there) = (client(&context).await, client(&context).await);
    let years = Duration::from_secs(3_000 * 24 * 60 * 60);
    let gate = |client: &Client| client.gate(context.prefix()).every(years);
    let failed = gate(&here).run(async || Err::<(), _>(Error::Unavailable("no paper".into())));
    assert_eq!(
        failed.await,
        Err(Error::Unavailable("no paper".into())),
        "the error is passed on"
    );
    let printed = gate(&there).run(async || Ok::<_, Error>("printed")).await;
    assert_eq!(printed, Ok(GateOutcome::Passed("printed")));
    let again = gate(&here).run(async || Ok::<_, Error>("printed twice"));
    let again = again.await.expect("the store answers");
    let retry_after = again.retry_after().expect("the gate is shut");
    assert!(
        retry_after > years / 2 && retry_after < years * 2,
        "{retry_after:?}"
    );
}

async fn semaphore_never_exceeds_its_limit(context: TestContext) {
    const LIMIT: usize = 4;
    let clients = [client(&context).await, client(&context).await];
    let (inside, name) = (Arc::new(AtomicUsize::new(0)), context.prefix().to_owned());
    let contenders = (0..32).map(|number| {
        let semaphore = clients[number % 2].semaphore(&name, LIMIT as u16);
        let (semaphore, inside) = (semaphore.wait(TIMEOUT), inside.clone());
        async move {
            let lease = semaphore
                .acquire()
                .await
                .expect("every contender is granted");
            let others = inside.fetch_add(1, Ordering::SeqCst);
            assert!(others < LIMIT, "{} at once", others + 1);
            tokio::time::sleep(Duration::from_millis(2)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            lease.release().await.expect("the store answers");
        }
    });
    run_concurrently(contenders.collect::<Vec<_>>()).await;
}
