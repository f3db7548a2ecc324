//! What the service takes and answers, for programs and for people: `GET /openapi.json`, and a page at `/docs`.
//!
//! | file | what it has |
//! |---|---|
//! | `operations.rs` | every route, with its parameters and what it answers |
//! | `parameters.rs` | every parameter |
//! | `schemas/` | every body that is JSON, with an example |
//! | `build.rs` | the document made of them |
//! | `page/` | the page that shows it |
//!
//! Tests compare all of them with what the routes, the handlers and the wire types do.

mod build;
mod operations;
mod parameters;
mod schemas;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};

use crate::answer::{self, Answer};
use crate::refused::Refused;
use crate::service::{Call, Service};

/// Only what comes from here, and no script or style within the page.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// The document, made when it is first asked for.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| build::document().to_string());

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Page,
    Script,
    Style,
}

impl Service {
    pub(crate) fn openapi(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        Ok(answer::text("application/json", &**DOCUMENT))
    }

    pub(crate) fn docs(&self, call: &Call<'_>, part: Part) -> Result<Answer, Refused> {
        call.query.only(&[])?;
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
