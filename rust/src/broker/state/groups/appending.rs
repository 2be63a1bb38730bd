//! What is appended to the log of a group, and where that lies.

use std::sync::Arc;

use crate::broker::state::partition::{Acks, Partition};
use crate::ids::Offset;
use crate::protocol::value::Value;

/// What the policy wants written of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupRecord {
    /// A classic group's metadata; `None`: a tombstone of it.
    Metadata(Option<Value>),
    /// A record of a consumer group.
    Consumer {
        /// What its key begins with: Kafka's number of such records.
        kind: i16,
        /// Its key, without the group's id.
        key: Value,
        /// Its value; `None`: a tombstone.
        value: Option<Value>,
    },
    /// Tombstones of all offsets that it committed.
    DropOffsets,
}

/// Where a group's records were appended, or where its log ended.
#[derive(Clone, Debug)]
pub struct AppendedAt {
    /// The group's partition.
    pub partition: Arc<Partition>,
    /// One past the last record.
    pub end: Offset,
}

impl AppendedAt {
    /// Whether the high watermark has passed it.
    pub fn is_committed(&self) -> bool {
        self.partition.acknowledged(Acks::All) >= self.end
    }
}
