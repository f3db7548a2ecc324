//! Keeps recent events by number.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use hyper::body::Bytes;
use leasehold::core::Name;
use leasehold::wire::EventMessage;

use super::Filter;

const MAX_EVENTS: usize = 16_384;
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// The size at which a chunk is complete.
const CHUNK_BYTES: usize = 64 * 1024;
/// How many chunks are cached for other readers.
const CACHED_CHUNKS: usize = 16;

/// Recent events, each encoded once. Their numbers are only valid within one `epoch`.
pub(super) struct Ring {
    epoch: u64,
    /// The number of the oldest event that is kept.
    oldest: u64,
    events: VecDeque<Entry>,
    bytes: usize,
    /// Readers see the events before this number.
    published: u64,
    /// Chunks of unfiltered events and the position after each, by their first number. Many readers need the same.
    chunks: HashMap<u64, (Bytes, u64)>,
}

struct Entry {
    /// `None`: every reader receives it.
    name: Option<Name>,
    text: Bytes,
}

/// The result of a read.
pub(super) enum ReadResult {
    /// The reader has read everything that is published.
    Empty,
    /// Events, and the position after them. The bytes are empty if the filter admits none of the events.
    Events(Bytes, u64),
    /// The reader's position was evicted.
    Evicted,
}

impl Ring {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            // Not zero: the id before the first event is a valid position.
            oldest: 1,
            events: VecDeque::new(),
            bytes: 0,
            published: 1,
            chunks: HashMap::new(),
        }
    }

    /// Returns the number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.oldest + self.events.len() as u64
    }

    /// Returns the id of the event before this number.
    pub(super) fn id_before(&self, number: u64) -> String {
        format!("{:016x}-{}", self.epoch, number.saturating_sub(1))
    }

    /// Returns the position after the event with this id, or `None` if later events were evicted.
    pub(super) fn position_after(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        let epoch = u64::from_str_radix(epoch, 16).ok()?;
        let next = number.parse::<u64>().ok()?.checked_add(1)?;
        (epoch == self.epoch && (self.oldest..=self.next()).contains(&next)).then_some(next)
    }

    pub(super) fn push(&mut self, name: Option<Name>, message: &EventMessage) {
        let id = self.id_before(self.next() + 1);
        let text: Bytes = encode(&id, message).into();
        self.bytes += text.len();
        self.events.push_back(Entry { name, text });
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(evicted) = self.events.pop_front() else {
                return;
            };
            self.bytes -= evicted.text.len();
            self.oldest += 1;
        }
    }

    /// Makes all events visible to readers.
    pub(super) fn publish(&mut self) {
        self.published = self.next();
        self.chunks.clear();
    }

    /// Returns the events from this position on that the filter admits, up to one chunk.
    pub(super) fn read(&mut self, from: u64, filter: &Filter) -> ReadResult {
        let Some(skip) = from.checked_sub(self.oldest) else {
            return ReadResult::Evicted;
        };
        if from >= self.published {
            return ReadResult::Empty;
        }
        let all = filter.admits_all();
        if all && let Some((bytes, next)) = self.chunks.get(&from) {
            return ReadResult::Events(bytes.clone(), *next);
        }
        let (mut bytes, mut next) = (Vec::new(), from);
        for entry in self.events.iter().skip(skip as usize) {
            if next == self.published || bytes.len() >= CHUNK_BYTES {
                break;
            }
            next += 1;
            if entry.name.as_ref().is_none_or(|name| filter.admits(name)) {
                bytes.extend_from_slice(&entry.text);
            }
        }
        let bytes = Bytes::from(bytes);
        if all {
            // Slow readers each have their own position.
            if self.chunks.len() == CACHED_CHUNKS {
                self.chunks.clear();
            }
            self.chunks.insert(from, (bytes.clone(), next));
        }
        ReadResult::Events(bytes, next)
    }
}

/// Encodes a message as a server-sent event.
pub(super) fn encode(id: &str, message: &EventMessage) -> String {
    let data = serde_json::to_string(message).expect("events have text keys and do not fail");
    let mut text = String::with_capacity(data.len() + 64);
    let event = message.event.as_str();
    // The data is one line: JSON escapes line breaks.
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

    fn push(ring: &mut Ring, name: &str) {
        let name = Name::lock(name).unwrap();
        let message = EventMessage::new(&name, &Event::Purged, Time::from_micros(1));
        ring.push(Some(name), &message);
    }

    #[test]
    fn published_events_are_read_once_in_order_and_filtered() {
        let mut ring = Ring::new(7);
        let start = ring.next();
        assert!(matches!(ring.read(start, &all()), ReadResult::Empty));
        push(&mut ring, "a");
        push(&mut ring, "b");
        assert!(matches!(ring.read(start, &all()), ReadResult::Empty));
        ring.publish();
        let ReadResult::Events(bytes, next) = ring.read(start, &all()) else {
            panic!("there are two events");
        };
        let text = std::str::from_utf8(&bytes).unwrap();
        let (a, b) = (text.find("\"a\"").unwrap(), text.find("\"b\"").unwrap());
        assert!(a < b && text.starts_with("id: 0000000000000007-1\nevent: purged\n"));
        assert!(matches!(ring.read(next, &all()), ReadResult::Empty));
        let filter = Filter::new(Caller::default(), "b").unwrap();
        let ReadResult::Events(only, _) = ring.read(start, &filter) else {
            panic!("there is one event");
        };
        let only = std::str::from_utf8(&only).unwrap();
        assert!(!only.contains("\"a\"") && only.contains("\"b\""), "{only}");
    }

    #[test]
    fn reading_resumes_after_an_id_unless_later_events_were_evicted() {
        let mut ring = Ring::new(7);
        let start = ring.id_before(ring.next());
        assert_eq!(ring.position_after(&start), Some(1));
        for _ in 0..MAX_EVENTS {
            push(&mut ring, "a");
        }
        assert_eq!(ring.position_after(&start), Some(1));
        push(&mut ring, "a");
        assert_eq!(ring.position_after(&start), None, "one event was evicted");
        assert!(matches!(ring.read(1, &all()), ReadResult::Evicted));
        assert_eq!(ring.position_after("0000000000000007-2"), Some(3));
        for foreign in [
            "0000000000000008-2",
            "0000000000000007-99999",
            "",
            "x-2",
            "7",
        ] {
            assert_eq!(ring.position_after(foreign), None, "{foreign}");
        }
    }
}
