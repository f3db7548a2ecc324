//! The stored hash of a nonce differs for each name.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Name, Nonce};
use leasehold::store::Store;
use leasehold::store::memory::Memory;
use leasehold::{
    AcquireAllOutcome, AcquireAllRequest, ClaimRequest, HolderKey, Leases, PutRequest,
};

use crate::support::{LONG, engine, name};

fn nonce() -> Nonce {
    Nonce::new("worker-1").expect("short")
}

#[tokio::test]
async fn nonce_has_a_different_hash_under_each_name() {
    let store = Arc::new(Memory::new());
    let engine = engine(store.clone()).await;
    let leases: &dyn Leases = &engine;
    let locks = vec![name("a"), name("b")];
    let request = AcquireAllRequest {
        names: locks.clone(),
        nonce: nonce(),
        owner: "me".into(),
        ttl: LONG,
        wait: Duration::ZERO,
    };
    let granted = leases.acquire_all(request).await.unwrap();
    assert!(matches!(granted, AcquireAllOutcome::Granted(_)));

    let items = vec![name("c"), name("d")];
    for item in &items {
        let put = PutRequest {
            name: item.clone(),
            state: "NEW".into(),
            body: None,
            nonce: Some(nonce()),
        };
        leases.put(put).await.unwrap();
    }
    let request = ClaimRequest {
        state: "NEW".into(),
        prefix: String::new(),
        limit: 2,
        ttl: LONG,
        owner: "me".into(),
        nonce: nonce(),
        wait: Duration::ZERO,
    };
    assert_eq!(leases.claim(request).await.unwrap().len(), 2);

    let names: Vec<Name> = [locks, items.clone()].concat();
    let loaded = store.load(&names).await.unwrap().value;
    for (name, stored) in names.iter().zip(loaded) {
        let record = stored.unwrap().record;
        assert_eq!(record.holders[0].nonce, nonce().hash(name), "{name}");
        let put = items.contains(name).then(|| nonce().hash(name));
        assert_eq!(record.put, put, "{name}");
        // A caller that knows the nonce can still release by it.
        let released = leases.release(name, HolderKey::Nonce(nonce())).await;
        assert!(released.unwrap(), "{name}");
    }
}
