//! Why a request is refused.

use std::borrow::Cow;

use leasehold::Error;
use leasehold::core::{Invalid, Outcome};
use leasehold::engine::refusal;
use leasehold::wire::{Problem, ProblemType};

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// An error of the engine, or an invalid request.
    Error(Error),
    /// Another problem, such as an unknown path or a body that is too large.
    Problem(Box<Problem>),
    /// The lease belongs to another principal. The audit log already records this.
    Denied(String),
    /// The path takes only these methods.
    Method(&'static str),
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Invalid> for Rejection {
    fn from(invalid: Invalid) -> Self {
        Self::Error(invalid.into())
    }
}

impl From<Problem> for Rejection {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl Rejection {
    pub(crate) fn new(problem_type: ProblemType, detail: impl Into<Cow<'static, str>>) -> Self {
        Problem::new(problem_type, detail).into()
    }

    pub(crate) fn problem_type(&self) -> ProblemType {
        match self {
            Self::Error(error) => error.into(),
            Self::Problem(problem) => problem.problem_type,
            Self::Denied(_) => ProblemType::Denied,
            Self::Method(_) => ProblemType::MethodNotAllowed,
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
            Self::Denied(reason) => Problem::new(ProblemType::Denied, reason.clone()),
            Self::Method(allow) => Problem::new(
                ProblemType::MethodNotAllowed,
                format!("this route does not take the method: use {allow}"),
            ),
        })
    }

    pub(crate) fn no_such_route() -> Self {
        Self::new(
            ProblemType::NotFound,
            "no such route: check the path, and write `/` inside a name as `%2F`",
        )
    }
}
