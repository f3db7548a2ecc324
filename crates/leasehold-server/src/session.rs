//! For browsers: a session in a cookie that no script can read, and who is signed in.

use hyper::HeaderMap;
use hyper::header::{COOKIE, HeaderValue, SET_COOKIE};
use serde::{Deserialize, Serialize};

use crate::access::Scope;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::body;
use crate::refused::Refused;
use crate::service::{Call, Service};

/// What the cookie is called, because every port of a host gets it…
const NAME: &str = "leasehold-session";
/// …and with TLS: browsers send and accept it over TLS only, and from and for this host only.
const TLS_NAME: &str = "__Host-leasehold-session";
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
    /// Opens a session, which ends with the token, and gives the browser its name.
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
        caller.count(&self.config.limits)?;
        let cookie = self.cookie(&access.open_session(&caller)?, "");
        Ok(with_cookie(answer::ok(&Myself::of(&caller)), cookie))
    }

    /// Ends a session, and makes the browser forget the cookie.
    pub(crate) fn log_out(&self, call: &Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        if let (Some(access), Some(session)) = (&self.config.access, self.session(call.headers)) {
            access.close_session(session);
        }
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
    fn cookie(&self, session: &str, more: &str) -> String {
        let name = self.cookie_name();
        let secure = if self.config.tls.is_some() {
            "; Secure"
        } else {
            ""
        };
        format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict{secure}{more}")
    }

    fn cookie_name(&self) -> &'static str {
        match self.config.tls {
            Some(_) => TLS_NAME,
            None => NAME,
        }
    }

    /// The session that the cookie names, if there is one.
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
