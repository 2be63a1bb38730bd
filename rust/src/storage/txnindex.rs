//! The aborted transactions of a segment (`.txnindex`), in the order of their abort markers.
//! Format: entries of 34 bytes: `version int16 = 0, producer_id int64, first_offset int64,
//! last_offset int64, last_stable_offset int64`. The last offset is the marker's; the last stable
//! offset is the one after this transaction ended.
//! Threads: guarded by the segment's lock.
//! Not promised: that the file is complete after a kill of Kafka. Recovery rewrites it.

/// Bytes of an entry.
pub const ENTRY_SIZE: usize = 34;

/// A transaction that ended in an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTxn {
    /// The producer.
    pub producer_id: i64,
    /// The offset of its first record.
    pub first_offset: i64,
    /// The offset of its abort marker.
    pub last_offset: i64,
    /// The last stable offset after it ended.
    pub last_stable_offset: i64,
}

impl AbortedTxn {
    fn read(bytes: &[u8; ENTRY_SIZE]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<2>()?;
        let (producer_id, rest) = rest.split_first_chunk()?;
        let (first_offset, rest) = rest.split_first_chunk()?;
        let (last_offset, rest) = rest.split_first_chunk()?;
        let last_stable_offset = rest.first_chunk()?;
        let entry = Self {
            producer_id: i64::from_be_bytes(*producer_id),
            first_offset: i64::from_be_bytes(*first_offset),
            last_offset: i64::from_be_bytes(*last_offset),
            last_stable_offset: i64::from_be_bytes(*last_stable_offset),
        };
        let sane = *version == [0, 0] && (0..=entry.last_offset).contains(&entry.first_offset);
        sane.then_some(entry)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.first_offset.to_be_bytes());
        out.extend_from_slice(&self.last_offset.to_be_bytes());
        out.extend_from_slice(&self.last_stable_offset.to_be_bytes());
    }
}

/// Reads a file's bytes; `None` if they are not an index.
pub fn parse(bytes: &[u8]) -> Option<Vec<AbortedTxn>> {
    let (chunks, rest) = bytes.as_chunks::<ENTRY_SIZE>();
    let entries: Option<Vec<AbortedTxn>> = chunks.iter().map(AbortedTxn::read).collect();
    entries.filter(|list| rest.is_empty() && list.is_sorted_by_key(|entry| entry.last_offset))
}

/// The file's bytes.
pub fn to_bytes(entries: &[AbortedTxn]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY_SIZE);
    entries.iter().for_each(|entry| entry.write(&mut bytes));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_the_round_trip() {
        let entry = |n| AbortedTxn {
            producer_id: 2,
            first_offset: n,
            last_offset: n + 10,
            last_stable_offset: n + 11,
        };
        let bytes = to_bytes(&[entry(11), entry(44)]);
        assert_eq!(bytes.len(), 68);
        assert_eq!(parse(&bytes), Some(vec![entry(11), entry(44)]));
        assert_eq!(parse(&bytes[..60]), None);
        assert_eq!(parse(&to_bytes(&[entry(44), entry(11)])), None);
    }
}
