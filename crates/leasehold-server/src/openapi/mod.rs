//! The OpenAPI document: `GET /openapi.json`, and the page at `/docs` that shows it.
//!
//! | file | contents |
//! |---|---|
//! | `operations.rs` | all routes, with their parameters and responses |
//! | `parameters.rs` | all parameters |
//! | `schemas/` | all JSON bodies, with examples |
//! | `build.rs` | builds the document from them |
//! | `page/` | the page that shows the document |
//!
//! Tests compare them with the routes, the handlers and the wire types.

mod build;
mod operations;
mod parameters;
mod schemas;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};

use crate::answer::{self, Answer};
use crate::rejection::Rejection;
use crate::service::{Call, Service};

/// Allows only resources of this service, and no inline scripts or styles.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// The document, built at the first request.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| build::document().to_string());

/// A file of the documentation page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Page,
    Script,
    Style,
}

impl Service {
    pub(crate) fn openapi(&self, call: &Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        Ok(answer::text("application/json", &**DOCUMENT))
    }

    pub(crate) fn docs(&self, call: &Call<'_>, part: Part) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        let (kind, text) = match part {
            Part::Page => ("text/html; charset=utf-8", include_str!("page/docs.html")),
            Part::Script => (
                "text/javascript; charset=utf-8",
                include_str!("page/docs.js"),
            ),
            Part::Style => ("text/css; charset=utf-8", include_str!("page/docs.css")),
        };
        let mut answer = answer::text(kind, text);
        answer.headers.push((CONTENT_SECURITY_POLICY, POLICY));
        Ok(answer)
    }
}
