//! Why a request is refused.

use std::borrow::Cow;

use leasehold::Error;
use leasehold::core::{Invalid, Outcome};
use leasehold::engine::refusal;
use leasehold::wire::{Problem, Trouble};

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// An error of the engine, or an invalid request.
    Error(Error),
    /// Another problem, such as an unknown path or a body that is too large.
    Problem(Box<Problem>),
    /// The lease belongs to another principal. The audit log already records this.
    Denied(String),
    /// The path takes only these methods.
    Method(&'static str),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Self::Error(invalid.into())
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl Refused {
    pub(crate) fn new(problem_type: Trouble, detail: impl Into<Cow<'static, str>>) -> Self {
        Problem::new(problem_type, detail).into()
    }

    pub(crate) fn problem_type(&self) -> Trouble {
        match self {
            Self::Error(error) => error.into(),
            Self::Problem(problem) => problem.trouble,
            Self::Denied(_) => Trouble::Denied,
            Self::Method(_) => Trouble::MethodNotAllowed,
        }
    }

    /// Converts an outcome of the core. Only here does `Denied` mean that the caller lacks a right. If a store denies the
    /// service something, callers get `StoreUnavailable`.
    pub(crate) fn outcome(outcome: Outcome) -> Self {
        match refusal(outcome) {
            Error::Denied(reason) => Self::Denied(reason),
            error => Self::Error(error),
        }
    }

    /// Returns its problem document.
    pub(crate) fn document(&self) -> Cow<'_, Problem> {
        Cow::Owned(match self {
            Self::Problem(problem) => return Cow::Borrowed(problem),
            Self::Error(error) => error.into(),
            Self::Denied(reason) => Problem::new(Trouble::Denied, reason.clone()),
            Self::Method(allow) => Problem::new(
                Trouble::MethodNotAllowed,
                format!("this route does not take the method: use {allow}"),
            ),
        })
    }

    pub(crate) fn no_such_route() -> Self {
        Self::new(
            Trouble::NotFound,
            "no such route: check the path, and write `/` inside a name as `%2F`",
        )
    }
}
