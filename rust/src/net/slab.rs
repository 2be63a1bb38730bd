//! Connections by number: a number is never used twice, finding one is an index.
//!
//! The low half of an id is a place, the high half counts the connections there have been, so that
//! an event or a reply for a connection that is gone finds nothing.

use crate::broker::ConnId;

/// The things of one thread, by id.
pub(super) struct Slab<T> {
    places: Vec<Option<(ConnId, T)>>,
    free: Vec<usize>,
    made: u64,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), made: 0 }
    }

    /// The id the next insert gives.
    pub(super) fn next_id(&self) -> ConnId {
        let place = self.free.last().copied().unwrap_or(self.places.len());
        ConnId(((self.made + 1) << 32) | place as u64)
    }

    pub(super) fn insert(&mut self, thing: T) -> ConnId {
        let id = self.next_id();
        self.made += 1;
        match self.free.pop().and_then(|place| self.places.get_mut(place)) {
            Some(place) => *place = Some((id, thing)),
            None => self.places.push(Some((id, thing))),
        }
        id
    }

    pub(super) fn at(&mut self, id: ConnId) -> Option<&mut T> {
        match self.places.get_mut(place_of(id)) {
            Some(Some((found, thing))) if *found == id => Some(thing),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<T> {
        self.at(id)?;
        let place = place_of(id);
        let (_, thing) = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(thing)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut T)> {
        self.places.iter_mut().flatten().map(|(id, thing)| (*id, thing))
    }

    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.places.iter().flatten().map(|(id, _)| *id).collect()
    }
}

fn place_of(id: ConnId) -> usize {
    (id.0 & 0xffff_ffff) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_id_finds_nothing_in_a_used_place() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        let second = slab.insert('b');
        assert_eq!(slab.remove(first), Some('a'));
        let third = slab.insert('c');
        assert_eq!(place_of(first), place_of(third));
        assert_eq!(slab.at(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.at(second).copied(), Some('b'));
        assert_eq!(slab.at(third).copied(), Some('c'));
        assert_eq!(slab.ids(), [third, second]);
    }
}
