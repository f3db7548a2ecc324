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
        caller.count(&self.config.limits)?;
        route.need().check(caller)?;
        match query.has("wait") {
            true => caller.wait(&self.config.limits),
            false => Ok(None),
        }
    }
}
