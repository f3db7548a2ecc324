//! Slot numbers, sorted by the contents of the slots.

/// The maximum number of slots in a chunk: few enough that moving them is cheap.
const CHUNK: usize = 512;

/// Sorted slot numbers. The order is defined by the caller: each method takes a function that returns whether a slot
/// is below the position in question.
///
/// Chunks of numbers, unlike a tree of keys, take four bytes per slot and little slack.
#[derive(Default)]
pub(super) struct SlotOrder {
    /// No chunk is empty.
    chunks: Vec<Vec<u32>>,
}

impl SlotOrder {
    /// Inserts a slot at its position.
    pub(super) fn insert(&mut self, slot: u32, below: impl Fn(u32) -> bool) {
        let (mut chunk, mut index) = self.position(below);
        if chunk == self.chunks.len() {
            // After all others: append to the last chunk while it has room, so that names inserted in order fill the
            // chunks.
            match self.chunks.last() {
                Some(last) if last.len() < CHUNK => (chunk, index) = (chunk - 1, last.len()),
                _ => return self.chunks.push(vec![slot]),
            }
        } else if self.chunks[chunk].len() == CHUNK {
            let upper = self.chunks[chunk].split_off(CHUNK / 2);
            self.chunks.insert(chunk + 1, upper);
            if index > CHUNK / 2 {
                (chunk, index) = (chunk + 1, index - CHUNK / 2);
            }
        }
        self.chunks[chunk].insert(index, slot);
    }

    /// Removes the first slot that is not below.
    pub(super) fn remove(&mut self, slot: u32, below: impl Fn(u32) -> bool) {
        let (chunk, index) = self.position(below);
        let removed = self.chunks[chunk].remove(index);
        debug_assert_eq!(removed, slot, "a slot is at the position of its content");
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
    }

    /// Iterates over the slots that are not below, in order.
    pub(super) fn from(&self, below: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        let (chunk, index) = self.position(below);
        self.chunks[chunk..].iter().flatten().skip(index).copied()
    }

    /// Returns chunk and index of the first slot that is not below.
    fn position(&self, below: impl Fn(u32) -> bool) -> (usize, usize) {
        let chunk = self
            .chunks
            .partition_point(|chunk| chunk.last().is_some_and(|last| below(*last)));
        let index = self
            .chunks
            .get(chunk)
            .map_or(0, |slots| slots.partition_point(|slot| below(*slot)));
        (chunk, index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CHUNK, SlotOrder};

    /// Checks slots that are ordered by their own numbers.
    fn check(order: &SlotOrder, expected: &BTreeSet<u32>) {
        assert!(order.from(|_| false).eq(expected.iter().copied()));
        assert!(order.chunks.iter().all(|chunk| !chunk.is_empty()));
        for start in [0, 1, 1_000, 2_500, 5_000] {
            let rest = expected.range(start..).copied();
            assert!(order.from(|slot| slot < start).eq(rest), "from {start}");
        }
    }

    #[test]
    fn slots_stay_sorted_for_any_order_of_inserts_and_removals() {
        let numbers = || 0..5_000_u32;
        // 2,741 and 5,000 are coprime: every number occurs once, shuffled.
        let mixed = || numbers().map(|number| number * 2_741 % 5_000);
        let orders: [Vec<u32>; 3] = [
            numbers().collect(),
            numbers().rev().collect(),
            mixed().collect(),
        ];
        for inserted in &orders {
            for removed in &orders {
                let (mut order, mut expected) = (SlotOrder::default(), BTreeSet::new());
                for slot in inserted {
                    order.insert(*slot, |other| other < *slot);
                    expected.insert(*slot);
                }
                check(&order, &expected);
                for slot in &removed[..3_000] {
                    order.remove(*slot, |other| other < *slot);
                    expected.remove(slot);
                }
                check(&order, &expected);
            }
        }
    }

    #[test]
    fn sorted_inserts_fill_the_chunks() {
        let mut order = SlotOrder::default();
        for slot in 0..10 * CHUNK as u32 {
            order.insert(slot, |other| other < slot);
        }
        assert_eq!(order.chunks.len(), 10);
    }
}
