//! The enclosing `leasehold run`: its command receives the held names in its environment.

use std::collections::BTreeMap;

use leasehold::Client;
use leasehold::core::Name;
use leasehold::wire::LockView;

use crate::store::Target;

/// The leases of the enclosing `leasehold run`, as its command received them.
pub(super) struct Enclosing {
    fences: BTreeMap<String, u64>,
}

impl Enclosing {
    /// Returns the enclosing leases in the same store; `None` if there are none.
    pub(super) fn of_environment(target: &Target) -> Option<Self> {
        let variable = |name| std::env::var(name).ok();
        let store = variable("LEASEHOLD_STORE")?;
        let mut own_environment = target.environment().into_iter();
        if !own_environment
            .any(|(name, value)| name == "LEASEHOLD_STORE" && value == Some(store.clone()))
        {
            return None;
        }
        let fences = match variable("LEASEHOLD_FENCES") {
            Some(fences) => serde_json::from_str(&fences).ok()?,
            None => {
                let fence = variable("LEASEHOLD_FENCE")?.parse().ok()?;
                BTreeMap::from([(variable("LEASEHOLD_NAME")?, fence)])
            }
        };
        Some(Self { fences })
    }

    /// Returns the given names that the enclosing command holds. The environment may be older than the lease, as in a daemon
    /// that outlived its command, so the store is asked.
    pub(super) async fn held(
        &self,
        client: &Client,
        names: impl Iterator<Item = &Name>,
    ) -> leasehold::Result<Vec<Name>> {
        let mut held = Vec::new();
        for name in names {
            let Some(fence) = self.fences.get(name.as_str()) else {
                continue;
            };
            let view = client.leases().show(name).await?;
            let lock = view.map(|view| LockView::new(name, &view));
            let mut holders = lock.iter().flat_map(|lock| &lock.holders);
            if holders.any(|holder| holder.fence.get() == *fence) {
                held.push(name.clone());
            }
        }
        Ok(held)
    }
}
