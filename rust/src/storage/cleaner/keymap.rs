//! The last offset of each key in a range of a log, in memory of a fixed size.
//! Format of a slot: 16 bytes: 64 bits of the key's hash, then 16 more bits and 48 bits of
//! `offset - base + 1`; 0 is empty. The other half of a 128-bit hash gives the slot's index, so two
//! keys are confused only if about 100 bits agree. The seed is random for each map.
//! Invariant: len <= limit = 0.9 (or as configured) of the slots; offsets of a key only rise.
//! Threads: a plain value of one cleaner.
//! Not promised: an exact answer. Keys are not stored, so with a probability of about 2^-100 a key
//! that was never added has an offset.

use twox_hash::XxHash3_128;

/// Bytes of a slot.
pub(super) const SLOT_SIZE: usize = 16;
/// This many keys are hashed and their slots read before the first is compared, so that the waits
/// for memory overlap.
pub(super) const LOOKAHEAD: usize = 64;

const OFFSET_BITS: u32 = 48;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
const FEWEST_SLOTS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct KeySlot {
    tag: u64,
    rest: u64,
}

/// A key's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyHash {
    place: u64,
    tag: u64,
}

/// The last offset of each key (see the module).
#[derive(Debug)]
pub(super) struct KeyMap {
    slots: Vec<KeySlot>,
    len: usize,
    limit: usize,
    base: i64,
    latest: i64,
    seed: u64,
}

impl KeyMap {
    /// A map for the offsets from `base` on, of at most `memory` bytes, and no larger than `wanted`
    /// keys need.
    pub(super) fn new(memory: usize, load_factor: f64, base: i64, wanted: u64) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let most = (memory / SLOT_SIZE).max(FEWEST_SLOTS);
        let enough = usize::try_from(wanted.saturating_mul(2)).unwrap_or(usize::MAX);
        let slots = most.min(enough.max(FEWEST_SLOTS));
        let limit = (slots as f64 * load_factor.clamp(0.01, 0.99)) as usize;
        Self {
            slots: vec![KeySlot::default(); slots],
            len: 0,
            limit: limit.clamp(1, slots - 1),
            base,
            latest: base - 1,
            seed: RandomState::new().hash_one(base),
        }
    }

    /// The last offset of the log that is mapped; `base - 1` at first.
    pub(super) const fn latest(&self) -> i64 {
        self.latest
    }

    /// Notes that the log is mapped up to and including `offset`.
    pub(super) fn set_latest(&mut self, offset: i64) {
        self.latest = self.latest.max(offset);
    }

    /// How many keys it holds.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many it may hold.
    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// A key's hash.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = XxHash3_128::oneshot_with_seed(self.seed, key);
        KeyHash { place: hash as u64, tag: (hash >> 64) as u64 }
    }

    /// Brings the slots of keys into the CPU's cache. These reads follow each other directly, so
    /// that many are on their way at a time.
    #[inline]
    pub(super) fn prefetch_slots(&self, keys: impl Iterator<Item = KeyHash>) {
        let slots = keys.filter_map(|key| self.slots.get(self.home(key)));
        std::hint::black_box(slots.fold(0, |sum, slot| sum ^ slot.rest));
    }

    /// Sets `offset` as the key's last; false, without effect, if the map is full.
    #[inline]
    pub(super) fn put(&mut self, key: KeyHash, offset: i64) -> bool {
        let Some(stored) = self.stored(offset) else { return false };
        let mark = key.place << OFFSET_BITS;
        let mut at = self.home(key);
        loop {
            let Some(slot) = self.slots.get_mut(at) else {
                at = 0;
                continue;
            };
            if slot.rest & OFFSET_MASK == 0 {
                if self.len >= self.limit {
                    return false;
                }
                *slot = KeySlot { tag: key.tag, rest: mark | stored };
                self.len += 1;
                return true;
            }
            if slot.tag == key.tag && slot.rest & !OFFSET_MASK == mark {
                slot.rest = mark | stored.max(slot.rest & OFFSET_MASK);
                return true;
            }
            at += 1;
        }
    }

    /// The last offsets of all keys, in no order.
    pub(super) fn offsets(&self) -> impl Iterator<Item = i64> {
        let stored = self.slots.iter().map(|slot| slot.rest & OFFSET_MASK).filter(|at| *at > 0);
        stored.map(|stored| self.base + i64::try_from(stored).unwrap_or(0) - 1)
    }

    /// The key's last offset; -1 if it has none in the mapped range.
    #[inline]
    pub(super) fn last_offset(&self, key: KeyHash) -> i64 {
        let mark = key.place << OFFSET_BITS;
        let mut at = self.home(key);
        loop {
            let Some(slot) = self.slots.get(at) else {
                at = 0;
                continue;
            };
            let stored = slot.rest & OFFSET_MASK;
            if stored == 0 {
                return -1;
            }
            if slot.tag == key.tag && slot.rest & !OFFSET_MASK == mark {
                return self.base + i64::try_from(stored).unwrap_or(0) - 1;
            }
            at += 1;
        }
    }

    #[inline]
    fn home(&self, key: KeyHash) -> usize {
        ((u128::from(key.place) * self.slots.len() as u128) >> 64) as usize
    }

    #[inline]
    fn stored(&self, offset: i64) -> Option<u64> {
        let stored = u64::try_from(offset.checked_sub(self.base)?.checked_add(1)?).ok()?;
        (1..=OFFSET_MASK).contains(&stored).then_some(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn put(map: &mut KeyMap, key: &[u8], offset: i64) -> bool {
        let hashed = map.hash(key);
        map.put(hashed, offset)
    }

    #[test]
    fn it_is_a_hash_map_of_last_offsets() {
        let mut map = KeyMap::new(1 << 20, 0.9, 1000, u64::MAX);
        let mut model: HashMap<Vec<u8>, i64> = HashMap::new();
        for offset in 1000..60_000i64 {
            let key = (offset * 7919 % 20_011).to_string().into_bytes();
            assert!(put(&mut map, &key, offset));
            model.insert(key, offset);
        }
        assert_eq!(map.len(), model.len());
        for (key, offset) in &model {
            assert_eq!(map.last_offset(map.hash(key)), *offset);
        }
        for stranger in 20_011..25_000 {
            assert_eq!(map.last_offset(map.hash(stranger.to_string().as_bytes())), -1);
        }
    }

    #[test]
    fn a_full_map_takes_known_keys_only() {
        let mut map = KeyMap::new(100 * SLOT_SIZE, 0.5, 0, u64::MAX);
        let keys: Vec<Vec<u8>> = (0..60).map(|n: i32| n.to_string().into_bytes()).collect();
        let taken: Vec<bool> =
            keys.iter().zip(0..).map(|(key, offset)| put(&mut map, key, offset)).collect();
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 50);
        assert!(taken[..50].iter().all(|taken| *taken));
        assert!(put(&mut map, &keys[3], 99));
        assert_eq!(map.last_offset(map.hash(&keys[3])), 99);
        assert!(!put(&mut map, b"another", 100));
    }

    #[test]
    fn an_offset_that_its_bits_cannot_hold_is_not_put() {
        let mut map = KeyMap::new(1 << 20, 0.9, 7, u64::MAX);
        let last = 7 + (1 << OFFSET_BITS) - 2;
        assert!(put(&mut map, b"far", last));
        assert_eq!(map.last_offset(map.hash(b"far")), last);
        assert!(!put(&mut map, b"farther", last + 1) && !put(&mut map, b"before", 6));
        assert_eq!(map.len(), 1);
    }

    #[test]
    fn whatever_the_settings_one_key_goes_in_and_one_slot_stays_free() {
        for (load_factor, limit) in [(7.0, 99), (1.0, 99), (0.0, 1), (-7.0, 1), (f64::NAN, 1)] {
            assert_eq!(KeyMap::new(1600, load_factor, 0, u64::MAX).limit(), limit);
        }
        assert_eq!(KeyMap::new(0, 1.0, 0, 0).limit(), FEWEST_SLOTS - 1);
    }

    #[test]
    fn a_short_range_takes_little_memory() {
        let map = KeyMap::new(128 << 20, 0.9, 0, 500);
        assert_eq!(map.slots.len(), 1000);
        assert!(map.limit() >= 500);
    }
}
