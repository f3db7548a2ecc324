//! Rights and scopes of tokens and certificates.

use std::fmt;
use std::str::FromStr;

use leasehold::Error;

/// A right on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Show, list and watch them.
    Read,
    /// Acquire, renew and release leases, put and remove items, pass gates.
    Acquire,
    /// Break another holder's lease. The name stays reserved until the lease would have expired.
    Break,
    /// All other rights, and breaking another holder's lease immediately.
    Admin,
}

impl Right {
    const ALL: [Self; 4] = [Self::Read, Self::Acquire, Self::Break, Self::Admin];

    /// Returns its word in a scope.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Acquire => "acquire",
            Self::Break => "break",
            Self::Admin => "admin",
        }
    }
}

/// A right on all locks, items and gates with a prefix. Written `RIGHT:PREFIX`.
///
/// ```
/// use leasehold_server::access::Scope;
///
/// let scope: Scope = "acquire:jobs/".parse()?;
/// assert_eq!(scope.to_string(), "acquire:jobs/");
/// let everything: Scope = "admin:".parse()?;
/// assert!("jobs/".parse::<Scope>().is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    right: Right,
    prefix: String,
}

impl Scope {
    /// Whether it grants this right on this name.
    pub(crate) fn allows(&self, right: Right, name: &str) -> bool {
        self.gives(right) && name.starts_with(&self.prefix)
    }

    /// Whether it grants this right on some names.
    pub(crate) fn gives(&self, right: Right) -> bool {
        self.right == right || self.right == Right::Admin
    }
}

/// Returns the prefixes within `prefix` on which these scopes grant a right: in order, without overlap.
pub(crate) fn narrowed(scopes: &[Scope], right: Right, prefix: &str) -> Vec<String> {
    let granting = scopes.iter().filter(|scope| scope.gives(right));
    let prefixes = granting.filter_map(|scope| {
        if prefix.starts_with(&scope.prefix) {
            Some(prefix)
        } else {
            scope.prefix.strip_prefix(prefix).map(|_| &*scope.prefix)
        }
    });
    let mut prefixes: Vec<_> = prefixes.map(str::to_owned).collect();
    prefixes.sort();
    // Sorted, a prefix comes directly before all that start with it.
    prefixes.dedup_by(|later, earlier| later.starts_with(&**earlier));
    prefixes
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once(':').and_then(|(word, prefix)| {
            let right = Right::ALL
                .into_iter()
                .find(|right| right.as_str() == word)?;
            Some((right, prefix.to_owned()))
        });
        let (right, prefix) = parts.ok_or_else(|| {
            Error::invalid(format!(
                "invalid scope `{}`: write `read:PREFIX`, `acquire:PREFIX`, `break:PREFIX` or `admin:PREFIX` \
                 (an empty prefix means every name)",
                text.escape_debug()
            ))
        })?;
        Ok(Self { right, prefix })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.right.as_str(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(texts: &[&str]) -> Vec<Scope> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn scope_allows_its_right_on_its_prefix_and_admin_allows_all() {
        let scopes = scopes(&["acquire:jobs/", "admin:mine/"]);
        let may = |right, name| scopes.iter().any(|scope| scope.allows(right, name));
        assert!(may(Right::Acquire, "jobs/a"));
        assert!(!may(Right::Read, "jobs/a"));
        assert!(!may(Right::Acquire, "jobs"));
        for right in Right::ALL {
            assert!(may(right, "mine/a"));
            assert!(!may(right, "other"));
        }
    }

    #[test]
    fn prefix_is_narrowed_to_its_allowed_parts() {
        let scopes = scopes(&["read:b/", "read:a/x", "admin:a/", "acquire:"]);
        let narrowed = |prefix| narrowed(&scopes, Right::Read, prefix);
        assert_eq!(narrowed(""), ["a/", "b/"]);
        assert_eq!(narrowed("a"), ["a/"]);
        assert_eq!(narrowed("a/xyz"), ["a/xyz"]);
        assert!(narrowed("c").is_empty());
    }

    #[test]
    fn error_of_an_invalid_scope_shows_the_syntax() {
        for bad in ["", "read", "write:x", "Read:x", "jobs/"] {
            let error = bad.parse::<Scope>().unwrap_err().to_string();
            assert!(error.contains("`acquire:PREFIX`"), "{error}");
        }
    }
}
