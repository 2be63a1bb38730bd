//! The connections of one thread by id. Finding one is an array access, and no id is used twice.
//!
//! The low half of an id is a slot. The high half counts the connections that the thread has had,
//! so that an event or a reply for a closed connection finds nothing.

use crate::broker::ConnId;

/// The values of one thread, by id.
pub(super) struct Slab<T> {
    slots: Vec<Option<(ConnId, T)>>,
    free: Vec<usize>,
    inserted: u64,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), inserted: 0 }
    }

    /// The id that the next insert returns.
    pub(super) fn next_id(&self) -> ConnId {
        let slot = self.free.last().copied().unwrap_or(self.slots.len());
        ConnId(((self.inserted + 1) << 32) | slot as u64)
    }

    pub(super) fn insert(&mut self, value: T) -> ConnId {
        let id = self.next_id();
        self.inserted += 1;
        match self.free.pop().and_then(|slot| self.slots.get_mut(slot)) {
            Some(slot) => *slot = Some((id, value)),
            None => self.slots.push(Some((id, value))),
        }
        id
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        match self.slots.get_mut(slot_of(id)) {
            Some(Some((stored, value))) if *stored == id => Some(value),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<T> {
        self.get_mut(id)?;
        let slot = slot_of(id);
        let (_, value) = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut T)> {
        self.slots.iter_mut().flatten().map(|(id, value)| (*id, value))
    }

    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.slots.iter().flatten().map(|(id, _)| *id).collect()
    }
}

fn slot_of(id: ConnId) -> usize {
    (id.0 & 0xffff_ffff) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_id_finds_nothing_in_a_slot_that_is_used_again() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        let second = slab.insert('b');
        assert_eq!(slab.remove(first), Some('a'));
        let third = slab.insert('c');
        assert_eq!(slot_of(first), slot_of(third));
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second).copied(), Some('b'));
        assert_eq!(slab.get_mut(third).copied(), Some('c'));
        assert_eq!(slab.ids(), [third, second]);
    }
}
