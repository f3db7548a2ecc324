//! Who asks, and what they may do.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Name, Text};
use leasehold::wire::{Problem, Trouble};

use super::credential::Credential;
use super::lifetime::Lifetime;
use super::meter::{Limits, Waiting};
use super::scope::{self, Right, Scope};
use crate::refused::Refused;
use crate::route::Route;
use crate::service::Peer;

/// Who asks. Where access control is off that is anybody, who may do everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) credential: Option<Arc<Credential>>,
    /// What shows the credential, if that ends by itself: a session, or a certificate.
    pub(super) proof: Option<Arc<Lifetime>>,
    /// Where from.
    pub(crate) address: Text,
}

impl Caller {
    pub(super) fn new(
        credential: Arc<Credential>,
        proof: Option<Arc<Lifetime>>,
        address: Text,
    ) -> Self {
        Self {
            credential: Some(credential),
            proof,
            address,
        }
    }

    /// Somebody whom nobody has asked who they are.
    pub(crate) fn anybody(peer: &Peer) -> Self {
        Self {
            credential: None,
            proof: None,
            address: peer.address.clone(),
        }
    }

    /// Whether access control is off.
    pub(crate) fn is_anybody(&self) -> bool {
        self.credential.is_none()
    }

    /// Whether its rights have ended, or are others now.
    pub(crate) fn is_over(&self) -> bool {
        self.lifetimes().any(Lifetime::is_over)
    }

    /// Waits until its rights end, or are others.
    pub(crate) async fn over(&self) {
        let mut lifetimes = self.lifetimes();
        let (one, other) = (lifetimes.next(), lifetimes.next());
        tokio::select! {
            () = over(one) => {}
            () = over(other) => {}
        }
    }

    fn lifetimes(&self) -> impl Iterator<Item = &Lifetime> {
        let credential = self.credential.as_deref().map(|known| &known.lifetime);
        credential.into_iter().chain(self.proof.as_deref())
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

    /// Counts so many more for a request that was admitted.
    pub(crate) fn charge(&self, limits: &Limits, more: usize) {
        if let Some(known) = &self.credential {
            known.meter.charge(limits, more);
        }
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

    /// The same for each of these names.
    pub(crate) fn check_all<'n>(
        &self,
        rights: &[Right],
        names: impl IntoIterator<Item = &'n Name>,
    ) -> Result<(), Refused> {
        let mut names = names.into_iter();
        names.try_for_each(|name| self.check(rights, name))
    }

    /// The same for every name that starts like this.
    pub(crate) fn check_prefix(&self, right: Right, prefix: &str) -> Result<(), Refused> {
        if self.scopes_allow(|scope| scope.allows(right, prefix)) {
            return Ok(());
        }
        Err(missing(&[right]).into())
    }

    /// The same for names that are not known yet: whether there are any.
    fn check_some(&self, rights: &[Right]) -> Result<(), Refused> {
        if self.scopes_allow(|scope| rights.iter().any(|right| scope.gives(*right))) {
            return Ok(());
        }
        Err(missing(rights).into())
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

async fn over(lifetime: Option<&Lifetime>) {
    match lifetime {
        Some(lifetime) => lifetime.over().await,
        None => std::future::pending().await,
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
            Self::On(rights, names) => caller.check_all(rights, *names),
            Self::Within(right) => caller.check_some(&[*right]),
            Self::OnEverything(right) => caller.check_prefix(*right, ""),
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
