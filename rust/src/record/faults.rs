//! Lists every bad record of a batch that [`check`](super::batch::check) refused.
//!
//! A check stops at the first bad record. The producer needs all of them (KIP-467) to send the
//! other records again, so this module reads the whole batch a second time.
//! Not promised: a complete list. A record that cannot be read ends it.

use super::batch::Batch;
use super::check::{TimestampBounds, ValidationRules};
use super::convert::each_record;

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// The record has no key, and the topic is compacted.
    NoKey,
    /// The timestamp, in milliseconds, lies outside the topic's bounds.
    Timestamp(i64, TimestampBounds),
}

/// The bad records of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFaults {
    /// Index and fault of the first bad records, in order. A missing key hides a bad timestamp.
    pub listed: Vec<(i32, RecordFault)>,
    /// Number of all bad records.
    pub count: usize,
    /// Whether any bad record has a bad timestamp.
    pub has_timestamps: bool,
}

impl RecordFaults {
    /// The bad records of `batch`; lists the first `most`.
    pub fn of(batch: &Batch<'_>, rules: &ValidationRules, most: usize) -> Self {
        let mut found = Self::default();
        let mut index = 0;
        // If a record cannot be read, the bad records before it are still reported.
        let _ = each_record(batch, |record| {
            let time = record.timestamp;
            let bounds = rules.bounds.filter(|bounds| !bounds.allow(time));
            let fault = match bounds {
                _ if rules.need_keys && record.key.is_none() => Some(RecordFault::NoKey),
                bounds => bounds.map(|bounds| RecordFault::Timestamp(time, bounds)),
            };
            if let Some(fault) = fault {
                found.count += 1;
                found.has_timestamps |= fault != RecordFault::NoKey;
                if found.listed.len() < most {
                    found.listed.push((index, fault));
                }
            }
            index += 1;
            Ok(())
        });
        found
    }
}
