//! A hash map in parts, by name. A copy shares the parts with the original until they change, so
//! one change of a large map copies one part.
//!
//! Invariant: the number of parts is a power of two, and there are at least `len / FULL` of them.
//!     A name is in the part that its hash says.
//! Cost: a copy clones one pointer for each part, of about `FULL / 2` entries; a change of a shared
//!     part clones that part.
//! Threads: a plain value.
//! Not promised: an order. The number of parts never falls.

use std::sync::Arc;

use ahash::{HashMap, RandomState};

/// The average size of a part above which a map gets more parts.
const FULL: usize = 64;

/// The map.
#[derive(Clone, Debug)]
pub(crate) struct SharedMap<V> {
    hasher: RandomState,
    parts: Vec<MapPart<V>>,
    len: usize,
}

type MapPart<V> = Arc<HashMap<Arc<str>, V>>;

impl<V> Default for SharedMap<V> {
    fn default() -> Self {
        let parts = vec![Arc::new(HashMap::default())];
        Self { hasher: RandomState::new(), parts, len: 0 }
    }
}

impl<V> SharedMap<V> {
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a name.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.parts.get(self.part_of(name))?.get(name)
    }

    /// The name as the map has it, and its value.
    pub(crate) fn get_key_value(&self, name: &str) -> Option<(&Arc<str>, &V)> {
        self.parts.get(self.part_of(name))?.get_key_value(name)
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    #[inline]
    fn part_of(&self, name: &str) -> usize {
        match self.parts.len() {
            1 => 0,
            parts => (self.hasher.hash_one(name) as usize) & (parts - 1),
        }
    }
}

impl<V: Clone> SharedMap<V> {
    /// Puts a value under a name. Returns the one that was there.
    pub(crate) fn insert(&mut self, name: Arc<str>, value: V) -> Option<V> {
        let at = self.part_of(&name);
        let before = Arc::make_mut(self.parts.get_mut(at)?).insert(name, value);
        self.len += usize::from(before.is_none());
        if self.len > self.parts.len() * FULL {
            self.spread();
        }
        before
    }

    /// Removes a name.
    pub(crate) fn remove(&mut self, name: &str) -> Option<V> {
        let at = self.part_of(name);
        let part = self.parts.get_mut(at).filter(|part| part.contains_key(name))?;
        let before = Arc::make_mut(part).remove(name);
        self.len -= usize::from(before.is_some());
        before
    }

    /// Doubles the number of parts.
    fn spread(&mut self) {
        let doubled = (0..self.parts.len() * 2).map(|_| Arc::default()).collect();
        let parts = std::mem::replace(&mut self.parts, doubled);
        for (name, value) in parts.into_iter().flat_map(Arc::unwrap_or_clone) {
            let at = self.part_of(&name);
            if let Some(part) = self.parts.get_mut(at) {
                Arc::make_mut(part).insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16, u8),
        Remove(u16),
        Copy,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let names = 0..400u16;
        let step = prop_oneof![
            8 => (names.clone(), any::<u8>()).prop_map(|(name, value)| Step::Insert(name, value)),
            3 => names.prop_map(Step::Remove),
            1 => Just(Step::Copy),
        ];
        prop::collection::vec(step, 0..1_500)
    }

    fn all(map: &SharedMap<u8>) -> BTreeMap<String, u8> {
        map.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_copy_keeps_what_it_had_and_the_map_is_as_any_other(steps in steps()) {
            let (mut map, mut wanted) = (SharedMap::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(name, value) => {
                        let before = map.insert(name.to_string().into(), value);
                        prop_assert_eq!(before, wanted.insert(name.to_string(), value));
                    }
                    Step::Remove(name) => {
                        let name = name.to_string();
                        prop_assert_eq!(map.remove(&name), wanted.remove(&name));
                        prop_assert_eq!(map.get(&name), None);
                    }
                    Step::Copy => copies.push((map.clone(), wanted.clone())),
                }
                prop_assert_eq!(map.len(), wanted.len());
            }
            copies.push((map, wanted));
            for (map, wanted) in copies {
                prop_assert_eq!(map.is_empty(), wanted.is_empty());
                for (name, value) in &wanted {
                    prop_assert_eq!(map.get(name), Some(value));
                }
                prop_assert_eq!(all(&map), wanted);
            }
        }
    }

    #[test]
    fn one_change_of_a_large_map_copies_one_part() {
        let mut map = SharedMap::default();
        for number in 0..10_000 {
            map.insert(number.to_string().into(), number);
        }
        let copy = map.clone();
        map.insert("17".into(), 0);
        let shared =
            map.parts.iter().zip(&copy.parts).filter(|(one, other)| Arc::ptr_eq(one, other));
        assert_eq!((map.parts.len(), shared.count()), (256, 255));
        assert_eq!((map.get("17"), copy.get("17")), (Some(&0), Some(&17)));
    }
}
