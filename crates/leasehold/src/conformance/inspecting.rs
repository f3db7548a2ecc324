//! Showing and listing leases.

use leasehold_core::{Mode, Name};

use super::context::{TestContext, acquire, release, show, update};
use crate::{Leases, ListRequest};

super::define_cases!(Leases:
    unused_name_has_no_record,
    lease_shows_its_holders,
    list_by_prefix_is_in_name_order,
    list_filters_by_held,
    list_filters_by_state,
    list_returns_every_name_across_pages,
);

async fn unused_name_has_no_record(context: TestContext) {
    let leases = context.leases().await;
    assert_eq!(leases.show(&context.name("never")).await, Ok(None));
}

async fn lease_shows_its_holders(context: TestContext) {
    let (leases, name) = (context.leases().await, context.name("one"));
    let mode = Mode::Shared { limit: Some(3) };
    let mut holds = Vec::new();
    for owner in ["ada", "bob"] {
        holds.push(
            acquire(&name, owner)
                .shared(Some(3))
                .expect_granted(&*leases)
                .await,
        );
    }
    let view = show(&*leases, &name).await;
    assert_eq!((view.record.holders.len(), view.remaining.len()), (2, 2));
    for (holder, owner) in view.record.holders.iter().zip(["ada", "bob"]) {
        assert_eq!((&*holder.owner, holder.mode), (owner, mode));
        assert!(holder.broken.is_none());
    }
    assert!(!view.reserved);
}

/// Returns the names of all pages of a listing.
async fn list(leases: &dyn Leases, mut request: ListRequest) -> Vec<Name> {
    let mut names = Vec::new();
    loop {
        let page = leases
            .list(request.clone())
            .await
            .expect("the store answers");
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

async fn list_by_prefix_is_in_name_order(context: TestContext) {
    let leases = context.leases().await;
    let suffixes = ["b", "a/é", "a/1", "a/%", "a/🔒", "A/1", "a"];
    for suffix in suffixes {
        acquire(&context.name(suffix), suffix)
            .expect_granted(&*leases)
            .await;
    }
    let mut all = suffixes.map(|suffix| context.name(suffix));
    all.sort();
    assert_eq!(
        list(&*leases, under(context.prefix().to_owned())).await,
        all
    );
    let folder = ["a/%", "a/1", "a/é", "a/🔒"].map(|suffix| context.name(suffix));
    assert_eq!(
        list(&*leases, under(format!("{}a/", context.prefix()))).await,
        folder
    );
    let odd = under(format!("{}a/%", context.prefix()));
    assert_eq!(list(&*leases, odd).await, [context.name("a/%")]);
    let page = leases
        .list(under(context.prefix().to_owned()))
        .await
        .expect("the store answers");
    for (name, view) in page.leases {
        let owner = &view.record.holders[0].owner;
        assert_eq!(
            name,
            context.name(owner),
            "each name comes with its own view"
        );
    }
}

async fn list_filters_by_held(context: TestContext) {
    let leases = context.leases().await;
    let (held, free) = (context.name("held"), context.name("free"));
    acquire(&held, "ada").expect_granted(&*leases).await;
    let fence = acquire(&free, "bob").expect_fence(&*leases).await;
    release(&*leases, &free, fence).await;
    for (held, expected) in [(true, held), (false, free)] {
        let request = ListRequest {
            held: Some(held),
            ..under(context.prefix().to_owned())
        };
        assert_eq!(list(&*leases, request).await, [expected]);
    }
}

async fn list_filters_by_state(context: TestContext) {
    let leases = context.leases().await;
    let names = ["z", "y", "x"].map(|suffix| context.name(suffix));
    for name in &names {
        let fence = acquire(name, "ada").expect_fence(&*leases).await;
        let mut request = update(name, fence, "item");
        request.state = Some(Some("REQUESTED".into()));
        leases.update(request).await.expect("the lease is held");
    }
    acquire(&context.name("no state"), "ada")
        .expect_granted(&*leases)
        .await;
    let request = ListRequest {
        state: Some("REQUESTED".into()),
        ..under(context.prefix().to_owned())
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

async fn list_returns_every_name_across_pages(context: TestContext) {
    let leases = context.leases().await;
    let names: Vec<_> = (0..11)
        .map(|n| context.name(&format!("{n:02} 🔒")))
        .collect();
    for name in &names {
        acquire(name, "ada").expect_granted(&*leases).await;
    }
    for limit in [0, 1, 4, 11, 12] {
        let request = ListRequest {
            limit,
            ..under(context.prefix().to_owned())
        };
        assert_eq!(list(&*leases, request).await, names, "in pages of {limit}");
    }
}
