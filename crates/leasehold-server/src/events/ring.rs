//! Recent events, numbered.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use hyper::body::Bytes;
use leasehold::core::Name;
use leasehold::wire::Told;

use super::Filter;

/// The most events that are kept.
const EVENTS: usize = 16_384;
/// The most bytes of them.
const BYTES: usize = 8 * 1024 * 1024;
/// About how many bytes are sent at once.
const CHUNK: usize = 64 * 1024;
/// How many of these are kept for the next reader.
const JOINED: usize = 16;

/// Recent events, each written down once. Their numbers only mean something within one `epoch`.
pub(super) struct Ring {
    epoch: u64,
    /// The number of the oldest that is kept.
    oldest: u64,
    events: VecDeque<Entry>,
    bytes: usize,
    /// Readers see what came before this number.
    published: u64,
    /// What those read who hear of everything, by where it begins: many read the same.
    joined: HashMap<u64, (Bytes, u64)>,
}

struct Entry {
    /// `None`: for everybody.
    name: Option<Name>,
    text: Bytes,
}

/// What a reader gets.
pub(super) enum Read {
    /// Everything after its place has been sent.
    Nothing,
    /// These, and its next place.
    Events(Bytes, u64),
    /// Its place is no more.
    Missed,
}

impl Ring {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            // Not zero: a reader may have a place before the first event.
            oldest: 1,
            events: VecDeque::new(),
            bytes: 0,
            published: 1,
            joined: HashMap::new(),
        }
    }

    /// The number that the next event gets.
    pub(super) fn next(&self) -> u64 {
        self.oldest + self.events.len() as u64
    }

    /// The id of the event before this number.
    pub(super) fn id_before(&self, number: u64) -> String {
        format!("{:016x}-{}", self.epoch, number.saturating_sub(1))
    }

    /// Where somebody goes on who has seen the event with this id; `None` if what came since is not known any more.
    pub(super) fn after(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        let epoch = u64::from_str_radix(epoch, 16).ok()?;
        let next = number.parse::<u64>().ok()?.checked_add(1)?;
        (epoch == self.epoch && (self.oldest..=self.next()).contains(&next)).then_some(next)
    }

    pub(super) fn push(&mut self, name: Option<Name>, told: &Told) {
        let id = self.id_before(self.next() + 1);
        let text: Bytes = written(&id, told).into();
        self.bytes += text.len();
        self.events.push_back(Entry { name, text });
        while self.events.len() > EVENTS || self.bytes > BYTES {
            let Some(gone) = self.events.pop_front() else {
                return;
            };
            self.bytes -= gone.text.len();
            self.oldest += 1;
        }
    }

    /// Lets everybody read what has come until now.
    pub(super) fn publish(&mut self) {
        self.published = self.next();
        self.joined.clear();
    }

    /// What somebody at this place has not seen and may hear of.
    pub(super) fn read(&mut self, from: u64, filter: &Filter) -> Read {
        let Some(skip) = from.checked_sub(self.oldest) else {
            return Read::Missed;
        };
        if from >= self.published {
            return Read::Nothing;
        }
        let all = filter.admits_all();
        if all && let Some((bytes, next)) = self.joined.get(&from) {
            return Read::Events(bytes.clone(), *next);
        }
        let (mut bytes, mut next) = (Vec::new(), from);
        for entry in self.events.iter().skip(skip as usize) {
            if next == self.published || bytes.len() >= CHUNK {
                break;
            }
            next += 1;
            if entry.name.as_ref().is_none_or(|name| filter.admits(name)) {
                bytes.extend_from_slice(&entry.text);
            }
        }
        let bytes = Bytes::from(bytes);
        if all {
            // Slow readers are at places of their own.
            if self.joined.len() == JOINED {
                self.joined.clear();
            }
            self.joined.insert(from, (bytes.clone(), next));
        }
        Read::Events(bytes, next)
    }
}

/// An event as it is sent.
pub(super) fn written(id: &str, told: &Told) -> String {
    let data = serde_json::to_string(told).expect("events have text keys and do not fail");
    let mut text = String::with_capacity(data.len() + 64);
    let event = told.event.as_str();
    // JSON has no line breaks of its own.
    let _ = write!(text, "id: {id}\nevent: {event}\ndata: {data}\n\n");
    text
}

#[cfg(test)]
mod tests {
    use leasehold::core::{Event, Time};

    use super::*;
    use crate::access::caller::Caller;

    fn all() -> Filter {
        Filter::new(Caller::default(), "").unwrap()
    }

    fn told(ring: &mut Ring, name: &str) {
        let name = Name::lock(name).unwrap();
        let told = Told::new(&name, &Event::Purged, Time::from_micros(1));
        ring.push(Some(name), &told);
    }

    #[test]
    fn what_was_not_seen_is_read_once_and_in_order() {
        let mut ring = Ring::new(7);
        let start = ring.next();
        assert!(matches!(ring.read(start, &all()), Read::Nothing));
        told(&mut ring, "a");
        told(&mut ring, "b");
        assert!(matches!(ring.read(start, &all()), Read::Nothing));
        ring.publish();
        let Read::Events(bytes, next) = ring.read(start, &all()) else {
            panic!("there are two");
        };
        let text = std::str::from_utf8(&bytes).unwrap();
        let (a, b) = (text.find("\"a\"").unwrap(), text.find("\"b\"").unwrap());
        assert!(a < b && text.starts_with("id: 0000000000000007-1\nevent: purged\n"));
        assert!(matches!(ring.read(next, &all()), Read::Nothing));
        let Read::Events(only, _) = ring.read(start, &Filter::new(Caller::default(), "b").unwrap())
        else {
            panic!("there is one");
        };
        let only = std::str::from_utf8(&only).unwrap();
        assert!(!only.contains("\"a\"") && only.contains("\"b\""), "{only}");
    }

    #[test]
    fn an_id_says_where_to_go_on_unless_that_is_gone() {
        let mut ring = Ring::new(7);
        let start = ring.id_before(ring.next());
        assert_eq!(ring.after(&start), Some(1));
        for _ in 0..EVENTS {
            told(&mut ring, "a");
        }
        assert_eq!(ring.after(&start), Some(1));
        told(&mut ring, "a");
        assert_eq!(ring.after(&start), None, "one has gone");
        assert!(matches!(ring.read(1, &all()), Read::Missed));
        assert_eq!(ring.after("0000000000000007-2"), Some(3));
        for foreign in [
            "0000000000000008-2",
            "0000000000000007-99999",
            "",
            "x-2",
            "7",
        ] {
            assert_eq!(ring.after(foreign), None, "{foreign}");
        }
    }
}
