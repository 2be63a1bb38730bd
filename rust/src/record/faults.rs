//! All that is wrong with the records of a batch that [`check`](super::batch::check) refused.
//!
//! A check ends at the first bad record; producers are told of each (KIP-467), so that they can
//! leave those out and send the rest again. This reads the batch once more, all of it.
//! Not promised: a batch whose records cannot be read lists those before the place.

use super::batch::Batch;
use super::check::{Bounds, Rules};
use super::convert::each_record;

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A compacted topic takes no record without a key.
    NoKey,
    /// Its time, in milliseconds, lies outside the topic's bounds.
    Timestamp(i64, Bounds),
}

/// The bad records of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Index and fault of the first of them, in order; of one with both faults the key's.
    pub listed: Vec<(i32, Fault)>,
    /// How many there are in all.
    pub count: usize,
    /// Whether there is a timestamp among all of them.
    pub has_timestamps: bool,
}

impl Faults {
    /// Those of `batch`, of which the first `most` are listed.
    pub fn of(batch: &Batch<'_>, rules: &Rules, most: usize) -> Self {
        let mut found = Self::default();
        let mut index = 0;
        // Where the records end badly, what was found so far is told.
        let _ = each_record(batch, |record| {
            let time = record.timestamp;
            let bounds = rules.bounds.filter(|bounds| !bounds.allow(time));
            let fault = match bounds {
                _ if rules.need_keys && record.key.is_none() => Some(Fault::NoKey),
                bounds => bounds.map(|bounds| Fault::Timestamp(time, bounds)),
            };
            if let Some(fault) = fault {
                found.count += 1;
                found.has_timestamps |= fault != Fault::NoKey;
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
