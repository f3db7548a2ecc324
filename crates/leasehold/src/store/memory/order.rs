//! Slots in an order that is read from what is in them.

/// How many slots a chunk has at most: few enough to be moved at once.
const CHUNK: usize = 512;

/// Numbers of slots in order. It does not know the order: each method takes a function that says which slots are
/// below the place in question.
///
/// Chunks of numbers instead of a tree of keys: four bytes a slot, and some slack.
#[derive(Default)]
pub(super) struct Order {
    /// None of them is empty.
    chunks: Vec<Vec<u32>>,
}

impl Order {
    /// Puts a slot in its place.
    pub(super) fn insert(&mut self, slot: u32, below: impl Fn(u32) -> bool) {
        let (mut chunk, mut index) = self.place(below);
        if chunk == self.chunks.len() {
            // After all others: at the end of the last chunk, as long as that has room. So names that come in order
            // leave full chunks behind.
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

    /// Takes the slot out that is the first not below.
    pub(super) fn remove(&mut self, slot: u32, below: impl Fn(u32) -> bool) {
        let (chunk, index) = self.place(below);
        let removed = self.chunks[chunk].remove(index);
        debug_assert_eq!(removed, slot, "a slot is where its content says");
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
    }

    /// All slots that are not below, in order.
    pub(super) fn from(&self, below: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        let (chunk, index) = self.place(below);
        self.chunks[chunk..].iter().flatten().skip(index).copied()
    }

    /// Chunk and index of the first slot that is not below.
    fn place(&self, below: impl Fn(u32) -> bool) -> (usize, usize) {
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

    use super::{CHUNK, Order};

    /// Slots ordered by their own numbers.
    fn check(order: &Order, expected: &BTreeSet<u32>) {
        assert!(order.from(|_| false).eq(expected.iter().copied()));
        assert!(order.chunks.iter().all(|chunk| !chunk.is_empty()));
        for start in [0, 1, 1_000, 2_500, 5_000] {
            let rest = expected.range(start..).copied();
            assert!(order.from(|slot| slot < start).eq(rest), "from {start}");
        }
    }

    #[test]
    fn any_order_of_coming_and_going_keeps_the_order() {
        let numbers = || 0..5_000_u32;
        // 2,741 and 5,000 have no common divisor: every number comes once, in no order.
        let mixed = || numbers().map(|number| number * 2_741 % 5_000);
        let ways: [Vec<u32>; 3] = [
            numbers().collect(),
            numbers().rev().collect(),
            mixed().collect(),
        ];
        for coming in &ways {
            for going in &ways {
                let (mut order, mut expected) = (Order::default(), BTreeSet::new());
                for slot in coming {
                    order.insert(*slot, |other| other < *slot);
                    expected.insert(*slot);
                }
                check(&order, &expected);
                for slot in &going[..3_000] {
                    order.remove(*slot, |other| other < *slot);
                    expected.remove(slot);
                }
                check(&order, &expected);
            }
        }
    }

    #[test]
    fn what_comes_in_order_fills_the_chunks() {
        let mut order = Order::default();
        for slot in 0..10 * CHUNK as u32 {
            order.insert(slot, |other| other < slot);
        }
        assert_eq!(order.chunks.len(), 10);
    }
}
