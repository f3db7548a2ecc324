//! Why a request is not performed.

use std::borrow::Cow;

use leasehold::Error;
use leasehold::core::Invalid;
use leasehold::wire::{Problem, Trouble};

/// Why a request is not performed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The request is wrong.
    Error(Error),
    /// No such path, method, or too large a body: not an error of leases.
    Problem(Box<Problem>),
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
            Self::Method(_) => Trouble::MethodNotAllowed,
        }
    }

    pub(crate) fn no_such_route() -> Self {
        Self::new(
            Trouble::NotFound,
            "there is no such route; a `/` inside a name is written `%2F`",
        )
    }
}
