//! The caller of a request, and its rights.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::{Name, Text};
use leasehold::wire::{Problem, ProblemType};

use super::credential::Credential;
use super::lifetime::Lifetime;
use super::meter::{Limits, WaitPermit};
use super::scope::{self, Right, Scope};
use crate::rejection::Rejection;
use crate::route::Route;
use crate::service::Peer;

/// The caller of a request. If access control is off, every caller has all rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// `None`: access control is off, or the route requires no credential.
    pub(crate) credential: Option<Arc<Credential>>,
    /// The lifetime of the session or certificate that proves the credential; `None` for a token.
    pub(super) proof: Option<Arc<Lifetime>>,
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

    /// Returns a caller that was not identified.
    pub(crate) fn anonymous(peer: &Peer) -> Self {
        Self {
            credential: None,
            proof: None,
            address: peer.address.clone(),
        }
    }

    /// Whether the caller was not identified.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.credential.is_none()
    }

    /// Whether its rights have ended or changed.
    pub(crate) fn has_ended(&self) -> bool {
        self.lifetimes().any(Lifetime::has_ended)
    }

    /// Waits until its rights end or change.
    pub(crate) async fn ended(&self) {
        let mut lifetimes = self.lifetimes();
        let (credential, proof) = (lifetimes.next(), lifetimes.next());
        tokio::select! {
            () = end_of(credential) => {}
            () = end_of(proof) => {}
        }
    }

    fn lifetimes(&self) -> impl Iterator<Item = &Lifetime> {
        let credential = self.credential.as_deref();
        let lifetime = credential.map(|credential| &credential.lifetime);
        lifetime.into_iter().chain(self.proof.as_deref())
    }

    /// Returns the principal that its leases belong to.
    pub(crate) fn principal(&self) -> Option<Text> {
        let credential = self.credential.as_ref();
        credential.map(|credential| credential.principal.clone())
    }

    /// Counts a request, or refuses it if the token's rate is exceeded.
    pub(crate) fn count(&self, limits: &Limits) -> Result<(), Rejection> {
        let credential = self.credential.as_deref();
        credential
            .map_or(Ok(()), |credential| credential.meter.count(limits))
            .map_err(|retry_after| {
                let detail = format!(
                    "more than {} requests a second with this token: retry later",
                    limits.rate
                );
                too_many(detail, retry_after)
            })
    }

    /// Counts `more` requests beyond the one that was admitted.
    pub(crate) fn charge(&self, limits: &Limits, more: usize) {
        if let Some(credential) = &self.credential {
            credential.meter.charge(limits, more);
        }
    }

    /// Counts a waiting request until the result is dropped, or refuses it if too many wait.
    pub(crate) fn wait(&self, limits: &Limits) -> Result<Option<WaitPermit>, Rejection> {
        let Some(credential) = &self.credential else {
            return Ok(None);
        };
        match credential.meter.wait(limits) {
            Some(permit) => Ok(Some(permit)),
            None => {
                let detail = format!(
                    "more than {} waiting requests with this token: retry later",
                    limits.waits
                );
                Err(too_many(detail, Duration::from_secs(1)))
            }
        }
    }

    /// Whether it has a right on a name.
    pub(crate) fn has_right(&self, right: Right, name: &Name) -> bool {
        self.scopes_allow(|scope| scope.allows(right, name.as_str()))
    }

    /// Refuses a caller that has none of these rights on a name. The answer does not show whether the name exists.
    pub(crate) fn check(&self, rights: &[Right], name: &Name) -> Result<(), Rejection> {
        if rights.iter().any(|right| self.has_right(*right, name)) {
            return Ok(());
        }
        Err(missing_right(rights).into())
    }

    /// Like [`check`](Self::check), for each of these names.
    pub(crate) fn check_all<'n>(
        &self,
        rights: &[Right],
        names: impl IntoIterator<Item = &'n Name>,
    ) -> Result<(), Rejection> {
        let mut names = names.into_iter();
        names.try_for_each(|name| self.check(rights, name))
    }

    /// Refuses a caller that lacks the right on any name with this prefix.
    pub(crate) fn check_prefix(&self, right: Right, prefix: &str) -> Result<(), Rejection> {
        if self.scopes_allow(|scope| scope.allows(right, prefix)) {
            return Ok(());
        }
        Err(missing_right(&[right]).into())
    }

    /// Refuses a caller that has none of these rights on any name.
    fn check_some(&self, rights: &[Right]) -> Result<(), Rejection> {
        if self.scopes_allow(|scope| rights.iter().any(|right| scope.gives(*right))) {
            return Ok(());
        }
        Err(missing_right(rights).into())
    }

    /// Returns the prefixes within `prefix` on which the caller has this right, in order. Refuses if there are none.
    pub(crate) fn narrow(&self, right: Right, prefix: &str) -> Result<Vec<String>, Rejection> {
        let Some(credential) = &self.credential else {
            return Ok(vec![prefix.to_owned()]);
        };
        let prefixes = scope::narrowed(&credential.scopes, right, prefix);
        if prefixes.is_empty() {
            return Err(missing_right(&[right]).into());
        }
        Ok(prefixes)
    }

    fn scopes_allow(&self, allows: impl Fn(&Scope) -> bool) -> bool {
        match &self.credential {
            None => true,
            Some(credential) => credential.scopes.iter().any(allows),
        }
    }
}

async fn end_of(lifetime: Option<&Lifetime>) {
    match lifetime {
        Some(lifetime) => lifetime.ended().await,
        None => std::future::pending().await,
    }
}

fn too_many(detail: String, retry_after: Duration) -> Rejection {
    let mut problem = Problem::new(ProblemType::TooManyRequests, detail);
    let millis = retry_after.as_micros().div_ceil(1_000);
    problem.retry_after = Some(u64::try_from(millis).unwrap_or(u64::MAX));
    problem.into()
}

/// Returns the problem of a caller that has none of these rights, one of which is required.
pub(crate) fn missing_right(rights: &[Right]) -> Problem {
    let words: Vec<_> = rights.iter().map(|right| right.as_str()).collect();
    let words = words.join("` or `");
    let detail =
        format!("the right `{words}` is missing: use a token with a scope that grants it here");
    Problem::new(ProblemType::Denied, detail)
}

/// What a route requires before the request is processed.
pub(crate) enum Requirement<'r> {
    /// No credential.
    Public,
    /// A valid credential.
    Credential,
    /// One of these rights on each of these names. If there are none, the right on some name: the body has the names.
    On(&'static [Right], &'r [Name]),
    /// A right on some of the names with a prefix: the caller does not see the others.
    Within(Right),
    /// A right on every name.
    OnEverything(Right),
}

impl Route {
    /// Returns what the route requires. Exhaustive, so that no route is forgotten; the OpenAPI document is made from it too.
    pub(crate) fn requirement(&self) -> Requirement<'_> {
        use std::slice::from_ref;
        match self {
            Self::Health
            | Self::Ready
            | Self::OpenApi
            | Self::Docs(_)
            | Self::Dashboard(_)
            | Self::LogIn
            | Self::LogOut => Requirement::Public,
            // Each of several requests is checked by its own route.
            Self::WhoAmI | Self::Requests => Requirement::Credential,
            Self::Metrics | Self::Totals => Requirement::OnEverything(Right::Read),
            Self::List(_) | Self::Events => Requirement::Within(Right::Read),
            Self::Claim => Requirement::Within(Right::Acquire),
            Self::Show(name) | Self::History(name) => {
                Requirement::On(&[Right::Read], from_ref(name))
            }
            Self::Acquire(name)
            | Self::Heartbeat(name, _)
            | Self::Update(name, _)
            | Self::Release(name, _)
            | Self::ReleaseByNonce(name)
            | Self::Pass(name)
            | Self::Put(name)
            | Self::Remove(name) => Requirement::On(&[Right::Acquire], from_ref(name)),
            Self::AcquireAll(names) => Requirement::On(&[Right::Acquire], names),
            Self::Heartbeats => Requirement::On(&[Right::Acquire], &[]),
            // Its parameters or its body decide which one.
            Self::Break(name) => Requirement::On(
                &[Right::Acquire, Right::Break, Right::Admin],
                from_ref(name),
            ),
        }
    }
}

impl Requirement<'_> {
    /// Refuses a caller that does not meet the requirement.
    pub(crate) fn check(&self, caller: &Caller) -> Result<(), Rejection> {
        match self {
            Self::Public | Self::Credential => Ok(()),
            Self::On(rights, []) => caller.check_some(rights),
            Self::On(rights, names) => caller.check_all(rights, *names),
            Self::Within(right) => caller.check_some(&[*right]),
            Self::OnEverything(right) => caller.check_prefix(*right, ""),
        }
    }

    /// Returns the scopes one of which is required. None of them: any credential; `None`: no credential.
    pub(crate) fn scopes(&self) -> Option<Vec<String>> {
        let (rights, names) = match self {
            Self::Public => return None,
            Self::Credential => (&[][..], ""),
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
