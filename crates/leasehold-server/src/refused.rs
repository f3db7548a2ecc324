//! Why a request is not performed.

use std::borrow::Cow;

use leasehold::Error;
use leasehold::core::{Invalid, Outcome};
use leasehold::engine::refusal;
use leasehold::wire::{Problem, Trouble};

/// Why a request is not performed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The request is wrong.
    Error(Error),
    /// No such path, method, or too large a body: not an error of leases.
    Problem(Box<Problem>),
    /// The lease is another principal's. The audit log has it already.
    Denied(String),
    /// This path takes other methods: these.
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
    pub(crate) fn new(trouble: Trouble, detail: impl Into<Cow<'static, str>>) -> Self {
        Problem::new(trouble, detail).into()
    }

    pub(crate) fn trouble(&self) -> Trouble {
        match self {
            Self::Error(error) => error.into(),
            Self::Problem(problem) => problem.trouble,
            Self::Denied(_) => Trouble::Denied,
            Self::Method(_) => Trouble::MethodNotAllowed,
        }
    }

    /// What the core refused. Only here is a right what is missing: where a store is denied something, that is the
    /// operator's matter, and the store is unavailable to callers.
    pub(crate) fn outcome(outcome: Outcome) -> Self {
        match refusal(outcome) {
            Error::Denied(why) => Self::Denied(why),
            error => Self::Error(error),
        }
    }

    /// Its document.
    pub(crate) fn document(&self) -> Cow<'_, Problem> {
        Cow::Owned(match self {
            Self::Problem(problem) => return Cow::Borrowed(problem),
            Self::Error(error) => error.into(),
            Self::Denied(why) => Problem::new(Trouble::Denied, why.clone()),
            Self::Method(allow) => Problem::new(
                Trouble::MethodNotAllowed,
                format!("this route takes {allow}"),
            ),
        })
    }

    pub(crate) fn no_such_route() -> Self {
        Self::new(
            Trouble::NotFound,
            "there is no such route; a `/` inside a name is written `%2F`",
        )
    }
}
