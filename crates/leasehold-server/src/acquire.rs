//! Taking a lease, several of them, or passing a gate.

use std::time::Duration;

use leasehold::core::{Acquire, BootTime, Fence, Hash, Mode, Name, Operation, Outcome, limits};
use leasehold::engine::{Patience, Reply, Several};
use leasehold::wire::{Lease, NamedLease, NamedLeases, Names, Problem};
use leasehold::{AcquireAllRequest, Error, Result};

use crate::access::Right;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::audit::Change;
use crate::body;
use crate::query::Query;
use crate::refused::Refused;
use crate::route;
use crate::service::{Call, Service, refuse};

/// Bytes of the names of several leases.
const NAMES_BYTES: usize = 1024 * 1024;

impl Service {
    pub(crate) async fn acquire(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&[
            "name", "nonce", "ttl", "wait", "owner", "mode", "limit", "fence",
        ])?;
        let ttl = query.duration("ttl")?.unwrap_or(self.config.default_ttl);
        let acquire = Acquire {
            mode: mode(query)?,
            fence: query.read("fence", route::fence)?,
            ..exclusively(&call, call.required_nonce()?.hash(name), ttl)
        };
        let (arrival, reply) = self.ask(call, name, acquire).await?;
        match lease(arrival, &reply) {
            Some(lease) => Ok(answer::telling(name, reply, lease.to_json())),
            None => Err(refuse(reply)),
        }
    }

    /// Passes a gate: its ttl is the period, and who comes within it is told when to come back.
    pub(crate) async fn pass(&self, call: Call<'_>, gate: &Name) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["name", "every", "nonce", "owner", "wait"])?;
        let every = query.duration("every")?.ok_or_else(|| {
            Error::invalid("the period is missing: give something like `every=60s`")
        })?;
        let acquire = exclusively(&call, self.nonce_or_new(&call)?.hash(gate), every);
        let (arrival, reply) = self.ask(call, gate, acquire).await?;
        match (lease(arrival, &reply), reply.outcome()) {
            (Some(lease), _) => Ok(answer::telling(gate, reply, lease.to_json())),
            (None, Outcome::Held(held)) => Err(Problem::throttled(held).into()),
            (None, _) => Err(refuse(reply)),
        }
    }

    pub(crate) async fn acquire_all(
        &self,
        call: Call<'_>,
        names: Vec<Name>,
    ) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["name", "nonce", "ttl", "wait", "owner"])?;
        let mut request = AcquireAllRequest {
            names,
            nonce: call.required_nonce()?,
            owner: call.owner(),
            ttl: query.duration("ttl")?.unwrap_or(self.config.default_ttl),
            wait: query.wait()?,
        };
        let text = call
            .body
            .read_text(NAMES_BYTES, self.config.body_timeout)
            .await?;
        if request.names.is_empty() {
            request.names = names_in(&text)?;
        } else if !text.trim_ascii().is_empty() {
            return Err(Error::invalid("names as parameters and a body: give one of them").into());
        }
        let names = request.names.clone();
        let may_take = |caller: &Caller| caller.check_all(&[Right::Acquire], &names);
        may_take(&call.caller)?;
        self.charge(&call.caller, names.len());
        let (wait, principal) = (request.wait, call.caller.principal());
        let owner = request.owner.clone();
        let entry = self.begin(&call.caller, || {
            names
                .iter()
                .map(|name| Change::new("acquire", Some(name)))
                .collect()
        })?;
        let acquiring = self.engine.acquire_all(request, principal);
        let several = self
            .while_entitled(&call.caller, may_take, acquiring)
            .await?;
        self.waited(call.arrival, wait).await;
        match several {
            Ok(Several::Granted(granted)) => {
                self.granted(entry, &owner, &granted)?;
                let leases = leases(call.arrival, &granted);
                Ok(answer::telling_all(granted, &NamedLeases { leases }))
            }
            Ok(Several::Held(name, held)) => {
                let error = Error::Held(held);
                entry.fail(&error)?;
                Err(Problem::from(&error).about(&name).into())
            }
            Err(error) => {
                entry.fail(&error)?;
                Err(error.into())
            }
        }
    }

    async fn ask(
        &self,
        call: Call<'_>,
        name: &Name,
        acquire: Acquire,
    ) -> Result<(BootTime, Reply), Refused> {
        let patience = Patience {
            wait: call.query.wait()?,
            within: None,
        };
        // An unread body would hide that the caller has gone.
        let _ = call
            .body
            .read(limits::MAX_BODY_BYTES, self.config.body_timeout)
            .await?;
        let operation = Operation::Acquire(acquire);
        let acquiring = self.perform(&call.caller, name, operation, patience);
        let reply = match patience.wait.is_zero() {
            true => acquiring.await,
            false => {
                let may_take = |caller: &Caller| caller.check(&[Right::Acquire], name);
                Box::pin(self.while_entitled(&call.caller, may_take, acquiring)).await?
            }
        };
        self.waited(call.arrival, patience.wait).await;
        Ok((call.arrival, reply?))
    }
}

fn exclusively(call: &Call<'_>, nonce: Hash, ttl: Duration) -> Acquire {
    Acquire {
        nonce,
        owner: call.owner(),
        principal: call.caller.principal(),
        ttl,
        mode: Mode::Exclusive,
        fence: None,
        floor: Fence::default(),
        in_state: None,
    }
}

/// What a reply grants, as it is told.
fn lease(arrival: BootTime, reply: &Reply) -> Option<Lease> {
    match (reply.outcome(), reply.deadline()) {
        (Outcome::Granted(grant), Some(deadline)) => Some(Lease::granted(grant, arrival, deadline)),
        _ => None,
    }
}

/// The same of several.
pub(crate) fn leases(arrival: BootTime, granted: &[(Name, Reply)]) -> Vec<NamedLease> {
    let leases = granted.iter().filter_map(|(name, reply)| {
        Some(NamedLease {
            name: name.as_str().into(),
            lease: lease(arrival, reply)?,
        })
    });
    leases.collect()
}

fn names_in(text: &str) -> Result<Vec<Name>> {
    if text.trim_ascii().is_empty() {
        return Err(Error::invalid(
            "the name is missing: give `/locks/{name}`, or `name=` for each of several",
        ));
    }
    let Names { names } = body::parse_json(text)?;
    names.iter().map(|name| Ok(Name::lock(name)?)).collect()
}

fn mode(query: &Query<'_>) -> Result<Mode> {
    let limit = query.read("limit", |text| {
        text.parse()
            .map_err(|_| Error::invalid("the limit is not a whole number from 1 to 256"))
    })?;
    match (query.get("mode"), limit) {
        (Some("shared"), limit) => Ok(Mode::Shared { limit }),
        (None | Some("exclusive"), None) => Ok(Mode::Exclusive),
        (None | Some("exclusive"), Some(_)) => Err(Error::invalid(
            "only a shared lease has a limit: give `mode=shared`",
        )),
        (Some(_), _) => Err(Error::invalid("the mode is `exclusive` or `shared`")),
    }
}
