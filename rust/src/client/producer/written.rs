//! Where the acknowledged records of a transaction are.

use std::collections::BTreeMap;

use crate::client::metadata::PartitionKey;

/// Where records of a transaction are in one partition. Records of others may be between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenRange {
    /// The offset of the first record.
    pub first: i64,
    /// The offset of the last record.
    pub last: i64,
    /// How many there are.
    pub records: i64,
}

/// A transaction that is open, with all records delivered.
#[derive(Clone, Debug)]
pub struct PreparedTransaction {
    /// The producer id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Whether the transaction has version 2: EndTxn 5 ends it, otherwise EndTxn 4 or less.
    pub is_v2: bool,
    /// By partition, where its records are.
    pub written: Vec<(PartitionKey, WrittenRange)>,
}

/// The records of a transaction by partition.
#[derive(Debug, Default)]
pub(super) struct WrittenRecords {
    pub(super) ranges: BTreeMap<PartitionKey, WrittenRange>,
    /// A broker acknowledged a batch without its offset.
    pub(super) is_unsure: bool,
}

impl WrittenRecords {
    pub(super) fn add(&mut self, key: &PartitionKey, base_offset: i64, count: i32) {
        if base_offset < 0 {
            self.is_unsure = true;
            return;
        }
        let count = i64::from(count);
        let last = base_offset + count - 1;
        let range = self.ranges.entry(key.clone()).or_insert(WrittenRange {
            first: base_offset,
            last,
            records: 0,
        });
        range.first = range.first.min(base_offset);
        range.last = range.last.max(last);
        range.records += count;
    }
}
