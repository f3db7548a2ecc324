//! Leader election.

use leasehold::Error;
use leasehold::client::{Campaign, Change};
use tokio::time::{sleep, timeout};

use crate::faults::{Fault, Op};
use crate::{World, ms, secs};

async fn elected(campaign: &mut Campaign) -> leasehold::core::Fence {
    match timeout(secs(60), campaign.next()).await {
        Ok(Ok(Change::Elected(term))) => term.fence(),
        other => panic!("not elected: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_and_others_see_it() {
    let world = World::new().await;
    let (ours, theirs) = (
        world.client.election("scheduler").owner("ada"),
        world.other.election("scheduler").owner("bob"),
    );
    assert_eq!(theirs.leader().await, Ok(None));
    let term = ours.lead().await.unwrap();
    let leader = theirs.leader().await.unwrap().expect("ada leads");
    assert_eq!((&*leader.owner, leader.fence), ("ada", term.fence()));
    assert_eq!(leader.since, term.acquired_at());
    assert!(leader.left > secs(29) && leader.left <= secs(31));
    let next = tokio::spawn(async move { theirs.lead().await });
    sleep(secs(100)).await;
    assert!(!next.is_finished(), "ada still leads");
    let fence = term.fence();
    term.release().await.unwrap();
    let next = timeout(ms(100), next).await.expect("handed off at once");
    assert!(next.unwrap().unwrap().fence() > fence);
}

#[tokio::test(start_paused = true)]
async fn resignation_elects_the_next_candidate_at_once() {
    let world = World::new().await;
    let mut ours = world.client.election("scheduler").campaign();
    let first = elected(&mut ours).await;
    let term = ours.term().expect("it leads").clone();
    let mut theirs = world.other.election("scheduler").campaign();
    timeout(secs(100), theirs.next()).await.unwrap_err();
    assert!(theirs.term().is_none());
    assert_eq!(ours.resign().await, Ok(true));
    assert!(term.is_lost(), "the former leader is notified");
    let second = timeout(ms(100), elected(&mut theirs)).await.unwrap();
    assert!(second > first);
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_is_notified_and_runs_again() {
    let world = World::new().await;
    let mut ours = world.client.election("scheduler").ttl(secs(6)).campaign();
    let first = elected(&mut ours).await;
    let mut theirs = world.other.election("scheduler").campaign();
    world.faulty.always(Op::Renew, Fault::Hang);
    let lost = ours.next().await.unwrap();
    assert!(matches!(lost, Change::Lost(Error::Expired)), "{lost:?}");
    let second = elected(&mut theirs).await;
    assert!(second > first);
    assert_eq!(theirs.resign().await, Ok(true));
    assert!(elected(&mut ours).await > second);
}

#[tokio::test(start_paused = true)]
async fn candidate_retries_while_the_store_fails() {
    let world = World::new().await;
    let down = Error::Unavailable("down".into());
    world.faulty.once(Op::Acquire, Fault::Fail(down));
    let no_response = Error::Indeterminate("no response".into());
    world
        .faulty
        .once(Op::Acquire, Fault::LoseResponse(no_response));
    let mut ours = world.client.election("scheduler").campaign();
    let elected = timeout(secs(5), elected(&mut ours)).await;
    assert!(
        elected.is_ok(),
        "the retry gets the term whose grant was lost"
    );
    let nonces = world.faulty.nonces();
    assert!(nonces.iter().all(|nonce| *nonce == nonces[0]));
}

#[tokio::test(start_paused = true)]
async fn dropped_and_resigned_candidates_leave_nothing_behind() {
    let world = World::new().await;
    let term = world.other.election("scheduler").lead().await.unwrap();
    let dropped = world.client.election("scheduler").campaign();
    let resigned = world.client.election("scheduler").campaign();
    sleep(secs(1)).await;
    drop(dropped);
    assert_eq!(resigned.resign().await, Ok(false));
    term.release().await.unwrap();
    sleep(secs(1)).await;
    assert_eq!(world.holders("scheduler").await, 0);
    let elected = world.client.election("scheduler").campaign();
    sleep(secs(1)).await;
    assert_eq!(world.holders("scheduler").await, 1);
    assert_eq!(
        elected.resign().await,
        Ok(true),
        "elected, although `next` was not called"
    );
    assert_eq!(world.holders("scheduler").await, 0);
}

#[tokio::test(start_paused = true)]
async fn error_that_a_retry_cannot_fix_ends_the_campaign() {
    let world = World::new().await;
    let mut campaign = world.client.election("").campaign();
    for _ in 0..2 {
        let refused = campaign.next().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(campaign.resign().await, Ok(false));
}
