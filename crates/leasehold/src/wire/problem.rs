//! Problem documents (RFC 9457), and the mapping between errors and HTTP statuses.

use std::borrow::Cow;
use std::time::Duration;

use leasehold_core::{Held, Name, Text, Time};
use serde::{Deserialize, Serialize};

use super::{millis, rfc3339};
use crate::Error;

/// The kind of a problem: the stable `type` of its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProblemType {
    /// Another client holds the lease.
    Held,
    /// The gate is shut: another call passed within the period.
    Throttled,
    /// The fence does not hold the lease, or does so no longer.
    Fenced,
    /// The lease was not renewed in time.
    Expired,
    /// The request is invalid.
    BadRequest,
    /// The route or the record does not exist.
    NotFound,
    /// The route does not support this method.
    MethodNotAllowed,
    /// The request was not received in time.
    RequestTimeout,
    /// The body of the request is too large.
    TooLarge,
    /// The client exceeds a limit on its requests.
    TooManyRequests,
    /// The token is missing or invalid.
    Unauthorized,
    /// The caller lacks the right for this operation.
    Denied,
    /// It is unknown whether the operation was performed.
    Indeterminate,
    /// The store is unreachable or refuses the service, or the service is shutting down. Nothing was written.
    StoreUnavailable,
    /// The stored record is corrupt.
    Corrupt,
}

impl ProblemType {
    /// All kinds, in their order.
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

    /// Returns the `type` of the document.
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

    /// Returns the HTTP status.
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

    /// Returns the title, for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Held => "The lease is held",
            Self::Throttled => "The gate is shut",
            Self::Fenced => "Fenced",
            Self::Expired => "Expired",
            Self::BadRequest => "Bad request",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::RequestTimeout => "The request was not received in time",
            Self::TooLarge => "Too large",
            Self::TooManyRequests => "Too many requests",
            Self::Unauthorized => "Unauthorized",
            Self::Denied => "Denied",
            Self::Indeterminate => "The outcome is unknown",
            Self::StoreUnavailable => "The store is unavailable",
            Self::Corrupt => "Corrupt",
        }
    }
}

/// A problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The kind of the problem, which is stable.
    #[serde(rename = "type")]
    pub problem_type: ProblemType,
    /// The title of the kind, for people.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// The error message, for people.
    pub detail: Cow<'static, str>,
    /// The name that was not found, or the one of several names that is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// The holder's owner; empty for a waiter's reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Text>,
    /// When the holder acquired the lease.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rfc3339::option"
    )]
    pub since: Option<Time>,
    /// How long until the lease can be granted unless it is renewed, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl Problem {
    /// Creates a problem of this kind.
    pub fn new(problem_type: ProblemType, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            problem_type,
            title: problem_type.title().into(),
            status: problem_type.status(),
            detail: detail.into(),
            name: None,
            owner: None,
            since: None,
            retry_after: None,
        }
    }

    /// Creates the problem that there is no record of this name.
    pub fn unknown(name: &Name) -> Self {
        Self::new(ProblemType::NotFound, "there is no record of this name").about(name)
    }

    /// Creates the problem that a gate is shut.
    pub fn throttled(held: &Held) -> Self {
        let detail = format!("the gate is shut for another {:?}", held.retry_after);
        Self::new(ProblemType::Throttled, detail).with_holder(held)
    }

    /// Adds the name that the problem concerns.
    pub fn about(self, name: &Name) -> Self {
        let name = Some(name.as_str().into());
        Self { name, ..self }
    }

    fn with_holder(self, held: &Held) -> Self {
        Self {
            owner: Some(held.owner.clone()),
            since: Some(held.since),
            // Rounded up, so that a retry at exactly this time is not too early.
            retry_after: Some(millis(held.retry_after + Duration::from_micros(999))),
            ..self
        }
    }
}

impl From<&Error> for ProblemType {
    fn from(error: &Error) -> Self {
        match error {
            Error::Held(_) => Self::Held,
            Error::Fenced => Self::Fenced,
            Error::Expired => Self::Expired,
            Error::Invalid(_) => Self::BadRequest,
            // The store refuses the service, which only the operator can fix. The caller does not lack a right.
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
            Error::Held(held) => problem.with_holder(held),
            _ => problem,
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        let detail = problem.detail.into_owned();
        match problem.problem_type {
            ProblemType::Held | ProblemType::Throttled => Self::Held(Held {
                owner: problem.owner.unwrap_or_default(),
                since: problem.since.unwrap_or_default(),
                retry_after: Duration::from_millis(problem.retry_after.unwrap_or_default()),
            }),
            ProblemType::Fenced => Self::Fenced,
            ProblemType::Expired => Self::Expired,
            ProblemType::BadRequest
            | ProblemType::NotFound
            | ProblemType::MethodNotAllowed
            | ProblemType::TooLarge => Self::invalid(detail),
            ProblemType::Unauthorized | ProblemType::Denied => Self::Denied(detail),
            ProblemType::StoreUnavailable
            | ProblemType::RequestTimeout
            | ProblemType::TooManyRequests => Self::Unavailable(detail),
            ProblemType::Indeterminate => Self::Indeterminate(detail),
            ProblemType::Corrupt => Self::Corrupt(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_survive_a_round_trip() {
        let held = Held {
            owner: "host:1".into(),
            since: Time::from_micros(1_700_000_000_123_456),
            retry_after: Duration::from_millis(1_500),
        };
        for error in [
            Error::Held(held),
            Error::Fenced,
            Error::Expired,
            Error::invalid("invalid"),
            Error::Unavailable("unreachable".into()),
            Error::Indeterminate("no response".into()),
            Error::Corrupt("not a record".into()),
        ] {
            let json = serde_json::to_string(&Problem::from(&error)).unwrap();
            let parsed: Problem = serde_json::from_str(&json).unwrap();
            assert_eq!(Error::from(parsed), error, "{json}");
        }
    }

    #[test]
    fn missing_right_of_the_service_is_not_the_callers() {
        let missing_table = Error::Denied("run `leasehold init`".into());
        let problem = Problem::from(&missing_table);
        assert_eq!(
            (problem.status, &*problem.detail),
            (503, "run `leasehold init`")
        );
        let missing_right = Problem::new(ProblemType::Denied, "not yours");
        assert_eq!(
            Error::from(missing_right),
            Error::Denied("not yours".into())
        );
    }

    #[test]
    fn every_kind_is_listed_with_its_json_name() {
        for (index, problem_type) in ProblemType::ALL.into_iter().enumerate() {
            assert_eq!(problem_type as usize, index);
            let name = serde_json::to_value(problem_type).unwrap();
            assert_eq!(name, problem_type.as_str());
        }
    }

    #[test]
    fn problem_of_a_held_lease_has_the_documented_json() {
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
                "title": "The lease is held",
                "status": 409,
                "detail": "held by host:1 for another 1.500001s",
                "owner": "host:1",
                "since": "2023-11-14T22:13:20.000000Z",
                "retryAfter": 1501,
            })
        );
    }
}
