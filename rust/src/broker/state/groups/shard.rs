//! The log of groups: which partition of `__consumer_offsets` a group lives in, and appends of its
//! records, each request's as one batch.
//!
//! A shard is one partition that this broker leads. Its lock is held from the check of a commit
//! over its append to the moment it is kept in memory, so that log and memory agree, and so that
//! what was checked against a fence is in the log before anybody reads behind a newer fence.
//! States of a shard:
//! ```text
//! Loading  requests are answered COORDINATOR_LOAD_IN_PROGRESS   replayed -> Ready, else -> Gone
//! Ready    requests are served; groups that the policy lost are read again meanwhile
//! Gone     NOT_COORDINATOR: the topic was deleted, or the disk is broken
//! ```
//! Threads: any; the lock is held for one append, never for a replay.
//! Not promised: that an append survives a power cut before the high watermark has passed it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::broker::errors;
use crate::broker::state::groups::appending::{AppendedAt, GroupRecord};
use crate::broker::state::groups::offsets::{Key, Offsets};
use crate::broker::state::groups::records::RecordBuilder;
use crate::broker::state::partition::{Acks, Partition};
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::record::batch::{Batch, Facts};

/// The topic of groups.
pub(crate) const TOPIC: &str = "__consumer_offsets";
/// The longest group id that a record's key can hold.
pub(crate) const GROUP_ID_MAX: usize = 0x7fff;

/// A partition of the topic that this broker leads.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) index: i32,
    pub(crate) partition: Arc<Partition>,
    /// A [`Phase`]; changed only under the lock.
    phase: AtomicU8,
    pub(crate) state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Loading,
    Ready,
    Gone,
}

/// What a shard keeps.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) offsets: Offsets,
    /// One past the last record of a group.
    pub(crate) end: Offset,
    /// Groups that the policy lost, as when an append failed: they are read again.
    pub(crate) lost: Vec<Box<str>>,
    /// Where the log ended when the last of them was lost.
    pub(crate) lost_end: Offset,
    /// Whether somebody reads already.
    pub(crate) reading: bool,
}

/// The partition of a group, of `count`: Java's hash of the id's UTF-16, without its sign.
pub(crate) fn partition_for(group_id: &str, count: usize) -> usize {
    let step = |hash: i32, unit: u16| hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    let hash = group_id.encode_utf16().fold(0, step);
    usize::try_from(hash.checked_abs().unwrap_or(0)).unwrap_or(0).checked_rem(count).unwrap_or(0)
}

impl Shard {
    pub(crate) fn new(index: i32, partition: Arc<Partition>) -> Self {
        let end = partition.log.log_end_offset();
        let is_empty = partition.log.log_start_offset() == end;
        let phase = if is_empty { Phase::Ready } else { Phase::Loading };
        let state = State { end, reading: !is_empty, ..State::default() };
        Self { index, partition, phase: AtomicU8::new(phase as u8), state: Mutex::new(state) }
    }

    /// The partition itself.
    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Loading,
            1 => Phase::Ready,
            _ => Phase::Gone,
        }
    }

    pub(crate) fn set_phase(&self, _locked: &mut State, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Nothing is kept here any more.
    pub(crate) fn leave(&self, state: &mut State) {
        self.set_phase(state, Phase::Gone);
        *state = State::default();
    }

    pub(crate) fn usable(&self) -> Result<(), ErrorCode> {
        match self.phase() {
            Phase::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            Phase::Ready if !self.partition.is_led_elsewhere() => Ok(()),
            _ => Err(ErrorCode::NotCoordinator),
        }
    }

    /// Whatever phase it is in.
    pub(crate) fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What it keeps, if it is ready.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, ErrorCode> {
        let state = self.state.lock();
        self.usable().map(|()| state)
    }

    /// Where the groups' records end now.
    pub(crate) fn end(&self, state: &State) -> AppendedAt {
        AppendedAt { partition: Arc::clone(&self.partition), end: state.end }
    }

    /// Whether all that was appended so far is committed.
    pub(crate) fn is_committed(&self, state: &State) -> bool {
        self.partition.acknowledged(Acks::All) >= state.end
    }

    /// Appends what `record_builder` wrote. The caller keeps it in memory, lets go of the lock, and
    /// then calls [`Partition::advance`]. Errors: the codes that a commit answers with.
    pub(crate) fn append(
        &self,
        state: &mut State,
        record_builder: &mut RecordBuilder,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let log = &self.partition.log;
        let too_large = ErrorCode::InvalidCommitOffsetSize;
        let batch =
            Batch::parse(record_builder.finish().map_err(|_| too_large)?).map_err(|_| too_large)?;
        if batch.size() as u64 > log.config().max_message_bytes {
            return Err(too_large);
        }
        let header = batch.header();
        let facts = Facts {
            max_timestamp: header.max_timestamp,
            offset_of_max_timestamp: 0,
            record_count: header.record_count,
            last_offset_delta: header.last_offset_delta,
            inflated: 0,
        };
        let code = |code: ErrorCode| match code {
            ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => too_large,
            _ => ErrorCode::NotCoordinator,
        };
        let appended = log.stage(&batch, &facts, now_ms);
        let appended = appended.map_err(|error| code(errors::of_append(&error)))?;
        log.commit(appended.staged).map_err(|error| code(errors::of_storage(&error)))?;
        state.end = Offset(appended.last_offset.0 + 1);
        Ok(())
    }

    pub(crate) fn write(
        &self,
        state: &mut State,
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
                    let keys = state.offsets.keys_of(group_id);
                    gone = self.write_tombstones(state, &mut record_builder, (keys, now_ms))?;
                }
            }
        }
        if !record_builder.is_empty() {
            self.append(state, &mut record_builder, now_ms)?;
        }
        state.offsets.remove_all(&gone);
        Ok(self.end(state))
    }

    /// Writes tombstones. Batches that are full are appended and their offsets forgotten; those
    /// that are still with the record_builder are returned, to be forgotten once they are appended.
    pub(crate) fn write_tombstones(
        &self,
        state: &mut State,
        record_builder: &mut RecordBuilder,
        (keys, now_ms): (Vec<Key>, i64),
    ) -> Result<Vec<Key>, ErrorCode> {
        let mut written = Vec::new();
        for key in keys {
            let (group, topic, partition) = &key;
            record_builder.offset((group, topic, *partition), None);
            written.push(key);
            self.append_if_full(state, record_builder, now_ms)?;
            if record_builder.is_empty() {
                state.offsets.remove_all(&written);
                written.clear();
            }
        }
        Ok(written)
    }

    /// Appends what `record_builder` wrote where little more would fit into a batch.
    fn append_if_full(
        &self,
        state: &mut State,
        record_builder: &mut RecordBuilder,
        now_ms: i64,
    ) -> Result<(), ErrorCode> {
        let limit = usize::try_from(self.partition.log.config().max_message_bytes);
        if record_builder.size() > limit.unwrap_or(usize::MAX) / 2 {
            self.append(state, record_builder, now_ms)?;
            record_builder.begin(now_ms);
        }
        Ok(())
    }
}
