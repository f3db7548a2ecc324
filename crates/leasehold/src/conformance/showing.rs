//! Looking at leases.

use leasehold_core::{Mode, Name};

use super::bench::{Bench, ask, release, shown, update};
use crate::{Leases, ListRequest};

super::promises!(Leases:
    a_name_that_was_never_used_shows_nothing,
    a_lease_shows_who_holds_it,
    lists_by_prefix_in_the_order_of_names,
    lists_who_is_held_and_who_is_not,
    lists_by_state,
    lists_in_pages,
);

async fn a_name_that_was_never_used_shows_nothing(bench: Bench) {
    let leases = bench.leases().await;
    assert_eq!(leases.show(&bench.name("never")).await, Ok(None));
}

async fn a_lease_shows_who_holds_it(bench: Bench) {
    let (leases, name) = (bench.leases().await, bench.name("one"));
    let mode = Mode::Shared { limit: Some(3) };
    let mut holds = Vec::new();
    for owner in ["ada", "bob"] {
        holds.push(ask(&name, owner).shared(Some(3)).granted(&*leases).await);
    }
    let view = shown(&*leases, &name).await;
    assert_eq!((view.record.holders.len(), view.remaining.len()), (2, 2));
    for (holder, owner) in view.record.holders.iter().zip(["ada", "bob"]) {
        assert_eq!((&*holder.owner, holder.mode), (owner, mode));
        assert!(holder.broken.is_none());
    }
    assert!(!view.reserved);
}

/// All pages of a listing.
async fn list(leases: &dyn Leases, mut request: ListRequest) -> Vec<Name> {
    let mut names = Vec::new();
    loop {
        let page = leases.list(request.clone()).await.expect("it lists");
        names.extend(page.leases.into_iter().map(|(name, _)| name));
        match page.cursor {
            None => return names,
            cursor => request.cursor = cursor,
        }
    }
}

fn under(prefix: String) -> ListRequest {
    ListRequest {
        prefix,
        ..ListRequest::default()
    }
}

async fn lists_by_prefix_in_the_order_of_names(bench: Bench) {
    let leases = bench.leases().await;
    let suffixes = ["b", "a/é", "a/1", "a/%", "a/🔒", "A/1", "a"];
    for suffix in suffixes {
        ask(&bench.name(suffix), suffix).granted(&*leases).await;
    }
    let mut all = suffixes.map(|suffix| bench.name(suffix));
    all.sort();
    assert_eq!(list(&*leases, under(bench.prefix().to_owned())).await, all);
    let folder = ["a/%", "a/1", "a/é", "a/🔒"].map(|suffix| bench.name(suffix));
    assert_eq!(
        list(&*leases, under(format!("{}a/", bench.prefix()))).await,
        folder
    );
    let odd = under(format!("{}a/%", bench.prefix()));
    assert_eq!(list(&*leases, odd).await, [bench.name("a/%")]);
    let page = leases
        .list(under(bench.prefix().to_owned()))
        .await
        .expect("it lists");
    for (name, view) in page.leases {
        let owner = &view.record.holders[0].owner;
        assert_eq!(name, bench.name(owner), "each with what it holds");
    }
}

async fn lists_who_is_held_and_who_is_not(bench: Bench) {
    let leases = bench.leases().await;
    let (held, free) = (bench.name("held"), bench.name("free"));
    ask(&held, "ada").granted(&*leases).await;
    let fence = ask(&free, "bob").granted(&*leases).await.grant.fence;
    release(&*leases, &free, fence).await;
    for (wanted, expected) in [(true, held), (false, free)] {
        let request = ListRequest {
            held: Some(wanted),
            ..under(bench.prefix().to_owned())
        };
        assert_eq!(list(&*leases, request).await, [expected]);
    }
}

async fn lists_by_state(bench: Bench) {
    let leases = bench.leases().await;
    let names = ["z", "y", "x"].map(|suffix| bench.name(suffix));
    for name in &names {
        let fence = ask(name, "ada").granted(&*leases).await.grant.fence;
        let mut request = update(name, fence, "item");
        request.state = Some(Some("REQUESTED".into()));
        leases.update(request).await.expect("it is held");
    }
    ask(&bench.name("no state"), "ada").granted(&*leases).await;
    let request = ListRequest {
        state: Some("REQUESTED".into()),
        ..under(bench.prefix().to_owned())
    };
    let mut found = list(&*leases, request.clone()).await;
    found.sort();
    let mut expected = names;
    expected.sort();
    assert_eq!(found, expected);
    let none = ListRequest {
        state: Some("requested".into()),
        ..request
    };
    assert_eq!(list(&*leases, none).await, []);
}

async fn lists_in_pages(bench: Bench) {
    let leases = bench.leases().await;
    let names: Vec<_> = (0..11).map(|n| bench.name(&format!("{n:02} 🔒"))).collect();
    for name in &names {
        ask(name, "ada").granted(&*leases).await;
    }
    for limit in [0, 1, 4, 11, 12] {
        let request = ListRequest {
            limit,
            ..under(bench.prefix().to_owned())
        };
        assert_eq!(list(&*leases, request).await, names, "in pages of {limit}");
    }
}
