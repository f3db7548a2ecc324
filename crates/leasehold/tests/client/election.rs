//! Elections.

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
async fn one_leads_and_all_know_who() {
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
    let next = timeout(ms(100), next).await.expect("handed over at once");
    assert!(next.unwrap().unwrap().fence() > fence);
}

#[tokio::test(start_paused = true)]
async fn resigning_hands_over_at_once() {
    let world = World::new().await;
    let mut ours = world.client.election("scheduler").campaign();
    let first = elected(&mut ours).await;
    let term = ours.term().expect("it leads").clone();
    let mut theirs = world.other.election("scheduler").campaign();
    timeout(secs(100), theirs.next()).await.unwrap_err();
    assert!(theirs.term().is_none());
    assert_eq!(ours.resign().await, Ok(true));
    assert!(term.is_lost(), "whoever still works under it is told");
    let second = timeout(ms(100), elected(&mut theirs)).await.unwrap();
    assert!(second > first);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_is_told_and_stands_again() {
    let world = World::new().await;
    let mut ours = world.client.election("scheduler").ttl(secs(6)).campaign();
    let first = elected(&mut ours).await;
    let mut theirs = world.other.election("scheduler").campaign();
    world.faulty.always(Op::Renew, Fault::Hangs);
    let lost = ours.next().await.unwrap();
    assert!(matches!(lost, Change::Lost(Error::Expired)), "{lost:?}");
    let second = elected(&mut theirs).await;
    assert!(second > first);
    assert_eq!(theirs.resign().await, Ok(true));
    assert!(elected(&mut ours).await > second);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_outlasts_the_stores_troubles() {
    let world = World::new().await;
    let down = Error::Unavailable("down".into());
    world.faulty.once(Op::Acquire, Fault::Fails(down));
    let unknown = Error::Indeterminate("no answer".into());
    world.faulty.once(Op::Acquire, Fault::Unanswered(unknown));
    let mut ours = world.client.election("scheduler").campaign();
    let elected = timeout(secs(5), elected(&mut ours)).await;
    assert!(elected.is_ok(), "what was granted unanswered is its own");
    let nonces = world.faulty.nonces();
    assert!(nonces.iter().all(|nonce| *nonce == nonces[0]));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_goes_leaves_nothing_behind() {
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
    let unheard = world.client.election("scheduler").campaign();
    sleep(secs(1)).await;
    assert_eq!(world.holders("scheduler").await, 1);
    assert_eq!(unheard.resign().await, Ok(true), "elected, though unheard");
    assert_eq!(world.holders("scheduler").await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_standing_again_does_not_mend_is_an_error() {
    let world = World::new().await;
    let mut campaign = world.client.election("").campaign();
    for _ in 0..2 {
        let refused = campaign.next().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert_eq!(campaign.resign().await, Ok(false));
}
