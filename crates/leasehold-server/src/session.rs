//! For browsers: a token as a cookie that no script can read, and who is signed in.

use hyper::HeaderMap;
use hyper::header::{COOKIE, HeaderValue, SET_COOKIE};
use serde::{Deserialize, Serialize};

use crate::access::Scope;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::body;
use crate::refused::Refused;
use crate::service::{Call, Service};

/// What the cookie is called.
const NAME: &str = "leasehold-token";
/// Bytes of a body with a token.
const LOGIN_BYTES: usize = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// Who asks, and what they may do.
#[derive(Serialize)]
struct Myself {
    /// `None` where access control is off.
    principal: Option<leasehold::core::Text>,
    scopes: Vec<String>,
}

impl Myself {
    fn of(caller: &Caller) -> Self {
        let scopes = match caller.credential.as_deref() {
            Some(known) => known.scopes.iter().map(Scope::to_string).collect(),
            None => vec!["admin:".to_owned()],
        };
        Self {
            principal: caller.principal(),
            scopes,
        }
    }
}

impl Service {
    /// Turns a token into a cookie. It is the token itself, so that every service on the same file knows it, and that it
    /// ends when the token does.
    pub(crate) async fn log_in(&self, call: Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        let text = call
            .body
            .read_text(LOGIN_BYTES, self.config.body_timeout)
            .await?;
        let Login { token } = body::parse_json(&text)?;
        let Some(access) = &self.config.access else {
            return Ok(answer::ok(&Myself::of(&call.caller)));
        };
        let caller = access.sign_in(&token, call.caller.address.clone())?;
        let cookie = self.cookie(&token, "");
        Ok(with_cookie(answer::ok(&Myself::of(&caller)), cookie))
    }

    /// Makes a browser forget the cookie.
    pub(crate) fn log_out(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        let cookie = self.cookie("", "; Max-Age=0");
        let nobody = Myself {
            principal: None,
            scopes: Vec::new(),
        };
        Ok(with_cookie(answer::ok(&nobody), cookie))
    }

    /// Who asks, and what they may do, so that a page can leave out what would be refused.
    pub(crate) fn who_am_i(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        Ok(answer::ok(&Myself::of(&call.caller)))
    }

    /// Sent by the browser to nobody but this service, from no page but its own, and shown to no script.
    fn cookie(&self, token: &str, more: &str) -> String {
        let secure = if self.config.tls.is_some() {
            "; Secure"
        } else {
            ""
        };
        format!("{NAME}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{more}")
    }
}

fn with_cookie(mut answer: Answer, cookie: String) -> Answer {
    // A token that was let in has only characters that a header may have.
    if let Ok(mut value) = HeaderValue::try_from(cookie) {
        value.set_sensitive(true);
        answer.headers.push((SET_COOKIE, value));
    }
    answer
}

/// The token of the cookie, if there is one.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter();
    let cookies = cookies.filter_map(|line| line.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';'));
    pairs.find_map(|pair| pair.trim_ascii().strip_prefix(NAME)?.strip_prefix('='))
}
