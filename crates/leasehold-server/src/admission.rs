//! Admission of requests: identifies the caller, checks its rights, and applies its limits.

use crate::access::caller::{Caller, Requirement};
use crate::access::meter::WaitPermit;
use crate::origin;
use crate::rejection::Rejection;
use crate::route::Route;
use crate::service::{Call, Head, Peer, Service};

impl Service {
    /// Identifies the caller of a request, if its route requires that.
    pub(crate) fn identify(
        &self,
        head: Head<'_>,
        peer: &Peer,
        route: &Route,
    ) -> Result<Caller, Rejection> {
        origin::check(head.method, head.headers)?;
        match &self.config.access {
            Some(access) if !matches!(route.requirement(), Requirement::Public) => {
                access.identify(head.headers, self.session(head.headers), peer)
            }
            _ => Ok(Caller::anonymous(peer)),
        }
    }

    /// Counts an invalid request against its caller's rate, if the caller is known. Returns why the request is refused.
    pub(crate) fn count_invalid(
        &self,
        head: Head<'_>,
        peer: &Peer,
        refused: Rejection,
    ) -> Rejection {
        let Some(access) = &self.config.access else {
            return refused;
        };
        match access.identify(head.headers, self.session(head.headers), peer) {
            Ok(caller) => caller.count(&self.config.limits).err().unwrap_or(refused),
            Err(_) => refused,
        }
    }

    /// Counts each part of a request that was admitted as one.
    pub(crate) fn charge(&self, caller: &Caller, parts: usize) {
        caller.charge(&self.config.limits, parts.saturating_sub(1));
    }

    /// Checks that the caller has the rights that a route requires. A request that may wait counts as a wait until the returned
    /// guard is dropped.
    pub(crate) fn authorize(
        &self,
        route: &Route,
        call: &Call<'_>,
    ) -> Result<Option<WaitPermit>, Rejection> {
        let Call { caller, query, .. } = call;
        if caller.is_anonymous() {
            return Ok(None);
        }
        route.requirement().check(caller)?;
        match query.has("wait") {
            true => caller.wait(&self.config.limits),
            false => Ok(None),
        }
    }
}
