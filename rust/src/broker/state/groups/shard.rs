//! One partition of `__consumer_offsets` that this broker leads: the state of its groups and how
//! their records are written. `state::coordinator` has what all coordinators share.
//!
//! Invariant: a commit is checked, appended and applied under one hold of the shard's lock. So a
//!     commit that was checked against a group's snapshot is in the log before any thread can read
//!     the log after a newer snapshot.
//! Limits: a batch that may be split has at most half of the topic's `max.message.bytes`.

use crate::broker::state::coordinator::shard::{
    AppendedAt, CoordinatorShard, NotAppended, NotAppendedInTransaction, ShardMemory,
};
use crate::broker::state::groups::appending::GroupRecord;
use crate::broker::state::groups::offsets::OffsetKey;
use crate::broker::state::groups::records::RecordBuilder;
use crate::broker::state::groups::shard_groups::ShardGroups;
use crate::protocol::ErrorCode;
use crate::storage::Verification;

/// The topic of groups.
pub(crate) const TOPIC: &str = "__consumer_offsets";
/// The longest group id that a record's key can hold.
pub(crate) const GROUP_ID_MAX: usize = 0x7fff;

/// A shard of the group coordinator.
pub(crate) type GroupShard = CoordinatorShard<ShardGroups>;
/// The state that a shard's lock guards.
pub(crate) type GroupShardMemory = ShardMemory<ShardGroups>;

/// The error code of a commit that was not appended.
pub(crate) fn commit_error(error: NotAppended) -> ErrorCode {
    match error {
        NotAppended::TooLarge => ErrorCode::InvalidCommitOffsetSize,
        NotAppended::NotCoordinator => ErrorCode::NotCoordinator,
        NotAppended::NotEnoughReplicas => ErrorCode::CoordinatorNotAvailable,
    }
}

impl GroupShard {
    /// Appends the batch of `record_builder`. Errors: the error codes of a commit.
    pub(crate) fn append_records(
        &self,
        memory: &mut GroupShardMemory,
        record_builder: &mut RecordBuilder,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let batch = record_builder.finish().map_err(|_| ErrorCode::InvalidCommitOffsetSize)?;
        self.append(memory, batch, now_ms).map_err(commit_error)
    }

    /// Appends the batch of `record_builder` in the transaction of `producer`.
    pub(crate) fn append_in_transaction(
        &self,
        memory: &mut GroupShardMemory,
        (record_builder, producer): (&mut RecordBuilder, (i64, i16)),
        (verification, now_ms): (Verification, i64),
    ) -> Result<(), NotAppendedInTransaction> {
        let batch = record_builder.finish_in(producer).map_err(|_| NotAppended::TooLarge)?;
        self.append_verified(memory, batch, (verification, now_ms))
    }

    /// Appends the records of one group as one batch, and removes the offsets that they delete.
    pub(crate) fn write(
        &self,
        memory: &mut GroupShardMemory,
        (group_id, records): (&str, &[GroupRecord]),
        now_ms: i64,
    ) -> Result<AppendedAt, ErrorCode> {
        let mut record_builder = RecordBuilder::default();
        record_builder.begin(now_ms);
        let mut gone = Vec::new();
        for record in records {
            match record {
                GroupRecord::Metadata(value) => record_builder.group(group_id, value.as_ref())?,
                GroupRecord::Consumer { kind, key, value } => {
                    record_builder.consumer(group_id, (*kind, key, value.as_ref()))?;
                }
                GroupRecord::DropOffsets => {
                    let keys = memory.kept.keys_of(group_id);
                    gone = self.write_tombstones(memory, &mut record_builder, (keys, now_ms))?;
                }
            }
        }
        if !record_builder.is_empty() {
            self.append_records(memory, &mut record_builder, now_ms)?;
        }
        memory.kept.remove_all(&gone);
        Ok(self.end(memory))
    }

    /// Writes tombstones. Full batches are appended, and their offsets are removed from memory.
    /// Returns the keys that are still in `record_builder`; the caller removes them after it has
    /// appended them.
    pub(crate) fn write_tombstones(
        &self,
        memory: &mut GroupShardMemory,
        record_builder: &mut RecordBuilder,
        (keys, now_ms): (Vec<OffsetKey>, i64),
    ) -> Result<Vec<OffsetKey>, ErrorCode> {
        let mut written = Vec::new();
        for key in keys {
            let (group, topic, partition) = &key;
            record_builder.offset((group, topic, *partition), None);
            written.push(key);
            self.append_if_full(memory, record_builder, now_ms)?;
            if record_builder.is_empty() {
                memory.kept.remove_all(&written);
                written.clear();
            }
        }
        Ok(written)
    }

    /// Appends the batch of `record_builder` if it is nearly full.
    fn append_if_full(
        &self,
        memory: &mut GroupShardMemory,
        record_builder: &mut RecordBuilder,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let limit = usize::try_from(self.partition.log.config().max_message_bytes);
        if record_builder.size() > limit.unwrap_or(usize::MAX) / 2 {
            self.append_records(memory, record_builder, now_ms)?;
            record_builder.begin(now_ms);
        }
        Ok(())
    }
}
