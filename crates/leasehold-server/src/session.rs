//! Sessions of browsers, in a cookie that scripts cannot read.

use hyper::HeaderMap;
use hyper::header::{COOKIE, HeaderValue, SET_COOKIE};
use serde::{Deserialize, Serialize};

use crate::access::Scope;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::body;
use crate::rejection::Rejection;
use crate::service::{Call, Service};

/// The name of the cookie without TLS. Specific to Leasehold, because browsers send a cookie to all ports of a host.
const COOKIE_NAME: &str = "leasehold-session";
/// The name of the cookie with TLS. Because of its prefix, browsers accept and send it only over TLS and only for this host.
const TLS_COOKIE_NAME: &str = "__Host-leasehold-session";
/// The maximum size of a body with a token.
const LOGIN_BYTES: usize = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// The caller and its rights.
#[derive(Serialize)]
struct Identity {
    /// `None` where access control is off.
    principal: Option<leasehold::core::Text>,
    scopes: Vec<String>,
}

impl Identity {
    fn of(caller: &Caller) -> Self {
        let scopes = match caller.credential.as_deref() {
            Some(credential) => credential.scopes.iter().map(Scope::to_string).collect(),
            None => vec!["admin:".to_owned()],
        };
        Self {
            principal: caller.principal(),
            scopes,
        }
    }
}

impl Service {
    /// Opens a session and sets its cookie. The session ends at the latest with the token.
    pub(crate) async fn log_in(&self, call: Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        let text = call
            .body
            .read_text(LOGIN_BYTES, self.config.body_timeout)
            .await?;
        let Login { token } = body::parse_json(&text)?;
        let Some(access) = &self.config.access else {
            return Ok(answer::ok(&Identity::of(&call.caller)));
        };
        let caller = access.sign_in(&token, call.caller.address.clone())?;
        caller.count(&self.config.limits)?;
        let cookie = self.cookie(&access.open_session(&caller)?, "");
        Ok(with_cookie(answer::ok(&Identity::of(&caller)), cookie))
    }

    /// Ends a session and deletes its cookie.
    pub(crate) fn log_out(&self, call: &Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        if let (Some(access), Some(session)) = (&self.config.access, self.session(call.headers)) {
            access.close_session(session);
        }
        let cookie = self.cookie("", "; Max-Age=0");
        let signed_out = Identity {
            principal: None,
            scopes: Vec::new(),
        };
        Ok(with_cookie(answer::ok(&signed_out), cookie))
    }

    /// Returns the caller and its rights, so that a page can hide what would be refused.
    pub(crate) fn who_am_i(&self, call: &Call<'_>) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        Ok(answer::ok(&Identity::of(&call.caller)))
    }

    /// Returns a cookie that browsers send only from this service's pages, and that scripts cannot read.
    fn cookie(&self, session: &str, attributes: &str) -> String {
        let name = self.cookie_name();
        let secure = if self.config.tls.is_some() {
            "; Secure"
        } else {
            ""
        };
        format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict{secure}{attributes}")
    }

    fn cookie_name(&self) -> &'static str {
        match self.config.tls {
            Some(_) => TLS_COOKIE_NAME,
            None => COOKIE_NAME,
        }
    }

    /// Returns the session in the cookie, if there is one.
    pub(crate) fn session<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let name = self.cookie_name();
        let cookies = headers.get_all(COOKIE).into_iter();
        let cookies = cookies.filter_map(|line| line.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';'));
        pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix('='))
    }
}

fn with_cookie(mut answer: Answer, cookie: String) -> Answer {
    if let Ok(mut value) = HeaderValue::try_from(cookie) {
        value.set_sensitive(true);
        answer.headers.push((SET_COOKIE, value));
    }
    answer
}
