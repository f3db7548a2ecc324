//! Browser sessions: random names that replace a token until they end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use leasehold::Result;

use super::lifetime::Lifetime;
use super::token::{self, TokenHash};

/// How long a session lasts: a working day.
const LIFETIME: SignedDuration = SignedDuration::from_hours(8);
/// The maximum number of sessions of one token. A further login ends the oldest.
const MAX_SESSIONS: usize = 32;
/// Random characters of a session's name: 256 bits, like those of a token.
const NAME_CHARS: usize = 43;

/// The sessions of one token. They are kept in memory, so a restart of the service ends them too.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: Mutex<VecDeque<Session>>,
}

#[derive(Debug)]
struct Session {
    /// The hash of its name.
    hash: TokenHash,
    lifetime: Arc<Lifetime>,
}

impl Sessions {
    /// Opens a session and returns its name, which is a secret.
    pub(super) fn open(&self) -> Result<String> {
        let name = token::random(NAME_CHARS)?;
        let session = Session {
            hash: TokenHash::of(&name),
            lifetime: Arc::new(Lifetime::new(Some(Timestamp::now() + LIFETIME))),
        };
        let mut open = self.lock();
        open.retain(|session| !session.lifetime.has_ended());
        while open.len() >= MAX_SESSIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.lifetime.end();
        }
        open.push_back(session);
        Ok(name)
    }

    /// Returns the lifetime of the session with this name, unless it has ended.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Lifetime>> {
        let hash = TokenHash::of(name);
        let open = self.lock();
        let found = open.iter().find(|session| session.hash.equals(&hash))?;
        (!found.lifetime.has_ended()).then(|| found.lifetime.clone())
    }

    /// Ends the session with this name.
    pub(super) fn close(&self, name: &str) {
        let hash = TokenHash::of(name);
        self.lock().retain(|session| {
            let is_other = !session.hash.equals(&hash);
            if !is_other {
                session.lifetime.end();
            }
            is_other
        });
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_lasts_until_it_is_closed() {
        let sessions = Sessions::default();
        let (one, other) = (sessions.open().unwrap(), sessions.open().unwrap());
        assert_ne!(one, other);
        let lifetime = sessions.find(&one).unwrap();
        let until = lifetime.until().unwrap();
        assert!(until > Timestamp::now() && until <= Timestamp::now() + LIFETIME);
        assert!(sessions.find(&one[1..]).is_none());
        sessions.close(&one);
        assert!(lifetime.has_ended() && sessions.find(&one).is_none());
        assert!(sessions.find(&other).is_some());
    }

    #[test]
    fn session_beyond_the_limit_ends_the_oldest() {
        let sessions = Sessions::default();
        let names: Vec<_> = (0..=MAX_SESSIONS)
            .map(|_| sessions.open().unwrap())
            .collect();
        assert!(sessions.find(&names[0]).is_none());
        for name in &names[1..] {
            assert!(sessions.find(name).is_some());
        }
    }
}
