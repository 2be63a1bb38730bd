//! One partition of a coordinator's topic that this broker leads.
//!
//! The state of a shard decides what requests receive:
//! ```text
//! Loading  COORDINATOR_LOAD_IN_PROGRESS; becomes Ready after the replay, NotHere if it fails
//! Ready    the request is served
//! NotHere  NOT_COORDINATOR: another broker leads it, the topic was deleted, or the disk failed
//! ```
//! Invariant: the lock is held from the check of a change, over its append, until it is applied in
//!     memory. The state changes under the lock only.
//! Threads: any. The lock is held for one append, never for a replay.
//! Not promised: that an append survives a power failure, unless its topic is flushed before it is
//! acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::broker::state::partition::{Acks, CommitState, Partition};
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::record::batch::{Batch, ValidationResult};
use crate::storage::{AppendError, AppendOrigin, NewBatch, Verification, VerificationGuard};

/// The state of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CoordinatorState {
    /// It is being replayed: COORDINATOR_LOAD_IN_PROGRESS.
    Loading,
    /// Requests are answered.
    Ready,
    /// Another broker leads it, or it does not exist yet: NOT_COORDINATOR.
    NotHere,
}

/// A partition of a coordinator's topic with the coordinator's state.
#[derive(Debug)]
pub(crate) struct CoordinatorShard<S> {
    /// The partition's number.
    pub(crate) index: i32,
    pub(crate) partition: Arc<Partition>,
    /// The partition's term when this broker became its leader.
    term: u32,
    /// A [`CoordinatorState`]; changed only under the lock.
    state: AtomicU8,
    kept: Mutex<ShardMemory<S>>,
}

/// What a shard's lock guards.
#[derive(Debug, Default)]
pub(crate) struct ShardMemory<S> {
    /// The coordinator's state.
    pub(crate) kept: S,
    /// One past the last record of the coordinator.
    pub(crate) end: Offset,
    /// A replay that ends before this offset reads on.
    pub(crate) replay_until: Offset,
    /// Whether a thread replays it or will replay it.
    pub(crate) is_replaying: bool,
}

/// The end of a coordinator's append, or of its log.
#[derive(Clone, Debug)]
pub struct AppendedAt {
    /// The partition of its topic.
    pub partition: Arc<Partition>,
    /// The partition's term then.
    pub(crate) term: u32,
    /// One past the last record.
    pub end: Offset,
}

/// Why a batch of a coordinator was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAppended {
    /// It is larger than the topic's `max.message.bytes`, or it cannot be encoded.
    TooLarge,
    /// The log refuses appends: the disk failed, or another broker leads it.
    NotCoordinator,
    /// Too few replicas are in sync.
    NotEnoughReplicas,
}

/// Why a batch of a producer's transaction was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAppendedInTransaction {
    /// The coordinator must confirm the transaction first.
    NotVerified(VerificationGuard),
    /// A newer producer with the same id has written.
    InvalidProducerEpoch,
    /// The transaction has ended.
    InvalidTxnState,
    Other(NotAppended),
}

impl From<NotAppended> for NotAppendedInTransaction {
    fn from(error: NotAppended) -> Self {
        Self::Other(error)
    }
}

impl From<AppendError> for NotAppendedInTransaction {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::NotVerified(guard) => Self::NotVerified(guard),
            AppendError::InvalidProducerEpoch { .. } => Self::InvalidProducerEpoch,
            AppendError::InvalidTxnState(_) => Self::InvalidTxnState,
            AppendError::TooLarge { .. } | AppendError::SegmentTooSmall { .. } => {
                Self::Other(NotAppended::TooLarge)
            }
            _ => Self::Other(NotAppended::NotCoordinator),
        }
    }
}

impl AppendedAt {
    /// An append up to `end` in the present term of a partition.
    pub(crate) fn now(partition: &Arc<Partition>, end: Offset) -> Self {
        Self { partition: Arc::clone(partition), term: partition.term(), end }
    }

    /// Whether the high watermark has passed it.
    pub fn is_committed(&self) -> bool {
        self.partition.is_acknowledged(Acks::All, (self.term, self.end))
    }

    /// Whether it cannot be committed now: see `CommitState`.
    pub(crate) fn is_held_up(&self) -> bool {
        !self.partition.can_commit() && !self.is_committed()
    }

    /// Whether it will never be committed: this broker ceased to lead, or the disk failed.
    pub(crate) fn is_lost(&self) -> bool {
        let is_over = self.partition.term() != self.term || self.partition.log.is_offline();
        is_over && !self.is_committed()
    }
}

impl<S: Default> CoordinatorShard<S> {
    /// A shard. It is ready if its log is empty, else it must be replayed.
    pub(crate) fn new(index: i32, partition: Arc<Partition>) -> Self {
        let end = partition.log.log_end_offset();
        let is_replaying = partition.log.log_start_offset() != end;
        let state = if is_replaying { CoordinatorState::Loading } else { CoordinatorState::Ready };
        let kept = Mutex::new(ShardMemory { end, is_replaying, ..ShardMemory::default() });
        let term = partition.term();
        Self { index, partition, term, state: AtomicU8::new(state as u8), kept }
    }

    /// Its state.
    pub(crate) fn state(&self) -> CoordinatorState {
        match self.state.load(Ordering::Acquire) {
            0 => CoordinatorState::Loading,
            1 => CoordinatorState::Ready,
            _ => CoordinatorState::NotHere,
        }
    }

    /// Changes the state, under the lock.
    pub(crate) fn set_state(&self, _locked: &mut ShardMemory<S>, state: CoordinatorState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Unloads the shard: another broker coordinates it. Its state is dropped.
    pub(crate) fn unload(&self, memory: &mut ShardMemory<S>) {
        self.set_state(memory, CoordinatorState::NotHere);
        *memory = ShardMemory::default();
    }

    /// Whether requests are served. Errors: the code that they get otherwise.
    pub(crate) fn check_ready(&self) -> Result<(), ErrorCode> {
        match self.state() {
            CoordinatorState::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            CoordinatorState::Ready if !self.partition.is_led_elsewhere() => Ok(()),
            _ => Err(ErrorCode::NotCoordinator),
        }
    }

    /// The coordinator's state, whether or not requests are served.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ShardMemory<S>> {
        self.kept.lock()
    }

    /// The coordinator's state, if requests are served.
    pub(crate) fn lock_ready(&self) -> Result<MutexGuard<'_, ShardMemory<S>>, ErrorCode> {
        let memory = self.kept.lock();
        self.check_ready().map(|()| memory)
    }

    /// The present end of the coordinator's records.
    pub(crate) fn end(&self, memory: &ShardMemory<S>) -> AppendedAt {
        let partition = Arc::clone(&self.partition);
        AppendedAt { partition, term: self.term, end: memory.end }
    }

    /// Whether all that was appended so far is committed.
    pub(crate) fn is_committed(&self, memory: &ShardMemory<S>) -> bool {
        self.partition.is_acknowledged(Acks::All, (self.term, memory.end))
    }

    /// Appends a batch. The caller then applies it in memory, releases the lock, and calls
    /// [`Partition::advance`].
    pub(crate) fn append(
        &self,
        memory: &mut ShardMemory<S>,
        batch: &[u8],
        now_ms: i64,
    ) -> Result<(), NotAppended> {
        let verification = Verification::NotRequired;
        self.append_verified(memory, batch, (verification, now_ms)).map_err(|error| match error {
            NotAppendedInTransaction::Other(error) => error,
            _ => NotAppended::NotCoordinator,
        })
    }

    /// Appends a batch that may belong to a producer's transaction.
    pub(crate) fn append_verified(
        &self,
        memory: &mut ShardMemory<S>,
        batch: &[u8],
        (verification, now_ms): (Verification, i64),
    ) -> Result<(), NotAppendedInTransaction> {
        let log = &self.partition.log;
        match self.partition.commit_state() {
            CommitState::Possible => {}
            CommitState::TooFewInSync => return Err(NotAppended::NotEnoughReplicas.into()),
            CommitState::CutOff => return Err(NotAppended::NotCoordinator.into()),
        }
        let batch = Batch::parse(batch).map_err(|_| NotAppended::TooLarge)?;
        if batch.size() as u64 > log.config().max_message_bytes {
            return Err(NotAppended::TooLarge.into());
        }
        let header = batch.header();
        let validated = ValidationResult {
            max_timestamp: header.max_timestamp,
            offset_of_max_timestamp: 0,
            record_count: header.record_count,
            last_offset_delta: header.last_offset_delta,
            inflated: 0,
        };
        let new = NewBatch::new(&batch, &validated, now_ms);
        let appended = log.stage(&new.from(AppendOrigin::Coordinator(verification)))?;
        log.commit(appended.staged).map_err(|_| NotAppended::NotCoordinator)?;
        memory.end = Offset(appended.last_offset.0 + 1);
        Ok(())
    }
}
