//! Removes repeated names from a request, so that each is answered once.

use std::hash::Hash;

use ahash::{HashSet, RandomState};

/// Accepts each key once, so that a name that a request repeats a thousand times is answered once.
#[derive(Debug)]
pub(crate) struct FirstOnly<K>(HashSet<K>);

impl<K> Default for FirstOnly<K> {
    fn default() -> Self {
        Self(HashSet::default())
    }
}

impl<K: Eq + Hash> FirstOnly<K> {
    /// With room for `count` keys.
    pub(crate) fn with_capacity(keys: usize) -> Self {
        Self(HashSet::with_capacity_and_hasher(keys, RandomState::default()))
    }

    /// Whether the key is new.
    pub(crate) fn passes(&mut self, key: K) -> bool {
        self.0.insert(key)
    }
}
