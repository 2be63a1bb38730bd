//! Chooses the partition of a record: by murmur2 of the key, as Kafka's Java producer does, or one
//! partition per batch for records without a key (sticky, KIP-480).

/// Kafka's murmur2 (seed 0x9747b28c), bit for bit. If two clients computed different hashes, the
/// records of one key would be in two partitions.
pub fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ u32::try_from(key.len()).unwrap_or(u32::MAX);
    let words = key.chunks_exact(4);
    let tail = words.remainder();
    for word in words {
        let word = word.try_into().unwrap_or_default(); // chunks_exact: always four
        let mut k = u32::from_le_bytes(word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (at, byte) in tail.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The partition of a key among `partitions`; `partitions` is at least 1.
pub fn by_key(key: &[u8], partitions: i32) -> i32 {
    let positive = i32::try_from(murmur2(key) & 0x7fff_ffff).unwrap_or(0);
    positive.checked_rem(partitions).unwrap_or(0)
}

/// Chooses partitions for records without a key: the same one until its batch is closed.
#[derive(Clone, Debug)]
pub struct StickyPartitioner {
    state: u64,
}

impl StickyPartitioner {
    /// Starts at a partition that `seed` determines.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The partition in use among `partitions`.
    pub fn current(&self, partitions: i32) -> i32 {
        let count = u64::try_from(partitions.max(1)).unwrap_or(1);
        let mixed = self.state.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        mixed.checked_rem(count).and_then(|p| i32::try_from(p).ok()).unwrap_or(0)
    }

    /// Moves to the next partition, after a batch was closed.
    pub fn next(&mut self) {
        self.state = self.state.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_agrees_with_kafkas_own_cases() {
        // org.apache.kafka.common.utils.UtilsTest.testMurmur2
        let cases: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (key, expected) in cases {
            assert_eq!(murmur2(key.as_bytes()) as i32, expected, "{key}");
        }
    }

    #[test]
    fn a_sticky_choice_stays_until_it_is_moved_and_reaches_every_partition() {
        let mut sticky = StickyPartitioner::new(7);
        assert_eq!(sticky.current(5), sticky.current(5));
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            seen.insert(sticky.current(5));
            sticky.next();
        }
        assert_eq!(seen.len(), 5);
    }
}
