//! Direct JSON serialization of the most frequent responses: the same bytes as `serde_json`, for less than half of the
//! instructions.

use leasehold_core::Time;

use super::{EndKind, GrantKind, Lease, ReleaseResponse, rfc3339};

/// The length of a lease in JSON without its body, unless its state or the previous owner is long.
const LEASE_BYTES: usize = 384;

impl Lease {
    /// Serializes to JSON.
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
            let name = match granted {
                GrantKind::Fresh => "fresh",
                GrantKind::Again => "again",
                GrantKind::Kept => "kept",
            };
            text(",\"granted\":", name, to);
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
                EndKind::Released => "released",
                EndKind::Completed => "completed",
                EndKind::Expired => "expired",
                EndKind::Broken => "broken",
            };
            text(",\"how\":", how, to);
            time(",\"at\":", last.at, to);
            to.push(b'}');
        }
        to.push(b'}');
        json
    }
}

impl ReleaseResponse {
    /// Serializes to JSON.
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
    to.extend_from_slice(&rfc3339::format(time));
    to.push(b'"');
}

fn text(key: &str, text: &str, to: &mut Vec<u8>) {
    to.extend_from_slice(key.as_bytes());
    let is_escaped = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // A fold without an early exit is vectorized, and escapes are rare.
    if !text.bytes().fold(false, |any, byte| any | is_escaped(byte)) {
        to.push(b'"');
        to.extend_from_slice(text.as_bytes());
        to.push(b'"');
    } else {
        serde_json::to_writer(&mut *to, text).expect("writing to memory cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Fence;

    use super::*;
    use crate::wire::LastHolderView;

    #[track_caller]
    fn assert_same_as_serde(lease: &Lease) {
        let written = String::from_utf8(lease.to_json()).unwrap();
        assert_eq!(written, serde_json::to_string(lease).unwrap());
    }

    #[test]
    fn leases_are_serialized_as_by_serde() {
        let texts = [
            "",
            "step 3",
            "\"",
            "a\\b",
            "\0\u{1f}\n\r\t\u{8}\u{c}",
            "é🔒\u{7f}\u{2028}",
        ];
        let ends = [
            EndKind::Released,
            EndKind::Completed,
            EndKind::Expired,
            EndKind::Broken,
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
        assert_same_as_serde(&lease);
        for body in texts {
            lease.body = body.into();
            assert_same_as_serde(&lease);
        }
        lease.body_bytes = Some(65_536);
        assert_same_as_serde(&lease);
        for granted in [GrantKind::Fresh, GrantKind::Again, GrantKind::Kept] {
            lease.granted = Some(granted);
            assert_same_as_serde(&lease);
        }
        for state in texts {
            (lease.state, lease.state_since) = (Some(state.into()), Some(Time::from_micros(1)));
            assert_same_as_serde(&lease);
        }
        for (how, owner) in ends.iter().cycle().zip(texts) {
            lease.last = Some(LastHolderView {
                fence: Fence::new(13).unwrap(),
                owner: owner.into(),
                how: *how,
                at: Time::from_micros(1_700_000_000_000_000),
            });
            assert_same_as_serde(&lease);
        }
    }

    #[test]
    fn releases_are_serialized_as_by_serde() {
        for released in [true, false] {
            let released = ReleaseResponse { released };
            assert_eq!(released.to_json(), serde_json::to_vec(&released).unwrap());
        }
    }
}
