//! The answers that nearly all requests get, written as JSON without a detour: the same bytes that `serde_json` writes, for
//! less than half of the instructions.

use leasehold_core::Time;

use super::{EndedAs, GrantedAs, Lease, Released, rfc3339};

/// What a lease takes as JSON without its body, unless its state and the owner before it are called something long.
const LEASE_BYTES: usize = 384;

impl Lease {
    /// As JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let Self {
            acquire_time,
            expire_time,
            fence,
            body,
            body_bytes,
            valid_for,
            ttl,
            granted,
            state,
            state_since,
            last,
        } = self;
        let mut json = Vec::with_capacity(LEASE_BYTES + body.len());
        let to = &mut json;
        time("{\"acquireTime\":", *acquire_time, to);
        time(",\"expireTime\":", *expire_time, to);
        number(",\"fence\":", fence.get(), to);
        text(",\"body\":", body, to);
        if let Some(bytes) = body_bytes {
            number(",\"bodyBytes\":", *bytes, to);
        }
        number(",\"validFor\":", *valid_for, to);
        number(",\"ttl\":", *ttl, to);
        if let Some(granted) = granted {
            let word = match granted {
                GrantedAs::Fresh => "fresh",
                GrantedAs::Again => "again",
                GrantedAs::Kept => "kept",
            };
            text(",\"granted\":", word, to);
        }
        if let Some(state) = state {
            text(",\"state\":", state, to);
        }
        if let Some(since) = state_since {
            time(",\"stateSince\":", *since, to);
        }
        if let Some(last) = last {
            number(",\"last\":{\"fence\":", last.fence.get(), to);
            text(",\"owner\":", &last.owner, to);
            let how = match last.how {
                EndedAs::Released => "released",
                EndedAs::Completed => "completed",
                EndedAs::Expired => "expired",
                EndedAs::Broken => "broken",
            };
            text(",\"how\":", how, to);
            time(",\"at\":", last.at, to);
            to.push(b'}');
        }
        to.push(b'}');
        json
    }
}

impl Released {
    /// As JSON.
    pub fn to_json(self) -> &'static [u8] {
        match self.released {
            true => b"{\"released\":true}",
            false => b"{\"released\":false}",
        }
    }
}

fn number(key: &str, number: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(key.as_bytes());
    to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn time(key: &str, time: Time, to: &mut Vec<u8>) {
    to.extend_from_slice(key.as_bytes());
    to.push(b'"');
    to.extend_from_slice(&rfc3339::written(time));
    to.push(b'"');
}

fn text(key: &str, text: &str, to: &mut Vec<u8>) {
    to.extend_from_slice(key.as_bytes());
    let odd = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // Without leaving early: nearly none is odd, and so many are looked at at once.
    if !text.bytes().fold(false, |any, byte| any | odd(byte)) {
        to.push(b'"');
        to.extend_from_slice(text.as_bytes());
        to.push(b'"');
    } else {
        serde_json::to_writer(&mut *to, text).expect("a text is written to memory");
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Fence;

    use super::*;
    use crate::wire::Ending;

    #[track_caller]
    fn same(lease: &Lease) {
        let written = String::from_utf8(lease.to_json()).unwrap();
        assert_eq!(written, serde_json::to_string(lease).unwrap());
    }

    #[test]
    fn answers_are_written_as_serde_writes_them() {
        let texts = [
            "",
            "step 3",
            "\"",
            "a\\b",
            "\0\u{1f}\n\r\t\u{8}\u{c}",
            "é🔒\u{7f}\u{2028}",
        ];
        let hows = [
            EndedAs::Released,
            EndedAs::Completed,
            EndedAs::Expired,
            EndedAs::Broken,
        ];
        let mut lease = Lease {
            acquire_time: Time::from_micros(1_794_776_033_865_881),
            expire_time: Time::from_micros(u64::MAX),
            fence: Fence::MAX,
            body: "".into(),
            body_bytes: None,
            valid_for: 0,
            ttl: u64::MAX,
            granted: None,
            state: None,
            state_since: None,
            last: None,
        };
        same(&lease);
        for body in texts {
            lease.body = body.into();
            same(&lease);
        }
        lease.body_bytes = Some(65_536);
        same(&lease);
        for granted in [GrantedAs::Fresh, GrantedAs::Again, GrantedAs::Kept] {
            lease.granted = Some(granted);
            same(&lease);
        }
        for state in texts {
            (lease.state, lease.state_since) = (Some(state.into()), Some(Time::from_micros(1)));
            same(&lease);
        }
        for (how, owner) in hows.iter().cycle().zip(texts) {
            lease.last = Some(Ending {
                fence: Fence::new(13).unwrap(),
                owner: owner.into(),
                how: *how,
                at: Time::from_micros(1_700_000_000_000_000),
            });
            same(&lease);
        }
    }

    #[test]
    fn so_is_what_became_of_a_release() {
        for released in [true, false] {
            let released = Released { released };
            assert_eq!(released.to_json(), serde_json::to_vec(&released).unwrap());
        }
    }
}
