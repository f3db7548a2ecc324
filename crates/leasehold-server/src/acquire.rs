//! Handlers that acquire one lease or several, or pass a gate.

use std::time::Duration;

use leasehold::core::{Acquire, BootTime, Fence, Hash, Mode, Name, Operation, Outcome, limits};
use leasehold::engine::{AcquireAllReply, Reply, WaitLimit};
use leasehold::wire::{Lease, NamedLease, NamedLeases, Names, Problem};
use leasehold::{AcquireAllRequest, Error, Result, json_bytes};

use crate::access::Right;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::audit::{Change, Entry};
use crate::body;
use crate::budget::{BudgetPermit, MAX_UNRESERVED_BYTES, too_many_answers};
use crate::connections::ClientAddress;
use crate::query::Query;
use crate::rejection::Rejection;
use crate::route;
use crate::service::{Call, Service, rejection_of};

/// The maximum size of a body that lists names.
const NAMES_BYTES: usize = 1024 * 1024;

impl Service {
    pub(crate) async fn acquire(&self, call: Call<'_>, name: &Name) -> Result<Answer, Rejection> {
        let query = &call.query;
        query.allow_only(&[
            "name", "nonce", "ttl", "wait", "owner", "mode", "limit", "fence",
        ])?;
        let ttl = query.duration("ttl")?.unwrap_or(self.config.default_ttl);
        let acquire = Acquire {
            mode: mode(query)?,
            fence: query.read("fence", route::fence)?,
            ..exclusive_acquire(&call, call.required_nonce()?.hash(name), ttl)
        };
        let (arrival, reply) = self.acquire_one(call, name, acquire).await?;
        match granted_lease(arrival, &reply) {
            Some(lease) => Ok(answer::with_reply(name, reply, lease.to_json())),
            None => Err(rejection_of(reply)),
        }
    }

    /// Passes a gate, whose ttl is the period. Callers within the period learn when to retry.
    pub(crate) async fn pass(&self, call: Call<'_>, gate: &Name) -> Result<Answer, Rejection> {
        let query = &call.query;
        query.allow_only(&["name", "every", "nonce", "owner", "wait"])?;
        let every = query
            .duration("every")?
            .ok_or_else(|| Error::invalid("the period is missing: give it as in `every=60s`"))?;
        let acquire = exclusive_acquire(&call, self.nonce_or_new(&call)?.hash(gate), every);
        let (arrival, reply) = self.acquire_one(call, gate, acquire).await?;
        match (granted_lease(arrival, &reply), reply.outcome()) {
            (Some(lease), _) => Ok(answer::with_reply(gate, reply, lease.to_json())),
            (None, Outcome::Held(held)) => Err(Problem::throttled(held).into()),
            (None, _) => Err(rejection_of(reply)),
        }
    }

    pub(crate) async fn acquire_all(
        &self,
        call: Call<'_>,
        names: Vec<Name>,
    ) -> Result<Answer, Rejection> {
        let query = &call.query;
        query.allow_only(&["name", "nonce", "ttl", "wait", "owner"])?;
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
            return Err(Error::invalid(
                "the names are given as parameters and in the body: give them in one place",
            )
            .into());
        }
        let names = request.names.clone();
        let may_acquire = |caller: &Caller| caller.check_all(&[Right::Acquire], &names);
        may_acquire(&call.caller)?;
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
        let outcome = self
            .while_entitled(&call.caller, may_acquire, acquiring)
            .await?;
        self.record_wait(call.arrival, wait).await;
        match outcome {
            Ok(AcquireAllReply::Granted(granted)) => {
                let permit = match self.reserve_answer(call.client_address, &granted) {
                    Ok(permit) => permit,
                    Err(refused) => return Err(record_undelivered(entry, refused)?),
                };
                self.record_grants(entry, &owner, &granted)?;
                let leases = granted_leases(call.arrival, &granted);
                let answer = answer::with_replies(granted, &NamedLeases { leases });
                Ok(answer.with_permit(permit))
            }
            Ok(AcquireAllReply::Held(name, held)) => {
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

    /// Reserves budget for a large answer to several grants before it is built. If it is refused, the grants are released.
    pub(crate) fn reserve_answer(
        &self,
        address: ClientAddress,
        granted: &[(Name, Reply)],
    ) -> Result<Option<BudgetPermit>, Rejection> {
        let bytes = granted.iter().map(|(_, reply)| match reply.outcome() {
            Outcome::Granted(grant) => json_bytes(&grant.body),
            _ => 0,
        });
        let bytes: usize = bytes.sum();
        if bytes <= MAX_UNRESERVED_BYTES {
            return Ok(None);
        }
        let permit = self.answers.try_reserve(address, bytes);
        permit.map(Some).ok_or_else(too_many_answers)
    }

    async fn acquire_one(
        &self,
        call: Call<'_>,
        name: &Name,
        acquire: Acquire,
    ) -> Result<(BootTime, Reply), Rejection> {
        let wait_limit = WaitLimit {
            wait: call.query.wait()?,
            within: None,
        };
        // An unread body would hide that the caller has disconnected.
        let _ = call
            .body
            .read(limits::MAX_BODY_BYTES, self.config.body_timeout)
            .await?;
        let operation = Operation::Acquire(acquire);
        let acquiring = self.perform(&call.caller, name, operation, wait_limit);
        let reply = match wait_limit.wait.is_zero() {
            true => acquiring.await,
            false => {
                let may_acquire = |caller: &Caller| caller.check(&[Right::Acquire], name);
                Box::pin(self.while_entitled(&call.caller, may_acquire, acquiring)).await?
            }
        };
        self.record_wait(call.arrival, wait_limit.wait).await;
        Ok((call.arrival, reply?))
    }
}

fn exclusive_acquire(call: &Call<'_>, nonce: Hash, ttl: Duration) -> Acquire {
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

/// Returns the lease that a reply grants, if it does.
fn granted_lease(arrival: BootTime, reply: &Reply) -> Option<Lease> {
    match (reply.outcome(), reply.deadline()) {
        (Outcome::Granted(grant), Some(deadline)) => Some(Lease::granted(grant, arrival, deadline)),
        _ => None,
    }
}

/// Returns the leases that several replies grant.
pub(crate) fn granted_leases(arrival: BootTime, granted: &[(Name, Reply)]) -> Vec<NamedLease> {
    let leases = granted.iter().filter_map(|(name, reply)| {
        Some(NamedLease {
            name: name.as_str().into(),
            lease: granted_lease(arrival, reply)?,
        })
    });
    leases.collect()
}

/// Records that grants are released because their answer is refused.
pub(crate) fn record_undelivered(entry: Entry, refused: Rejection) -> Result<Rejection> {
    entry.fail(&Error::Unavailable(refused.document().detail.to_string()))?;
    Ok(refused)
}

fn names_in(text: &str) -> Result<Vec<Name>> {
    if text.trim_ascii().is_empty() {
        return Err(Error::invalid(
            "the name is missing: give `/locks/{name}`, or one `name=` for each lease",
        ));
    }
    let Names { names } = body::parse_json(text)?;
    names.iter().map(|name| Ok(Name::lock(name)?)).collect()
}

fn mode(query: &Query<'_>) -> Result<Mode> {
    let limit = query.read("limit", |text| {
        text.parse()
            .map_err(|_| Error::invalid("the limit is not a whole number: give one from 1 to 256"))
    })?;
    match (query.get("mode"), limit) {
        (Some("shared"), limit) => Ok(Mode::Shared { limit }),
        (None | Some("exclusive"), None) => Ok(Mode::Exclusive),
        (None | Some("exclusive"), Some(_)) => Err(Error::invalid(
            "an exclusive lease has no limit: add `mode=shared`, or omit `limit`",
        )),
        (Some(_), _) => Err(Error::invalid(
            "the mode is unknown: give `exclusive` or `shared`",
        )),
    }
}
