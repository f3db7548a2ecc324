//! The records: packed in one allocation each, indexed by name, in the order of names, and by state.

use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use leasehold_core::Name;

use super::bytes::Writer;
use super::order::SlotOrder;
use super::packed::{self, Item, Key};
use crate::store::{Stored, Swapped, Write};

/// The number of hash tables that share the names. A table that grows moves only its own part.
const TABLES: usize = 256;

/// Records by name. A record is packed into a slot; the indexes refer to slots by number.
pub(super) struct Records {
    /// A slot is empty if its record was deleted.
    slots: Vec<Box<[u8]>>,
    /// The numbers of the empty slots.
    free: Vec<u32>,
    /// Slots by the hash of the name.
    tables: Box<[HashTable<u32>]>,
    hasher: RandomState,
    /// Slots in the order of names.
    names: SlotOrder,
    /// Slots with a state, by kind and state, oldest first.
    items: SlotOrder,
    /// The buffer for packing a record, reused because its length is not known before.
    writer: Writer,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            tables: (0..TABLES).map(|_| HashTable::new()).collect(),
            hasher: RandomState::default(),
            names: SlotOrder::default(),
            items: SlotOrder::default(),
            writer: Writer::default(),
        }
    }
}

impl Records {
    /// Returns the record under this name.
    pub(super) fn get(&self, name: &Name) -> Option<Stored> {
        let key = key_of(name);
        let slot = self.slot(key, self.hasher.hash_one(key))?;
        Some(packed::unpack(self.at(slot)))
    }

    /// Writes or deletes the record if its version is the expected one.
    pub(super) fn swap(&mut self, write: &Write) -> Swapped {
        let key = key_of(&write.name);
        let hash = self.hasher.hash_one(key);
        let slot = self.slot(key, hash);
        let current = slot.map(|slot| packed::write(self.at(slot)));
        if current != write.expect.as_ref().map(|version| version.write) {
            return Swapped::Conflict(slot.map(|slot| packed::unpack(self.at(slot))));
        }
        if let Some((id, record)) = &write.put {
            self.writer.clear();
            packed::pack(&write.name, *id, record, &mut self.writer);
        }
        match (slot, &write.put) {
            (Some(slot), Some(_)) => self.replace(slot),
            (Some(slot), None) => self.remove(slot, hash),
            (None, Some(_)) => self.insert(hash),
            (None, None) => {}
        }
        Swapped::Written { tag: None }
    }

    /// Iterates over packed records in the order of names, from the first that is not below.
    pub(super) fn by_name(&self, below: impl Fn(Key<'_>) -> bool) -> impl Iterator<Item = &[u8]> {
        self.names
            .from(move |slot| below(packed::key(self.at(slot))))
            .map(|slot| self.at(slot))
    }

    /// Iterates over packed items in the order of kind, state and age, from the first that is not below.
    pub(super) fn by_state(&self, below: impl Fn(Item<'_>) -> bool) -> impl Iterator<Item = &[u8]> {
        self.items
            .from(move |slot| packed::item(self.at(slot)).is_some_and(&below))
            .map(|slot| self.at(slot))
    }

    fn at(&self, slot: u32) -> &[u8] {
        &self.slots[slot as usize]
    }

    fn slot(&self, key: Key<'_>, hash: u64) -> Option<u32> {
        self.tables[table_of(hash)]
            .find(hash, |slot| packed::key(self.at(*slot)) == key)
            .copied()
    }

    /// Stores the packed record in a free slot.
    fn insert(&mut self, hash: u64) {
        let packed = self.writer.written().into();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = packed;
                slot
            }
            None => {
                self.slots.push(packed);
                u32::try_from(self.slots.len() - 1)
                    .expect("fewer than 2^32 records fit into memory")
            }
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.tables[table_of(hash)].insert_unique(hash, slot, |slot| {
            hasher.hash_one(packed::key(&slots[*slot as usize]))
        });
        self.names.insert(slot, precedes(slots, slot, packed::key));
        if packed::item(self.at(slot)).is_some() {
            let precedes_slot = precedes(&self.slots, slot, packed::item);
            self.items.insert(slot, precedes_slot);
        }
    }

    /// Replaces the slot's content with the packed record.
    fn replace(&mut self, slot: u32) {
        let new = self.writer.written();
        let old = &self.slots[slot as usize];
        let moves = packed::item(old) != packed::item(new);
        if moves && packed::item(old).is_some() {
            self.items
                .remove(slot, precedes(&self.slots, slot, packed::item));
        }
        let place = &mut self.slots[slot as usize];
        if place.len() == new.len() {
            // Same length, as for a renewal: no allocation.
            place.copy_from_slice(new);
        } else {
            *place = new.into();
        }
        if moves && packed::item(new).is_some() {
            self.items
                .insert(slot, precedes(&self.slots, slot, packed::item));
        }
    }

    fn remove(&mut self, slot: u32, hash: u64) {
        if packed::item(self.at(slot)).is_some() {
            let precedes_slot = precedes(&self.slots, slot, packed::item);
            self.items.remove(slot, precedes_slot);
        }
        self.names
            .remove(slot, precedes(&self.slots, slot, packed::key));
        if let Ok(entry) = self.tables[table_of(hash)].find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        self.slots[slot as usize] = Box::default();
        self.free.push(slot);
    }
}

/// Returns a function that tells whether a slot precedes this one.
fn precedes<'a, T: Ord>(
    slots: &'a [Box<[u8]>],
    slot: u32,
    order: impl Fn(&'a [u8]) -> T,
) -> impl Fn(u32) -> bool {
    let this = order(&slots[slot as usize]);
    move |other| order(&slots[other as usize]) < this
}

fn key_of(name: &Name) -> Key<'_> {
    (name.kind(), name.as_str().as_bytes())
}

/// Chooses a table by bits of the hash that the table, which has fewer than 2^32 slots, does not use itself.
fn table_of(hash: u64) -> usize {
    (hash >> 40) as usize % TABLES
}
