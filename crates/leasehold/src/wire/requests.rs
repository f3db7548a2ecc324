//! Many requests in one.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Many requests, each answered as if it had come by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests<'a> {
    /// Them, in any order: they are performed side by side.
    #[serde(borrow)]
    pub requests: Vec<Single<'a>>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Single<'a> {
    /// `GET`, `POST` and the like.
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    /// Path and parameters, as in a URL; a nonce is one of them.
    #[serde(borrow)]
    pub target: Cow<'a, str>,
    /// What would be sent with it.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub body: Cow<'a, str>,
}

/// What they were answered with, in the same order.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answers {
    /// Each for itself.
    pub answers: Vec<Answer>,
}

/// One answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The status that it would have had by itself.
    pub status: u16,
    /// The JSON that it would have had by itself.
    pub body: Box<RawValue>,
}
