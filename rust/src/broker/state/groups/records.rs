//! The records of `__consumer_offsets` in Kafka's layout. Keys and values begin with their version
//! and are encoded from `rust/schema/records/`.
//!
//! ```text
//! key 0, 1  group, topic, partition  value 0-4  a committed offset; written as 1 if it has its own
//!                                               expiry timestamp, else as 3, like Kafka 3.9
//! key 2     group                    value 0-4  a classic group's metadata; written as 3
//! 3-8, 16   group and more           value 0    consumer groups, see `kinds`
//! ```
//! Keys of other versions (share and streams groups) are ignored. A record without a value is a
//! tombstone.
//! Not promised: that versions later than Kafka 4.3's are understood.

use crate::broker::state::groups::kinds;
use crate::protocol::ErrorCode;
use crate::protocol::group_metadata_key::GroupMetadataKey;
use crate::protocol::group_metadata_value::GroupMetadataValue;
use crate::protocol::offset_commit_key::OffsetCommitKey;
use crate::protocol::offset_commit_value::OffsetCommitValue;
use crate::protocol::value::{Value, ValueError};
use crate::record::RecordError;
use crate::record::batch::{BatchBuilder, BatchFields, NewRecord};
use crate::wire::{DecodeError, Writer};

const OFFSET_KEY: i16 = 1;
const OFFSET_VALUE: i16 = 3;
const OFFSET_VALUE_WITH_EXPIRY: i16 = 1;
const GROUP_KEY: i16 = 2;
const GROUP_VALUE: i16 = 3;
/// The first version of a group's metadata that has a rebalance timeout of its own.
const REBALANCE_TIMEOUT_FROM: i16 = 1;

/// A record of the topic, decoded as far as the broker needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GroupRecordView<'a> {
    /// An offset, or its tombstone.
    Offset(OffsetCommitKey<'a>, Option<OffsetCommitValue<'a>>),
    /// A group's metadata as bytes, or its tombstone.
    Group(&'a str, Option<&'a [u8]>),
    /// A consumer group's record as bytes, by its whole key, or its tombstone.
    Consumer(&'a str, &'a [u8], Option<&'a [u8]>),
    /// A record of another coordinator.
    Other,
}

/// Reads a record. Errors: the key or the value does not have the layout of its version.
pub(crate) fn read<'a>(
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
) -> Result<GroupRecordView<'a>, DecodeError> {
    let key = key.unwrap_or_default();
    match key {
        [0, 0 | 1, ..] => {
            let Some(key) = OffsetCommitKey::read(key)? else { return Ok(GroupRecordView::Other) };
            let Some(value) = value else { return Ok(GroupRecordView::Offset(key, None)) };
            let value = OffsetCommitValue::read(value)?;
            Ok(value
                .map_or(GroupRecordView::Other, |value| GroupRecordView::Offset(key, Some(value))))
        }
        [0, 2, ..] => {
            let key = GroupMetadataKey::read(key)?;
            Ok(key.map_or(GroupRecordView::Other, |key| GroupRecordView::Group(key.group, value)))
        }
        [_, _, ..] => {
            let group = kinds::group_of(key)?;
            Ok(group.map_or(GroupRecordView::Other, |group| {
                GroupRecordView::Consumer(group, key, value)
            }))
        }
        _ => Ok(GroupRecordView::Other),
    }
}

/// A group's metadata as the policy sees it: the fields of the newest version, whatever version the
/// record has. `None`: the version is unknown.
pub(crate) fn metadata(value: &[u8]) -> Result<Option<Value>, DecodeError> {
    let Some(mut metadata) = GroupMetadataValue::read(value)? else { return Ok(None) };
    if matches!(value, [0, version, ..] if i16::from(*version) < REBALANCE_TIMEOUT_FROM) {
        for member in &mut metadata.members {
            member.rebalance_timeout = member.session_timeout;
        }
    }
    Ok(Some(metadata.to_value(GROUP_VALUE)))
}

/// Writes the records of one group as one batch. It keeps its buffers for the next batch.
#[derive(Debug, Default)]
pub(crate) struct RecordBuilder {
    builder: BatchBuilder,
    key: Writer,
    value: Writer,
    now_ms: i64,
    /// Whether Kafka would count the records from sequence 0, though no producer wrote them.
    counted: bool,
    bytes: Vec<u8>,
}

/// The most memory that a buffer keeps between batches.
const KEPT: usize = 64 << 10;

impl RecordBuilder {
    /// Begins a batch with this timestamp.
    pub(crate) fn begin(&mut self, now_ms: i64) {
        self.builder.clear();
        self.now_ms = now_ms;
        self.counted = false;
    }

    /// Whether there is no record yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// The number of records.
    pub(crate) fn count(&self) -> i32 {
        self.builder.count()
    }

    /// The present size of the batch in bytes.
    pub(crate) fn size(&self) -> usize {
        self.builder.size()
    }

    /// Adds an offset, or its tombstone.
    pub(crate) fn offset(&mut self, key: (&str, &str, i32), value: Option<&OffsetCommitValue<'_>>) {
        let (group, topic, partition) = key;
        self.key.buf.clear();
        OffsetCommitKey { group, topic, partition }.write(OFFSET_KEY, &mut self.key);
        self.value.buf.clear();
        if let Some(value) = value {
            let expires = value.expire_timestamp >= 0;
            let version = if expires { OFFSET_VALUE_WITH_EXPIRY } else { OFFSET_VALUE };
            value.write(version, &mut self.value);
        }
        self.counted = true;
        self.add(value.is_some());
    }

    /// Adds a group's metadata, or its tombstone. Errors: the value is malformed.
    pub(crate) fn group(&mut self, group: &str, value: Option<&Value>) -> Result<(), ErrorCode> {
        self.key.buf.clear();
        GroupMetadataKey { group }.write(GROUP_KEY, &mut self.key);
        self.value.buf.clear();
        if let Some(value) = value {
            let metadata = GroupMetadataValue::from_value(value);
            let metadata = metadata.map_err(|error| malformed_record(group, &error))?;
            metadata.write(GROUP_VALUE, &mut self.value);
        }
        self.add(value.is_some());
        Ok(())
    }

    /// Adds a record of a consumer group, or its tombstone. Errors: the kind is unknown, or the key
    /// or the value is malformed.
    pub(crate) fn consumer(
        &mut self,
        group: &str,
        (kind, key, value): (i16, &Value, Option<&Value>),
    ) -> Result<(), ErrorCode> {
        let Some(kind) = kinds::find(kind) else {
            tracing::error!(group, "the policy's record of a group: no kind {kind}");
            return Err(ErrorCode::UnknownServerError);
        };
        self.key.buf.clear();
        let key = kind.write_key((group, key), &mut self.key);
        key.map_err(|error| malformed_record(group, &error))?;
        self.value.buf.clear();
        if let Some(value) = value {
            let value = kind.write_value(value, &mut self.value);
            value.map_err(|error| malformed_record(group, &error))?;
        }
        self.counted = true;
        self.add(value.is_some());
        Ok(())
    }

    fn add(&mut self, has_value: bool) {
        self.builder.add(&NewRecord {
            timestamp: self.now_ms,
            key: Some(&self.key.buf),
            value: has_value.then_some(&self.value.buf),
            headers: &[],
        });
    }

    /// The finished batch of a producer's open transaction.
    pub(crate) fn finish_in(&mut self, producer: (i64, i16)) -> Result<&[u8], RecordError> {
        let (producer_id, producer_epoch) = producer;
        self.finish_as(&BatchFields {
            producer_id,
            producer_epoch,
            base_sequence: 0,
            transactional: true,
            ..BatchFields::default()
        })
    }

    /// The finished batch. Kafka numbers the records of commits and of consumer groups in sequence,
    /// but not the metadata of classic groups.
    pub(crate) fn finish(&mut self) -> Result<&[u8], RecordError> {
        let base_sequence = if self.counted { 0 } else { -1 };
        self.finish_as(&BatchFields { base_sequence, ..BatchFields::default() })
    }

    fn finish_as(&mut self, fields: &BatchFields) -> Result<&[u8], RecordError> {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.builder.finish(fields, &mut self.bytes)?;
        Ok(&self.bytes)
    }
}

/// The policy's record is malformed.
fn malformed_record(group: &str, error: &ValueError) -> ErrorCode {
    tracing::error!(group, "the policy's record of a group: {error}");
    ErrorCode::UnknownServerError
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_builder_gives_back_the_memory_of_a_large_batch() {
        let mut record_builder = RecordBuilder::default();
        let metadata = "x".repeat(30_000);
        let large = OffsetCommitValue { metadata: &metadata, ..OffsetCommitValue::default() };
        for (count, value) in [(10, Some(&large)), (1, None)] {
            record_builder.begin(0);
            (0..count).for_each(|partition| record_builder.offset(("g", "t", partition), value));
            let size = record_builder.finish().unwrap().len();
            assert_eq!(size > KEPT, value.is_some());
            assert_eq!(record_builder.bytes.capacity() > KEPT, value.is_some());
        }
    }
}
