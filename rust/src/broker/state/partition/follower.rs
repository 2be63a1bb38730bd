//! The follower's side of a partition: runs [`FollowerReplica`] and carries out its effects on the
//! log.
//!
//! A fetcher asks [`Partition::follower_request`], sends the question to the leader, and hands the
//! answer to [`Partition::leader_answered`]. An answer has an effect only if the same question
//! would be asked now. So an answer that comes after the role, the leader or the log has changed
//! is ignored.
//! Invariant: the log end that a question names is on the disk, where acknowledgements wait for the
//!     disk (`krust.flush.mode=ack`, `flush.messages=1`).
//! Threads: any but a network thread, because appends and truncations go to the disk. A step
//!     holds the lock of the replica; nothing is woken under it.

use std::sync::atomic::Ordering;

use super::{CommitState, Partition, Replica, ReplicaRole, WatchScope};
use crate::broker::replica::follower::{
    FollowerEffect, FollowerReplica, FollowerRequest, LeaderAnswer, restart_offset,
};
use crate::broker::state::waking::{Waker, Wakes};
use crate::ids::{Epoch, Offset};
use crate::record::batch::Batch;
use crate::storage::{AppendError, ReadError, StorageError};

/// A follower, and what it knows of its leader.
pub(crate) struct FollowingReplica {
    steps: FollowerReplica,
    /// The leader's high watermark, as far as it answered in this epoch.
    leader_high_watermark: Offset,
}

/// A leader's answer, with the question.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest<'a> {
    /// What the leader was asked.
    pub request: FollowerRequest,
    /// What it answered.
    pub answer: LeaderAnswer,
    /// The batches that came with the answer.
    pub records: &'a [u8],
}

/// What the fetcher does with a partition next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerStep {
    /// It asks the next question.
    Next,
    /// It asks later: the leader cannot answer now.
    Later,
    /// It asks no more: this broker does not follow any more, or another leader was elected.
    End,
}

impl FollowingReplica {
    fn new(leader_epoch: Epoch, truncates_by_fetch: bool) -> Self {
        let steps = FollowerReplica::new(leader_epoch, truncates_by_fetch);
        Self { steps, leader_high_watermark: Offset::NONE }
    }
}

impl Partition {
    /// Makes this broker a follower in a leader epoch. No producer's batch is appended any more.
    /// After the image has changed, [`Partition::abandon`] wakes the waiting requests.
    pub(crate) fn follow(&self, leader_epoch: Epoch) {
        self.run_commit_callbacks();
        let mut replica = self.replica.lock();
        if let Replica::Follower(follower) = &*replica
            && follower.steps.leader_epoch() >= leader_epoch
        {
            return;
        }
        self.end_leadership(ReplicaRole::Follower);
        self.log.stop_leading();
        *replica = Replica::Follower(FollowingReplica::new(leader_epoch, true));
        self.set_commit_state(CommitState::Possible);
    }

    /// Whether this replica is throttled as a follower.
    pub fn is_follower_throttled(&self) -> bool {
        self.is_follower_throttled.load(Ordering::Relaxed)
    }

    /// Whether the follower lacks records that its leader has committed.
    pub fn lags(&self) -> bool {
        match &*self.replica.lock() {
            Replica::Follower(follower) => {
                let high_watermark = follower.leader_high_watermark;
                high_watermark == Offset::NONE || self.log.log_end_offset() < high_watermark
            }
            _ => false,
        }
    }

    /// Whether this replica follows and may not have got the committed records below `offset` yet.
    pub(crate) fn may_get(&self, offset: Offset) -> bool {
        match &*self.replica.lock() {
            Replica::Follower(follower) => {
                let high_watermark = follower.leader_high_watermark;
                high_watermark == Offset::NONE || offset <= high_watermark
            }
            _ => false,
        }
    }

    /// A connection to the leader of this epoch is open. `truncates_by_fetch`: it knows Fetch v12.
    /// Without effect unless this broker follows in this epoch.
    pub fn begin_fetching(&self, leader_epoch: Epoch, truncates_by_fetch: bool) {
        let mut replica = self.replica.lock();
        if let Replica::Follower(follower) = &mut *replica
            && follower.steps.leader_epoch() == leader_epoch
        {
            follower.steps = FollowerReplica::new(leader_epoch, truncates_by_fetch);
        }
    }

    /// The question for the leader of this epoch; `None` if this broker does not follow in it, or
    /// has stopped to. Errors: the log cannot be flushed, so that its end may not be reported.
    pub fn follower_request(
        &self,
        leader_epoch: Epoch,
        waker: &dyn Waker,
    ) -> Result<Option<FollowerRequest>, StorageError> {
        self.settle()?;
        let replica = self.replica.lock();
        let Replica::Follower(follower) = &*replica else { return Ok(None) };
        if follower.steps.leader_epoch() != leader_epoch {
            return Ok(None);
        }
        let high_watermark = self.log.high_watermark();
        // The watermark may have waited for the flush.
        let is_raised = high_watermark < follower.leader_high_watermark
            && self.log.raise_high_watermark(follower.leader_high_watermark) > high_watermark;
        let request = follower.steps.request(&*self.log);
        drop(replica);
        if is_raised {
            self.wake(&mut Wakes { here: None, waker }, WatchScope::All);
        }
        Ok(request)
    }

    /// Applies the leader's answer to the log, and wakes the requests that wait for it.
    /// Errors: the records are refused, or the disk failed; what precedes a refused batch is
    /// appended.
    pub fn leader_answered(
        &self,
        answered: &AnsweredRequest<'_>,
        waker: &dyn Waker,
    ) -> Result<FollowerStep, AppendError> {
        let before = self.marks();
        let step = {
            let mut replica = self.replica.lock();
            let Replica::Follower(follower) = &mut *replica else { return Ok(FollowerStep::End) };
            let AnsweredRequest { request, answer, records } = *answered;
            let effect = follower.steps.answered(&*self.log, request, answer);
            if let FollowerEffect::Append { high_watermark, .. } = effect {
                follower.leader_high_watermark = high_watermark;
            }
            self.carry_out(effect, (answer, records))?
        };
        let scope = if self.marks() == before { WatchScope::LogEnd } else { WatchScope::All };
        self.wake(&mut Wakes { here: None, waker }, scope);
        Ok(step)
    }

    /// The high watermark and the log start offset, which consumers wait for.
    fn marks(&self) -> (Offset, Offset) {
        (self.log.high_watermark(), self.log.log_start_offset())
    }

    fn carry_out(
        &self,
        effect: FollowerEffect,
        (answer, records): (LeaderAnswer, &[u8]),
    ) -> Result<FollowerStep, AppendError> {
        match effect {
            FollowerEffect::Append { high_watermark, log_start } => {
                let appended = self.append_fetched(records, log_start);
                let high_watermark = self.log.raise_high_watermark(high_watermark);
                appended?;
                if log_start > self.log.log_start_offset() {
                    self.log.delete_records(log_start.min(high_watermark)).map_err(of_read)?;
                }
            }
            FollowerEffect::TruncateTo(offset) => {
                let log_end = self.log.log_end_offset();
                let end = self.log.truncate_to(offset)?;
                tracing::info!(
                    partition = %self.name, "truncated from {log_end} to {end}, where it agrees \
                     with its leader"
                );
            }
            FollowerEffect::TruncateFullyAndStartAt(offset) => {
                let log_end = self.log.log_end_offset();
                self.log.truncate_fully(offset)?;
                tracing::warn!(
                    partition = %self.name, "begins again at {offset}: its leader's log starts \
                     there, and this one ended at {log_end}"
                );
            }
            FollowerEffect::RetryLater => return Ok(FollowerStep::Later),
            FollowerEffect::Stop => return Ok(FollowerStep::End),
            FollowerEffect::None => {
                // The leader refused an offset that lies within its bounds.
                let is_refused = matches!(answer, LeaderAnswer::LogBounds { .. });
                return Ok(if is_refused { FollowerStep::Later } else { FollowerStep::Next });
            }
        }
        Ok(FollowerStep::Next)
    }

    /// Appends batches of the leader, whose log starts at `leader_log_start`.
    fn append_fetched(&self, records: &[u8], leader_log_start: Offset) -> Result<(), AppendError> {
        let first = Batch::parse(records).ok();
        let first = first.map(|it| (Offset(it.base_offset()), Offset(it.last_offset())));
        if let Some(offset) = restart_offset(&*self.log, leader_log_start, first) {
            let (log_start, log_end) = (self.log.log_start_offset(), self.log.log_end_offset());
            self.log.truncate_fully(offset)?;
            if log_start < log_end {
                tracing::warn!(
                    partition = %self.name, "begins again at {offset}: its leader deleted all \
                     that this log held, which ended at {log_end}"
                );
            }
        }
        if records.is_empty() {
            return Ok(());
        }
        self.log.append_as_follower(records).map(|_| ())
    }
}

fn of_read(error: ReadError) -> AppendError {
    match error {
        ReadError::Storage(error) => AppendError::Storage(error),
        // The log start was raised to this offset or beyond in the meantime.
        ReadError::OutOfRange { offset, log_end, .. } => {
            AppendError::WrongOffset { found: offset, log_end }
        }
    }
}
