//! Who asks, and what they may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::core::{Name, Text};
use leasehold::wire::{Problem, Trouble};

use super::meter::{Limits, Meter, Waiting};
use super::scope::{self, Right, Scope};
use crate::refused::Refused;
use crate::route::Route;
use crate::service::Peer;

/// What a token or a certificate stands for.
#[derive(Debug)]
pub(crate) struct Credential {
    /// The token's id, or the certificate's name: no secret.
    pub(crate) id: Text,
    pub(crate) principal: Text,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) expires: Option<Timestamp>,
    /// How much it has asked for; it outlives a change of the file.
    pub(crate) meter: Arc<Meter>,
    /// Whether the file has been read again since.
    retired: AtomicBool,
}

impl Credential {
    pub(crate) fn new(
        id: &str,
        principal: String,
        scopes: Vec<Scope>,
        expires: Option<Timestamp>,
        meter: Arc<Meter>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: id.into(),
            meter,
            principal: principal.into(),
            scopes,
            expires,
            retired: AtomicBool::new(false),
        })
    }

    /// Says that it may allow something else now: what goes on by it must end, and ask again.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.expires
            .is_some_and(|expires| expires <= Timestamp::now())
    }
}

/// Who asks. Where access control is off that is anybody, who may do everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) credential: Option<Arc<Credential>>,
    /// Where from.
    pub(crate) address: Text,
}

impl Caller {
    /// Somebody whom nobody has asked who they are.
    pub(crate) fn anybody(peer: &Peer) -> Self {
        Self {
            credential: None,
            address: peer.address.clone(),
        }
    }

    /// Whether access control is off.
    pub(crate) fn is_anybody(&self) -> bool {
        self.credential.is_none()
    }

    /// Whether what it stood for may have changed since, or its time is over.
    pub(crate) fn is_over(&self) -> bool {
        let known = self.credential.as_deref();
        known.is_some_and(|known| known.retired.load(Ordering::Relaxed) || known.is_expired())
    }

    /// Whom leases belong to.
    pub(crate) fn principal(&self) -> Option<Text> {
        self.credential
            .as_ref()
            .map(|known| known.principal.clone())
    }

    /// Counts a request: one too many is told when to come back.
    pub(crate) fn count(&self, limits: &Limits) -> Result<(), Refused> {
        let known = self.credential.as_deref();
        known
            .map_or(Ok(()), |known| known.meter.count(limits))
            .map_err(|early| {
                let detail = format!("more than {} requests a second of this token", limits.rate);
                too_many(detail, early)
            })
    }

    /// Counts one that waits, until what this gives is dropped.
    pub(crate) fn wait(&self, limits: &Limits) -> Result<Option<Waiting>, Refused> {
        let Some(known) = &self.credential else {
            return Ok(None);
        };
        match known.meter.wait(limits) {
            Some(waiting) => Ok(Some(waiting)),
            None => {
                let detail = format!(
                    "more than {} requests of this token that wait",
                    limits.waits
                );
                Err(too_many(detail, Duration::from_secs(1)))
            }
        }
    }

    pub(crate) fn may(&self, right: Right, name: &Name) -> bool {
        self.scopes_allow(|scope| scope.allows(right, name.as_str()))
    }

    /// Refuses what the caller may not do, in the same words whether or not there is such a name. One of these rights is
    /// enough.
    pub(crate) fn check(&self, rights: &[Right], name: &Name) -> Result<(), Refused> {
        if rights.iter().any(|right| self.may(*right, name)) {
            return Ok(());
        }
        Err(missing(rights).into())
    }

    /// The same for names that are not known yet: whether there are any.
    fn check_some(&self, rights: &[Right]) -> Result<(), Refused> {
        if self.scopes_allow(|scope| rights.iter().any(|right| scope.gives(*right))) {
            return Ok(());
        }
        Err(missing(rights).into())
    }

    /// The same for what tells of every name.
    fn check_everything(&self, right: Right) -> Result<(), Refused> {
        if self.scopes_allow(|scope| scope.allows(right, "")) {
            return Ok(());
        }
        Err(missing(&[right]).into())
    }

    /// The parts of what starts with `prefix` on which the caller has this right: at least one, in order.
    pub(crate) fn narrow(&self, right: Right, prefix: &str) -> Result<Vec<String>, Refused> {
        let Some(known) = &self.credential else {
            return Ok(vec![prefix.to_owned()]);
        };
        let parts = scope::narrowed(&known.scopes, right, prefix);
        if parts.is_empty() {
            return Err(missing(&[right]).into());
        }
        Ok(parts)
    }

    fn scopes_allow(&self, allows: impl Fn(&Scope) -> bool) -> bool {
        match &self.credential {
            None => true,
            Some(known) => known.scopes.iter().any(allows),
        }
    }
}

fn too_many(detail: String, come_back: Duration) -> Refused {
    let mut problem = Problem::new(Trouble::TooManyRequests, detail);
    let millis = come_back.as_micros().div_ceil(1_000);
    problem.retry_after = Some(u64::try_from(millis).unwrap_or(u64::MAX));
    problem.into()
}

/// All of these rights are missing, and one is needed.
pub(crate) fn missing(rights: &[Right]) -> Problem {
    let words: Vec<_> = rights.iter().map(|right| right.as_str()).collect();
    let words = words.join("` or `");
    let detail =
        format!("the right `{words}` is missing here: it takes a token with a scope that has it");
    Problem::new(Trouble::Denied, detail)
}

/// What a route needs before it is even looked at.
pub(crate) enum Need<'r> {
    /// Nothing: anybody may ask, known or not.
    Nothing,
    /// To be known.
    Somebody,
    /// One of these rights on each of these names. Without any: on some name, because only the body tells which.
    On(&'static [Right], &'r [Name]),
    /// A right on some of the names that start with a prefix: the others are kept from the caller.
    Within(Right),
    /// A right on every name there is.
    OnEverything(Right),
}

impl Route {
    /// Every route says what it needs, so that a new one cannot forget to; and its description says the same.
    pub(crate) fn need(&self) -> Need<'_> {
        use std::slice::from_ref;
        match self {
            Self::Health
            | Self::Ready
            | Self::OpenApi
            | Self::Docs(_)
            | Self::Dashboard(_)
            | Self::LogIn
            | Self::LogOut => Need::Nothing,
            // Each of many requests needs what it needs by itself.
            Self::WhoAmI | Self::Requests => Need::Somebody,
            Self::Metrics | Self::Totals => Need::OnEverything(Right::Read),
            Self::List(_) | Self::Events => Need::Within(Right::Read),
            Self::Claim => Need::Within(Right::Acquire),
            Self::Show(name) | Self::History(name) => Need::On(&[Right::Read], from_ref(name)),
            Self::Acquire(name)
            | Self::Heartbeat(name, _)
            | Self::Update(name, _)
            | Self::Release(name, _)
            | Self::ReleaseByNonce(name)
            | Self::Pass(name)
            | Self::Put(name)
            | Self::Remove(name) => Need::On(&[Right::Acquire], from_ref(name)),
            Self::AcquireAll(names) => Need::On(&[Right::Acquire], names),
            Self::Heartbeats => Need::On(&[Right::Acquire], &[]),
            // Which of them depends on its parameters or its body.
            Self::Break(name) => Need::On(
                &[Right::Acquire, Right::Break, Right::Admin],
                from_ref(name),
            ),
        }
    }
}

impl Need<'_> {
    /// Whether the caller has it.
    pub(crate) fn check(&self, caller: &Caller) -> Result<(), Refused> {
        match self {
            Self::Nothing | Self::Somebody => Ok(()),
            Self::On(rights, []) => caller.check_some(rights),
            Self::On(rights, names) => names.iter().try_for_each(|name| caller.check(rights, name)),
            Self::Within(right) => caller.check_some(&[*right]),
            Self::OnEverything(right) => caller.check_everything(*right),
        }
    }

    /// The scopes one of which it takes; none: it is enough to be known. `None`: not even that.
    pub(crate) fn scopes(&self) -> Option<Vec<String>> {
        let (rights, names) = match self {
            Self::Nothing => return None,
            Self::Somebody => (&[][..], ""),
            Self::On(rights, _) => (*rights, "{name}"),
            Self::Within(right) => (std::slice::from_ref(right), "{prefix}"),
            Self::OnEverything(right) => (std::slice::from_ref(right), ""),
        };
        let scopes = rights
            .iter()
            .map(|right| format!("{}:{names}", right.as_str()));
        Some(scopes.collect())
    }
}
