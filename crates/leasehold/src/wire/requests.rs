//! Batches of requests.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A batch of requests, each answered as if it had been sent separately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests<'a> {
    /// The requests. They are performed concurrently, in no particular order.
    #[serde(borrow)]
    pub requests: Vec<SingleRequest<'a>>,
}

/// One request of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SingleRequest<'a> {
    /// The HTTP method.
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    /// The path and the query of the URL. A nonce is passed as a query parameter.
    #[serde(borrow)]
    pub target: Cow<'a, str>,
    /// The body.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub body: Cow<'a, str>,
}

/// The responses to a batch of requests.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answers {
    /// The responses, in the order of the requests.
    pub answers: Vec<Answer>,
}

/// One response of a batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The JSON body.
    pub body: Box<RawValue>,
}
