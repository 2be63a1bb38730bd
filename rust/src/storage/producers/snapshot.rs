//! Snapshots of a partition's producers (`.snapshot`). They let a start read less of the log.
//! Format: `version int16 = 1, crc uint32 (CRC-32C of what follows), count int32`,
//! and per producer `producer_id int64, epoch int16, last_sequence int32, last_offset int64,
//! offset_delta int32, timestamp int64, coordinator_epoch int32, current_txn_first_offset int64`.
//! A producer has an entry for each of its last five batches, oldest first, so that a retry is
//! recognised after a restart too. Kafka writes the last one alone, and takes the last it reads.
//! Threads: guarded by the partition's lock.

use super::{NOTHING, ProducerEntry, Producers, SequenceRange};
use crate::record::crc::crc32c;

const VERSION: i16 = 1;
const ENTRY_SIZE: usize = 46;
const NO_TXN: i64 = -1;

impl ProducerEntry {
    /// Appends its entries to the body of a snapshot. Returns their number.
    fn put_entries(&self, id: i64, body: &mut Vec<u8>) -> i32 {
        let newest = SequenceRange { timestamp: self.last_timestamp, ..NOTHING };
        let newest = self
            .last()
            .map_or(newest, |last| SequenceRange { timestamp: self.last_timestamp, ..*last });
        let older = self.kept().split_last().map_or(&[][..], |(_, older)| older);
        let open = (NO_TXN, self.txn_first_offset.unwrap_or(NO_TXN));
        let entries = older.iter().map(|range| (range, open.0)).chain([(&newest, open.1)]);
        let mut count = 0;
        for (range, txn_first_offset) in entries {
            body.extend_from_slice(&id.to_be_bytes());
            body.extend_from_slice(&self.epoch.to_be_bytes());
            body.extend_from_slice(&range.last_sequence.to_be_bytes());
            body.extend_from_slice(&range.last_offset.to_be_bytes());
            body.extend_from_slice(&range.offset_delta.to_be_bytes());
            body.extend_from_slice(&range.timestamp.to_be_bytes());
            body.extend_from_slice(&self.coordinator_epoch.to_be_bytes());
            body.extend_from_slice(&txn_first_offset.to_be_bytes());
            count += 1;
        }
        count
    }
}

impl Producers {
    /// A snapshot's bytes; staged batches count as written.
    pub(crate) fn to_snapshot(&self) -> Vec<u8> {
        let mut body = vec![0; 4];
        let mut count = 0_i32;
        for (id, producer) in &self.known {
            let Some(more) = count.checked_add(producer.put_entries(*id, &mut body)) else { break };
            count = more;
        }
        body.splice(..4, count.to_be_bytes());
        let mut bytes = VERSION.to_be_bytes().to_vec();
        bytes.extend_from_slice(&crc32c(&body).to_be_bytes());
        bytes.append(&mut body);
        bytes
    }

    /// Reads a snapshot's bytes; `None` if they are torn or of another version.
    pub(crate) fn from_snapshot(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<2>()?;
        let (crc, body) = rest.split_first_chunk::<4>()?;
        if i16::from_be_bytes(*version) != VERSION || u32::from_be_bytes(*crc) != crc32c(body) {
            return None;
        }
        let (count, rest) = body.split_first_chunk::<4>()?;
        let (entries, tail) = rest.as_chunks::<ENTRY_SIZE>();
        if usize::try_from(i32::from_be_bytes(*count)) != Ok(entries.len()) || !tail.is_empty() {
            return None;
        }
        let mut producers = Self::default();
        entries.iter().try_for_each(|entry| producers.read_entry(entry))?;
        Some(producers)
    }

    fn read_entry(&mut self, entry: &[u8; ENTRY_SIZE]) -> Option<()> {
        let (id, rest) = entry.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (last_sequence, rest) = rest.split_first_chunk()?;
        let (last_offset, rest) = rest.split_first_chunk()?;
        let (offset_delta, rest) = rest.split_first_chunk()?;
        let (timestamp, rest) = rest.split_first_chunk()?;
        let (coordinator_epoch, rest) = rest.split_first_chunk()?;
        let first = i64::from_be_bytes(*rest.first_chunk()?);
        let (id, epoch) = (i64::from_be_bytes(*id), i16::from_be_bytes(*epoch));
        let mut producer = self.known.get(&id).copied().unwrap_or(ProducerEntry::new(epoch));
        producer.bump(epoch);
        producer.coordinator_epoch = i32::from_be_bytes(*coordinator_epoch);
        producer.last_timestamp = i64::from_be_bytes(*timestamp);
        let last_offset = i64::from_be_bytes(*last_offset);
        if last_offset >= 0 {
            producer.keep(SequenceRange {
                last_sequence: i32::from_be_bytes(*last_sequence),
                offset_delta: i32::from_be_bytes(*offset_delta),
                last_offset,
                timestamp: producer.last_timestamp,
            });
        }
        if first >= 0 {
            producer.txn_first_offset = Some(first);
            self.open.insert(first, id);
        }
        self.known.insert(id, producer);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KEPT, tests::header};
    use super::*;

    #[test]
    fn snapshots_survive_the_round_trip() {
        let mut producers = Producers::default();
        producers.note(&header(0, 4, 10), false);
        producers.note(&header(5, 0, 15), true);
        let bytes = producers.to_snapshot();
        let back = Producers::from_snapshot(&bytes).expect("reads");
        assert_eq!(back.active_producers(), producers.active_producers());
        assert_eq!(back.first_unstable(), Some(15));
        assert_eq!(Producers::default().to_snapshot().len(), 10);
        for cut in 0..bytes.len() {
            assert!(Producers::from_snapshot(&bytes[..cut]).is_none());
        }
    }

    #[test]
    fn a_snapshot_has_the_last_five_batches_of_each_producer() {
        let mut producers = Producers::default();
        for number in 0..7 {
            producers.note(&header(number, 0, i64::from(number) * 3), false);
        }
        let back = Producers::from_snapshot(&producers.to_snapshot()).expect("reads");
        assert_eq!(back.known, producers.known);
        assert_eq!(back.known[&7].kept().len(), KEPT);
    }
}
