//! Whether a request is performed: who sends it, what it needs, and how much its caller has asked for.

use crate::access::caller::{Caller, Need};
use crate::access::meter::Waiting;
use crate::origin;
use crate::refused::Refused;
use crate::route::Route;
use crate::service::{Call, Head, Peer, Service};

impl Service {
    /// Identifies the caller of a request, where its route needs that.
    pub(crate) fn identify(
        &self,
        head: Head<'_>,
        peer: &Peer,
        route: &Route,
    ) -> Result<Caller, Refused> {
        origin::check(head.method, head.headers)?;
        match &self.config.access {
            Some(access) if !matches!(route.need(), Need::Nothing) => {
                access.identify(head.headers, self.session(head.headers), peer)
            }
            _ => Ok(Caller::anybody(peer)),
        }
    }

    /// Counts a request that is invalid, if its caller is known. Returns why it is refused.
    pub(crate) fn count_invalid(&self, head: Head<'_>, peer: &Peer, refused: Refused) -> Refused {
        let Some(access) = &self.config.access else {
            return refused;
        };
        match access.identify(head.headers, self.session(head.headers), peer) {
            Ok(caller) => caller.count(&self.config.limits).err().unwrap_or(refused),
            Err(_) => refused,
        }
    }

    /// Counts each of the parts of a request that was counted as one when it was admitted.
    pub(crate) fn charge(&self, caller: &Caller, parts: usize) {
        caller.charge(&self.config.limits, parts.saturating_sub(1));
    }

    /// Checks that the caller has the rights that a route needs. A request that may wait is counted as a wait until what this
    /// returns is dropped.
    pub(crate) fn permit(
        &self,
        route: &Route,
        call: &Call<'_>,
    ) -> Result<Option<Waiting>, Refused> {
        let Call { caller, query, .. } = call;
        if caller.is_anybody() {
            return Ok(None);
        }
        route.need().check(caller)?;
        match query.has("wait") {
            true => caller.wait(&self.config.limits),
            false => Ok(None),
        }
    }
}
