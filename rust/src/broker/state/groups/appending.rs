//! Builds the records that the policy appends to the log of a group.

use crate::protocol::value::Value;

/// A record that the policy appends for a group.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupRecord {
    /// A classic group's metadata; `None`: a tombstone of it.
    Metadata(Option<Value>),
    /// A record of a consumer group.
    Consumer {
        /// Kafka's number of the kind, with which the key begins.
        kind: i16,
        /// Its key, without the group's id.
        key: Value,
        /// Its value; `None`: a tombstone.
        value: Option<Value>,
    },
    /// Tombstones of all offsets that it committed.
    DropOffsets,
}
