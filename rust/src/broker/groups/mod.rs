//! Groups: the part of the coordinator that is fast and decides nothing. Committed offsets, their
//! records in `__consumer_offsets`, the fences that the policy publishes, and replay.
//!
//! ```text
//! log      which partition a group lives in; appends   records  keys and values, as bytes
//! offsets  what a group has committed                  replay   from the log into memory
//! fences   who may commit, as published                epochs   the same of consumer groups
//! sessions whose time is up                            waiting  replies that wait for the log
//! expiry   offsets that have lived long enough         kinds    records of consumer groups
//! coordinate  what was decided, in order: records, fences, replies
//! ```
//! Each partition of `__consumer_offsets` that this broker leads is a [`log::Shard`] behind a lock
//! of its own: under it a commit is checked, appended and kept, in one order for log and memory.
//! Invariant: a shard's lock is taken before a lock of the fences, never after.
//! Threads: reactors (commits, fetches), the policy thread (`append_group_records`), the loader.
//! Not promised: anything before the partition is loaded; that is `GroupState::Loading`.

mod coordinate;
mod epochs;
mod expiry;
pub(crate) mod fences;
mod kinds;
mod log;
mod offsets;
mod records;
mod replay;
mod sessions;
pub(crate) mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};

use arc_swap::ArcSwap;

use super::Broker;
use super::partition::{Acks, Partition};
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::protocol::value::Value;
pub use coordinate::{Decided, WrongReply};
use fences::Fences;
pub use fences::{FenceMember, FenceRow, FenceState, GroupKind, Role};

pub(crate) use log::{GROUP_ID_MAX, Shard, TOPIC, partition_for};
pub(crate) use offsets::{GroupOffsets, METADATA_MAX, Stored};
pub(crate) use records::Pen;

/// What a group's coordinator keeps here.
#[derive(Debug, Default)]
pub struct Groups {
    /// Who may commit and heartbeat.
    pub(crate) fences: Fences,
    shards: ArcSwap<log::Shards>,
    /// Until when (monotonic) requests wait for what is being read since the start; 0: no longer.
    pub(super) wait_until_ms: AtomicI64,
    /// Set when the broker closes, so that a replay ends.
    pub(super) stopping: AtomicBool,
}

/// Memory that one reactor thread uses again from request to request.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) pen: Pen,
    pub(crate) codes: Vec<ErrorCode>,
}

/// How far the partition of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// It is being replayed: COORDINATOR_LOAD_IN_PROGRESS.
    Loading,
    /// Requests are answered.
    Ready,
    /// Another broker leads it, or it does not exist yet: NOT_COORDINATOR.
    NotHere,
}

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

/// Told once that an append is committed, or that it never will be. It must not block.
pub type Committed = Box<dyn FnOnce(Result<(), ErrorCode>) + Send>;

impl AppendedAt {
    /// Whether the high watermark has passed it.
    pub fn is_committed(&self) -> bool {
        self.partition.acknowledged(Acks::All) >= self.end
    }
}

impl Broker {
    /// How far the partition of a group is.
    pub fn group_state(&self, group_id: &str) -> GroupState {
        self.groups.state(group_id)
    }

    /// Appends what the policy wants written of a group as one batch. Without records: where the
    /// log of its partition ends, so that a reply can wait for what it was made from.
    ///
    /// Errors: nothing was appended; the group is replayed and handed to the policy again.
    pub fn append_group_records(
        &self,
        group_id: &str,
        records: &[GroupRecord],
    ) -> Result<AppendedAt, ErrorCode> {
        self.append_of_group(group_id, records)
    }

    /// Runs `action` once the high watermark has passed `at`: now, or on the thread that moves it.
    pub fn when_committed(&self, at: &AppendedAt, action: Committed) {
        at.partition.when(at.end, action);
    }
}
