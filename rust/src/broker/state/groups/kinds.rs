//! The kinds of records of consumer groups (KIP-848) in `__consumer_offsets`. A record's key begins
//! with its kind, its value with version 0. `rust/schema/records/` has the layouts.
//!
//! ```text
//!  3 group            its epoch            6 group          the epoch of the target assignment
//!  4 group            topics, before 4.1   7 group, member  the member's target assignment
//!  5 group, member    its subscription     8 group, member  the member's current assignment
//! 16 group, pattern   the topics that a regular expression matches
//! ```
//! Every key begins with the group's id. The policy sees keys without it.
//! Not promised: that the records of a group are consistent. The policy checks that.

use crate::protocol::value::{Value, ValueError};
use crate::protocol::{
    AnyCodec, consumer_group_current_member_assignment_key as current_key,
    consumer_group_current_member_assignment_value as current_value,
    consumer_group_member_metadata_key as member_key,
    consumer_group_member_metadata_value as member_value, consumer_group_metadata_key as group_key,
    consumer_group_metadata_value as group_value,
    consumer_group_partition_metadata_key as partition_key,
    consumer_group_partition_metadata_value as partition_value,
    consumer_group_regular_expression_key as pattern_key,
    consumer_group_regular_expression_value as pattern_value,
    consumer_group_target_assignment_member_key as target_member_key,
    consumer_group_target_assignment_member_value as target_member_value,
    consumer_group_target_assignment_metadata_key as target_key,
    consumer_group_target_assignment_metadata_value as target_value,
};
use crate::wire::{DecodeError, Reader, Sink, Writer};

/// The kind of record that exists as long as its consumer group.
pub(crate) const GROUP_EPOCH: i16 = 3;
/// The version of all values.
const VALUE: i16 = 0;
/// The field of a key that names the group.
const GROUP_ID: &str = "group_id";

/// One kind of record.
#[derive(Debug)]
pub(crate) struct ConsumerRecordKind {
    /// The number with which its keys begin.
    number: i16,
    key: &'static AnyCodec,
    value: &'static AnyCodec,
}

static KINDS: [ConsumerRecordKind; 7] = [
    ConsumerRecordKind { number: GROUP_EPOCH, key: &group_key::CODEC, value: &group_value::CODEC },
    ConsumerRecordKind { number: 4, key: &partition_key::CODEC, value: &partition_value::CODEC },
    ConsumerRecordKind { number: 5, key: &member_key::CODEC, value: &member_value::CODEC },
    ConsumerRecordKind { number: 6, key: &target_key::CODEC, value: &target_value::CODEC },
    ConsumerRecordKind {
        number: 7,
        key: &target_member_key::CODEC,
        value: &target_member_value::CODEC,
    },
    ConsumerRecordKind { number: 8, key: &current_key::CODEC, value: &current_value::CODEC },
    ConsumerRecordKind { number: 16, key: &pattern_key::CODEC, value: &pattern_value::CODEC },
];

/// The kind with this number.
pub(crate) fn find(number: i16) -> Option<&'static ConsumerRecordKind> {
    KINDS.iter().find(|kind| kind.number == number)
}

/// The group that a key names; `None`: the key is of no kind of consumer groups.
pub(crate) fn group_of(key: &[u8]) -> Result<Option<&str>, DecodeError> {
    let mut reader = Reader::new(key);
    match find(reader.i16()?) {
        Some(_) => reader.string(false).map(Some),
        None => Ok(None),
    }
}

/// A record as the policy sees it: kind, key, value. `None`: the version of its value is unknown.
pub(crate) fn read(key: &[u8], value: &[u8]) -> Result<Option<(i16, Value, Value)>, DecodeError> {
    let (mut key, mut value) = (Reader::new(key), Reader::new(value));
    let (Some(kind), VALUE) = (find(key.i16()?), value.i16()?) else { return Ok(None) };
    let mut fields = (kind.key.decode)(key.rest(), kind.number)?;
    if let Value::Map(fields) = &mut fields {
        fields.retain(|(name, _)| name != GROUP_ID);
    }
    Ok(Some((kind.number, fields, (kind.value.decode)(value.rest(), VALUE)?)))
}

impl ConsumerRecordKind {
    /// Appends the key of a record of a group.
    pub(crate) fn write_key(
        &self,
        (group_id, key): (&str, &Value),
        writer: &mut Writer,
    ) -> Result<(), ValueError> {
        let mut key = key.clone();
        if let Value::Map(fields) = &mut key {
            fields.push((GROUP_ID.into(), Value::Str(group_id.to_owned())));
        }
        writer.i16(self.number);
        (self.key.encode)(&key, self.number, writer)
    }

    /// Appends the value of a record.
    pub(crate) fn write_value(&self, value: &Value, writer: &mut Writer) -> Result<(), ValueError> {
        writer.i16(VALUE);
        (self.value.encode)(value, VALUE, writer)
    }
}
