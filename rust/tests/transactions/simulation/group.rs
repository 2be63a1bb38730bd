//! The coordinator of a group, and its log: a partition of `__consumer_offsets`, in which producers
//! commit offsets as parts of their transactions.
//!
//! Like the broker's, it takes an offset into memory when it is in the log, and ends those of a
//! transaction when the marker is. A successor replays the log. What it keeps in memory is the real
//! code; [`Expected`] works the same out from the markers of the log alone.

use std::collections::BTreeMap;

use crate::broker::ShardGroups;
use krust::protocol::offset_commit_key::OffsetCommitKey;
use krust::protocol::offset_commit_value::OffsetCommitValue;
use krust::wire::Writer;

use super::partition::Found;

/// The group reads these partitions.
const READ: [i32; 2] = [0, 1];
const GROUP: &str = "copier";
const TOPIC: &str = "input";

/// What the coordinator keeps in memory, and what it has taken of its log.
#[derive(Default)]
pub struct Group {
    kept: ShardGroups,
    /// How many batches the log had when it was checked last.
    checked: Option<usize>,
}

/// The partition that the group has read when it commits this offset.
fn partition_of(offset: u64) -> i32 {
    READ[usize::from(offset % 2 == 1)]
}

fn key(offset: u64) -> OffsetCommitKey<'static> {
    OffsetCommitKey { group: GROUP, topic: TOPIC, partition: partition_of(offset) }
}

fn value(offset: u64) -> OffsetCommitValue<'static> {
    OffsetCommitValue { offset: i64::try_from(offset).unwrap(), ..Default::default() }
}

/// The key and the value of an offset's record.
pub fn record(offset: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut key_bytes, mut value_bytes) = (Writer::new(), Writer::new());
    key(offset).write(1, &mut key_bytes);
    value(offset).write(3, &mut value_bytes);
    (key_bytes.buf, value_bytes.buf)
}

/// The offset in a record's value.
pub fn offset(value: &[u8]) -> u64 {
    let value = OffsetCommitValue::read(value).unwrap().unwrap();
    u64::try_from(value.offset).unwrap()
}

impl Group {
    /// An offset of a producer's transaction is in the log.
    pub fn committed(&mut self, producer_id: i64, offset: u64, record_offset: i64) {
        let at = (Some(producer_id), record_offset);
        self.kept.replay(at, &key(offset), Some(&value(offset)));
    }

    /// The marker of a producer's transaction is in the log.
    pub fn ended(&mut self, producer_id: i64, commit: bool) {
        self.kept.end_transaction(producer_id, commit);
    }

    /// Whether it has not changed since the last check.
    pub fn is_checked(&self, batches: usize) -> bool {
        self.checked == Some(batches)
    }

    /// The coordinator dies, and a successor replays the log.
    pub fn fail_over(&mut self, batches: &[Found]) {
        self.kept = ShardGroups::default();
        self.checked = None;
        for (found, at) in batches.iter().zip(0..) {
            match *found {
                Found::Record { producer_id, value } => self.committed(producer_id, value, at),
                Found::Marker { producer_id, commit } => self.ended(producer_id, commit),
            }
        }
    }

    /// G3: what OffsetFetch answers is the newest offset of a committed transaction, and a
    /// partition is unstable exactly while an open transaction has committed an offset of it.
    pub fn check(&mut self, batches: &[Found]) {
        self.checked = Some(batches.len());
        let expected = Expected::of(batches);
        for index in READ {
            let committed = self.kept.committed(GROUP, TOPIC, index);
            let wanted = expected.committed.get(&index).map(|(_, offset)| *offset);
            assert!(committed == wanted, "G3: {committed:?} is committed, not {wanted:?}");
            let is_pending = self.kept.is_pending(GROUP, TOPIC, index);
            let is_open =
                expected.open.values().flatten().any(|(_, offset)| partition_of(*offset) == index);
            assert!(is_pending == is_open, "G3: unstable {is_pending}, open {is_open}");
        }
    }
}

/// What the markers of a log say of its offsets.
#[derive(Default)]
struct Expected {
    /// The newest record of each partition in a committed transaction: its place and its offset.
    committed: BTreeMap<i32, (usize, i64)>,
    /// The records of open transactions, by their producers.
    open: BTreeMap<i64, Vec<(usize, u64)>>,
}

impl Expected {
    fn of(batches: &[Found]) -> Self {
        let mut expected = Self::default();
        for (at, found) in batches.iter().enumerate() {
            match *found {
                Found::Record { producer_id, value } => {
                    expected.open.entry(producer_id).or_default().push((at, value));
                }
                Found::Marker { producer_id, commit } => {
                    let ended = expected.open.remove(&producer_id).unwrap_or_default();
                    for (at, offset) in ended.into_iter().filter(|_| commit) {
                        let new = (at, i64::try_from(offset).unwrap());
                        let newest = expected.committed.entry(partition_of(offset)).or_insert(new);
                        *newest = new.max(*newest);
                    }
                }
            }
        }
        expected
    }
}
