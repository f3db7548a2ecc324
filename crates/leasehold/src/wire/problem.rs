//! Problem documents (RFC 9457), and the one place where errors meet HTTP statuses.

use std::borrow::Cow;
use std::time::Duration;

use leasehold_core::{Held, Name, Text, Time};
use serde::{Deserialize, Serialize};

use super::{millis, rfc3339};
use crate::Error;

/// What kind of problem: the stable `type` of its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Trouble {
    /// Somebody else has it.
    Held,
    /// The gate is shut: somebody passed it within its period.
    Throttled,
    /// This fence does not hold the lease (any more).
    Fenced,
    /// This fence's time has run out.
    Expired,
    /// The request is wrong.
    BadRequest,
    /// There is no such route, or no record under this name.
    NotFound,
    /// This route takes other methods.
    MethodNotAllowed,
    /// The request took too long to arrive.
    RequestTimeout,
    /// The request's body is too large.
    TooLarge,
    /// The caller asks for too much at once.
    TooManyRequests,
    /// Nobody knows who asks: there is no token, or a wrong one.
    Unauthorized,
    /// The right to do this is missing.
    Denied,
    /// It may have happened or not.
    Indeterminate,
    /// The store does not answer or refuses the service, or the service is closing. Nothing happened.
    StoreUnavailable,
    /// What is stored makes no sense.
    Corrupt,
}

impl Trouble {
    /// Every kind, in their order.
    pub const ALL: [Self; 15] = [
        Self::Held,
        Self::Throttled,
        Self::Fenced,
        Self::Expired,
        Self::BadRequest,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::TooLarge,
        Self::TooManyRequests,
        Self::Unauthorized,
        Self::Denied,
        Self::Indeterminate,
        Self::StoreUnavailable,
        Self::Corrupt,
    ];

    /// Its word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Throttled => "throttled",
            Self::Fenced => "fenced",
            Self::Expired => "expired",
            Self::BadRequest => "bad-request",
            Self::NotFound => "not-found",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::RequestTimeout => "request-timeout",
            Self::TooLarge => "too-large",
            Self::TooManyRequests => "too-many-requests",
            Self::Unauthorized => "unauthorized",
            Self::Denied => "denied",
            Self::Indeterminate => "indeterminate",
            Self::StoreUnavailable => "store-unavailable",
            Self::Corrupt => "corrupt",
        }
    }

    /// Its HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Denied => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::Held | Self::Fenced | Self::Expired => 409,
            Self::TooLarge => 413,
            Self::Throttled | Self::TooManyRequests => 429,
            Self::Corrupt => 500,
            Self::StoreUnavailable | Self::Indeterminate => 503,
        }
    }

    /// The same in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Held => "Somebody else holds it",
            Self::Throttled => "The gate is shut",
            Self::Fenced => "Fenced off",
            Self::Expired => "Expired",
            Self::BadRequest => "Bad request",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::RequestTimeout => "The request took too long to arrive",
            Self::TooLarge => "Too large",
            Self::TooManyRequests => "Too many requests",
            Self::Unauthorized => "Unauthorized",
            Self::Denied => "Denied",
            Self::Indeterminate => "It may have happened or not",
            Self::StoreUnavailable => "The store is unavailable",
            Self::Corrupt => "Corrupt",
        }
    }
}

/// A problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What kind of problem; stable.
    #[serde(rename = "type")]
    pub trouble: Trouble,
    /// The kind in a few words, for people.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong in this case and what would be right, for people.
    pub detail: Cow<'static, str>,
    /// The name that is meant: nothing is known of it, or it is the one of several that somebody else has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// Who holds it, where somebody does; empty for a waiter that is next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Text>,
    /// Since when it is held.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub since: Option<Time>,
    /// When it is over if nobody renews it, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(trouble: Trouble, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            trouble,
            title: trouble.title().into(),
            status: trouble.status(),
            detail: detail.into(),
            name: None,
            owner: None,
            since: None,
            retry_after: None,
        }
    }

    /// Nothing is known of this name.
    pub fn unknown(name: &Name) -> Self {
        Self::new(Trouble::NotFound, "nothing is known of this name").about(name)
    }

    /// The gate is shut.
    pub fn throttled(held: &Held) -> Self {
        let shut = format!("the gate is shut for another {:?}", held.retry_after);
        Self::new(Trouble::Throttled, shut).held(held)
    }

    /// The same about one of several names.
    pub fn about(self, name: &Name) -> Self {
        let name = Some(name.as_str().into());
        Self { name, ..self }
    }

    fn held(self, held: &Held) -> Self {
        Self {
            owner: Some(held.owner.clone()),
            since: Some(held.since),
            // Rounded up: whoever comes back exactly then must not come too early.
            retry_after: Some(millis(held.retry_after + Duration::from_micros(999))),
            ..self
        }
    }
}

impl From<&Error> for Trouble {
    fn from(error: &Error) -> Self {
        match error {
            Error::Held(_) => Self::Held,
            Error::Fenced => Self::Fenced,
            Error::Expired => Self::Expired,
            Error::Invalid(_) => Self::BadRequest,
            // The store refuses the service, which only the operator can fix. It is not the caller who lacks a right.
            Error::Denied(_) | Error::Unavailable(_) => Self::StoreUnavailable,
            Error::Indeterminate(_) => Self::Indeterminate,
            Error::Corrupt(_) => Self::Corrupt,
        }
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let problem = Self::new(error.into(), error.to_string());
        match error {
            Error::Held(held) => problem.held(held),
            _ => problem,
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let detail = problem.detail.into_owned();
        match problem.trouble {
            Trouble::Held | Trouble::Throttled => Self::Held(Held {
                owner: problem.owner.unwrap_or_default(),
                since: problem.since.unwrap_or_default(),
                retry_after: Duration::from_millis(problem.retry_after.unwrap_or_default()),
            }),
            Trouble::Fenced => Self::Fenced,
            Trouble::Expired => Self::Expired,
            Trouble::BadRequest
            | Trouble::NotFound
            | Trouble::MethodNotAllowed
            | Trouble::TooLarge => Self::invalid(detail),
            Trouble::Unauthorized | Trouble::Denied => Self::Denied(detail),
            Trouble::StoreUnavailable | Trouble::RequestTimeout | Trouble::TooManyRequests => {
                Self::Unavailable(detail)
            }
            Trouble::Indeterminate => Self::Indeterminate(detail),
            Trouble::Corrupt => Self::Corrupt(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_wire() {
        let held = Held {
            owner: "host:1".into(),
            since: Time::from_micros(1_700_000_000_123_456),
            retry_after: Duration::from_millis(1_500),
        };
        for error in [
            Error::Held(held),
            Error::Fenced,
            Error::Expired,
            Error::invalid("no"),
            Error::Unavailable("gone".into()),
            Error::Indeterminate("perhaps".into()),
            Error::Corrupt("broken".into()),
        ] {
            let json = serde_json::to_string(&Problem::from(&error)).unwrap();
            let back: Problem = serde_json::from_str(&json).unwrap();
            assert_eq!(Error::from(back), error, "{json}");
        }
    }

    #[test]
    fn only_a_missing_right_of_the_caller_is_denied() {
        let setup = Error::Denied("run `leasehold init`".into());
        let problem = Problem::from(&setup);
        assert_eq!(
            (problem.status, &*problem.detail),
            (503, "run `leasehold init`")
        );
        let right = Problem::new(Trouble::Denied, "not yours");
        assert_eq!(Error::from(right), Error::Denied("not yours".into()));
    }

    #[test]
    fn every_kind_has_its_word_and_place() {
        for (place, trouble) in Trouble::ALL.into_iter().enumerate() {
            assert_eq!(trouble as usize, place);
            let word = serde_json::to_value(trouble).unwrap();
            assert_eq!(word, trouble.as_str());
        }
    }

    #[test]
    fn a_held_problem_reads_as_documented() {
        let held = Held {
            owner: "host:1".into(),
            since: Time::from_micros(1_700_000_000_000_000),
            retry_after: Duration::from_micros(1_500_001),
        };
        let json = serde_json::to_value(Problem::from(&Error::Held(held))).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "type": "held",
                "title": "Somebody else holds it",
                "status": 409,
                "detail": "held by host:1 for another 1.500001s",
                "owner": "host:1",
                "since": "2023-11-14T22:13:20.000000Z",
                "retryAfter": 1501,
            })
        );
    }
}
