//! Message sets for brokers before 0.11, which have no batches: a batch is converted to magic 0 or
//! 1 for them, and their message sets are converted to batches with the same offsets.
//!
//! Not promised: headers, which the old formats cannot hold, and for magic 0 timestamps.

use std::sync::Arc;

use super::error::{Error, Result};
use crate::record::RecordError;
use crate::record::batch::{Batch, BatchBuilder, BatchFields, NewRecord, TimestampType};
use crate::record::convert::{self, LegacyTarget};
use crate::record::legacy;

/// The most bytes that one compressed message may inflate to.
const INFLATED: usize = 256 << 20;

/// Converts a batch to a message set of an old magic.
pub(super) fn downgrade(batch: &[u8], magic: i8) -> Result<Vec<u8>> {
    let invalid = |error: RecordError| Error::Invalid(error.to_string());
    let batch = Batch::parse(batch).map_err(invalid)?;
    let (mut out, mut limit) = (Vec::new(), usize::MAX);
    let target = LegacyTarget { magic, first_offset: batch.base_offset() };
    convert::to_legacy(&batch, &target, &mut limit, &mut out).map_err(invalid)?;
    Ok(out)
}

/// Converts the messages of one magic at the start of a set to batches. A cut tail is left out.
pub fn upgrade(set: &[u8], (topic, partition): &(Arc<str>, i32)) -> Result<Vec<u8>> {
    let corrupt = |error: RecordError| Error::Refused {
        code: 2,
        subject: format!("{topic}:{partition}"),
        message: Some(error.to_string()),
    };
    let mut out = Vec::new();
    let (mut builder, mut held, mut magic) = (BatchBuilder::new(), Vec::new(), None);
    for message in legacy::iter(set) {
        let message = match message {
            Ok(message) if *magic.get_or_insert(message.magic) == message.magic => message,
            Ok(_) | Err(RecordError::Truncated { .. } | RecordError::Magic(2)) => break,
            Err(error) => return Err(corrupt(error)),
        };
        if !message.crc_ok() {
            return Err(corrupt(RecordError::Corrupt("checksum of a message")));
        }
        held.clear();
        let mut base_offset = None;
        for inner in legacy::records(&message, INFLATED, &mut held).map_err(corrupt)? {
            let base = *base_offset.get_or_insert(inner.offset);
            let (timestamp, key, value) = (inner.timestamp, inner.key, inner.value);
            let delta = i32::try_from(inner.offset - base);
            let delta = delta.map_err(|_| corrupt(RecordError::Corrupt("offsets in a wrapper")))?;
            builder.add_at(delta, &NewRecord { timestamp, key, value, headers: &[] });
        }
        if let Some(base_offset) = base_offset {
            let broker_s = message.timestamp_type() == TimestampType::LogAppendTime;
            let log_append_time = broker_s.then_some(message.timestamp);
            let fields = BatchFields { base_offset, log_append_time, ..BatchFields::default() };
            builder.finish(&fields, &mut out).map_err(corrupt)?;
            builder.clear();
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::batch;
    use crate::record::compression::Codec;

    #[test]
    fn records_survive_the_way_to_an_old_broker_and_back() {
        for (magic, codec) in
            [(0, Codec::None), (1, Codec::None), (1, Codec::Gzip), (0, Codec::Lz4)]
        {
            let mut builder = BatchBuilder::new();
            for value in ["a", "b", "c"] {
                let value = Some(value.as_bytes());
                builder.add(&NewRecord { timestamp: 7, key: None, value, headers: &[] });
            }
            let batch = builder.to_bytes(&BatchFields { codec, ..BatchFields::default() }).unwrap();
            let mut set = downgrade(&batch, magic).unwrap();
            let whole = upgrade(&set, &("t".into(), 0)).unwrap();
            let mut seen = Vec::new();
            for batch in batch::iter(&whole) {
                for record in batch.unwrap().records() {
                    let record = record.unwrap();
                    seen.push((record.offset, record.value.unwrap().to_vec()));
                }
            }
            let expected: Vec<_> =
                [(0, "a"), (1, "b"), (2, "c")].map(|(o, v)| (o, v.as_bytes().to_vec())).into();
            assert_eq!(seen, expected, "magic {magic} {codec:?}");
            set.pop(); // a tail that the broker cut
            assert!(upgrade(&set, &("t".into(), 0)).unwrap().len() < whole.len());
        }
    }
}
