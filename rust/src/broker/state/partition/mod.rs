//! A partition on this broker: its log, its replica, and the requests that wait for it.
//!
//! The replica is a step machine of `broker/replica`, behind a lock: `leader.rs` and `follower.rs`
//! run it. The role is its lock-free mirror. A sole replica needs neither lock nor machine.
//!
//! There are three ways to wait. A *waiter* is a Produce that is acknowledged once a watermark has
//! passed its last record. A *watcher* belongs to a Fetch or to a fetch session. It collects the
//! numbers of partitions that changed since it was last read, so that an idle poll over a thousand
//! partitions looks at none. A *commit callback* runs once, on the thread that moves the watermark
//! past its offset.
//! Invariant: a thread that moves a watermark calls [`Partition::advance`] afterwards. A thread
//!     that begins to wait reads the watermarks again afterwards. Both have a full fence in
//!     between, so that one of the two sees the other.
//! Terms: a request remembers the term in which its records were appended. When this broker ceases
//!     to lead, the term rises, and the request fails: the records may be truncated, and others
//!     may take their offsets.
//! Threads: shared. The lists have short locks, which are not taken while nobody waits. The lock of
//!     the replica comes before those of the log, and is not held while anything is woken.
//! Not promised: that a woken request can be answered. It checks, and may wait again.

mod follower;
mod leader;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};

use parking_lot::Mutex;

pub(crate) use crate::broker::replica::leader::CommitState;
use crate::broker::replica::leader::LeaderReplica;
use crate::broker::state::partition::follower::FollowingReplica;
pub use crate::broker::state::partition::follower::{AnsweredRequest, FollowerStep};
pub(crate) use crate::broker::state::partition::leader::{
    AlteredIsr, LeaderAssignment, ProposalAnswer,
};
use crate::broker::state::replication::ReplicationContext;
use crate::broker::state::waking::{DelayedId, Wakes};
use crate::ids::{Offset, TopicId, TopicPartition};
use crate::protocol::ErrorCode;
use crate::storage::{Log, LogConfig, StorageError};

/// A partition with a replica on this broker.
pub struct Partition {
    /// Its topic and number.
    pub name: TopicPartition,
    /// The id of its topic.
    pub topic_id: TopicId,
    /// Its records.
    pub log: Arc<Log>,
    /// A [`ReplicaRole`], as its number: the lock-free mirror of `replica`.
    role: AtomicU8,
    /// How often this broker ceased to lead.
    terms: AtomicU32,
    /// A [`CommitState`], as its number; only a leader has another one than `Possible`.
    commit_state: AtomicU8,
    replica: Mutex<Replica>,
    /// Whether this replica is throttled as a leader, and as a follower.
    is_leader_throttled: AtomicBool,
    is_follower_throttled: AtomicBool,
    replication: Arc<ReplicationContext>,
    /// The unflushed allowance: how many records beyond the flushed offset may be acknowledged.
    unflushed_allowance: AtomicI64,
    waiting: AtomicUsize,
    waiters: Mutex<Vec<Waiter>>,
    callbacks_pending: AtomicUsize,
    commit_callbacks: Mutex<Vec<PendingCommit>>,
    watched: AtomicUsize,
    watchers: Mutex<Vec<(Arc<ChangeWatcher>, u32)>>,
}

/// Called once when an append is committed or lost. It must not block.
pub type CommitCallback = Box<dyn FnOnce(Result<(), ErrorCode>) + Send>;

/// A callback, with the append it waits for.
struct PendingCommit {
    term: u32,
    end: Offset,
    callback: CommitCallback,
}

/// The replica of this broker.
pub(crate) enum Replica {
    /// No delta has said yet what it is.
    Unassigned,
    /// The leader of a partition that has no other replica.
    Sole,
    /// A leader with followers.
    Leader(Box<LeaderReplica>),
    /// A follower; also while there is no leader.
    Follower(FollowingReplica),
    /// This broker has no replica any more.
    Removed,
}

/// Which watchers a change concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchScope {
    /// All: a watermark or the log start moved, or the role changed.
    All,
    /// Those that read to the log end: it moved, and no watermark did.
    LogEnd,
}

/// What this broker is to a partition. Only a delta of the image changes it.
///
/// The high watermark belongs to the leader: [`Partition::advance`] raises it while the leader is
/// the only replica, else the steps in `leader.rs` do. A leader's never falls within its epoch;
/// followers take the leader's, and a truncation may lower theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplicaRole {
    /// It leads as the only replica: the high watermark follows the log end offset.
    SoleLeader,
    /// It leads, and has followers: the high watermark waits for those in sync.
    Leader,
    /// Another broker leads, or none.
    Follower,
    /// This broker has no replica any more.
    Removed,
}

/// A Produce that waits for its acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The acknowledgement whose watermark must pass `wanted`.
    pub acks: Acks,
    /// One past the last record.
    pub wanted: Offset,
    /// Its network thread.
    pub thread: usize,
    /// Its name there.
    pub delayed: DelayedId,
}

/// The kind of acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// The leader has it (on disk, where each append is flushed).
    Leader,
    /// All in-sync replicas have it.
    All,
}

/// Collects which partitions of a Fetch changed, and wakes it. The Fetch numbers its partitions.
#[derive(Debug, Default)]
pub struct ChangeWatcher {
    /// Its Fetch reads to the log end, so that records above the high watermark concern it.
    reads_to_log_end: bool,
    state: Mutex<WatchedChanges>,
}

#[derive(Debug, Default)]
struct WatchedChanges {
    changed: Vec<u32>,
    is_changed: Vec<bool>,
    delayed: Option<(usize, DelayedId)>,
}

impl Partition {
    /// A partition over `log`. Until its first assignment it leads and acknowledges nothing.
    pub(crate) fn new(
        name: TopicPartition,
        topic_id: TopicId,
        (log, replication): (Arc<Log>, Arc<ReplicationContext>),
    ) -> Self {
        Self {
            role: AtomicU8::new(ReplicaRole::Leader as u8),
            terms: AtomicU32::new(0),
            commit_state: AtomicU8::new(CommitState::Possible as u8),
            replica: Mutex::new(Replica::Unassigned),
            is_leader_throttled: AtomicBool::new(false),
            is_follower_throttled: AtomicBool::new(false),
            replication,
            unflushed_allowance: AtomicI64::new(log.config().unflushed_allowance()),
            name,
            topic_id,
            log,
            waiting: AtomicUsize::new(0),
            waiters: Mutex::default(),
            callbacks_pending: AtomicUsize::new(0),
            commit_callbacks: Mutex::default(),
            watched: AtomicUsize::new(0),
            watchers: Mutex::default(),
        }
    }

    /// Whether this replica is throttled as a leader, and as a follower (KIP-73).
    pub(crate) fn set_throttled(&self, (as_leader, as_follower): (bool, bool)) {
        self.is_leader_throttled.store(as_leader, Ordering::Relaxed);
        self.is_follower_throttled.store(as_follower, Ordering::Relaxed);
    }

    /// This broker's role for the partition.
    pub fn role(&self) -> ReplicaRole {
        match self.role.load(Ordering::SeqCst) {
            role if role == ReplicaRole::SoleLeader as u8 => ReplicaRole::SoleLeader,
            role if role == ReplicaRole::Leader as u8 => ReplicaRole::Leader,
            role if role == ReplicaRole::Follower as u8 => ReplicaRole::Follower,
            _ => ReplicaRole::Removed,
        }
    }

    /// The present term: see the module.
    #[inline]
    pub(crate) fn term(&self) -> u32 {
        self.terms.load(Ordering::Acquire)
    }

    /// Whether the records below `end`, appended in `term`, are acknowledged under `acks`.
    #[inline]
    pub(crate) fn is_acknowledged(&self, acks: Acks, (term, end): (u32, Offset)) -> bool {
        // In this order: a term that is still the present one means that the mark is its own.
        self.acknowledged(acks) >= end && self.term() == term
    }

    /// This broker ceases to lead. The caller holds the lock of the replica.
    fn end_leadership(&self, role: ReplicaRole) {
        self.terms.fetch_add(1, Ordering::AcqRel);
        self.role.store(role as u8, Ordering::SeqCst);
    }

    /// The offset up to which records are acknowledged under `acks`.
    pub fn acknowledged(&self, acks: Acks) -> Offset {
        match acks {
            Acks::All => self.log.high_watermark().min(self.flushed_if_asked()),
            Acks::Leader => self.flushed_if_asked(),
        }
    }

    fn flushed_if_asked(&self) -> Offset {
        let ahead = self.unflushed_allowance.load(Ordering::Acquire);
        Offset(self.log.flushed_offset().0.saturating_add(ahead)).min(self.log.log_end_offset())
    }

    /// Replaces the settings.
    pub fn reconfigure(&self, config: Arc<LogConfig>) {
        self.unflushed_allowance.store(config.unflushed_allowance(), Ordering::Release);
        self.log.reconfigure(config);
        if let Err(error) = self.settle() {
            tracing::error!(partition = %self.name, "cannot flush: {error}");
        }
    }

    /// Flushes records that were appended before flushing was required, for example before a crash.
    /// No later append flushes them, and a retried batch waits for them. Blocks; never on a network
    /// thread.
    pub fn settle(&self) -> Result<(), StorageError> {
        if self.flushed_if_asked() < self.log.log_end_offset() {
            self.log.flush()?;
        }
        Ok(())
    }

    /// Called after a watermark moved. Raises the high watermark as far as the in-sync replicas
    /// allow, and wakes the requests that may go on.
    pub fn advance(&self, wakes: &mut Wakes<'_>) {
        let log_end = self.log.log_end_offset();
        let scope = match self.role() {
            ReplicaRole::SoleLeader => {
                // Two threads may do this at once: the mark only rises. The log itself holds it
                // back to what is flushed, where it must.
                self.log.raise_high_watermark(log_end);
                WatchScope::All
            }
            ReplicaRole::Leader if !self.log_end_moved(wakes) => WatchScope::LogEnd,
            _ => WatchScope::All,
        };
        self.wake(wakes, scope);
    }

    /// Wakes the requests that may go on.
    fn wake(&self, wakes: &mut Wakes<'_>, scope: WatchScope) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_waiters(wakes, false);
        }
        if self.callbacks_pending.load(Ordering::Relaxed) > 0 {
            self.run_commit_callbacks();
        }
        if self.watched.load(Ordering::Relaxed) > 0 {
            self.mark_watchers(wakes, scope);
        }
    }

    fn mark_watchers(&self, wakes: &mut Wakes<'_>, scope: WatchScope) {
        for (watch, index) in self.watchers.lock().iter() {
            if scope == WatchScope::All || watch.reads_to_log_end {
                watch.mark(*index, wakes);
            }
        }
    }

    /// Removes the replica from this broker. Waiting requests are woken as after
    /// [`Partition::follow`].
    pub(crate) fn remove(&self) {
        let mut replica = self.replica.lock();
        self.end_leadership(ReplicaRole::Removed);
        *replica = Replica::Removed;
    }

    /// Whether this broker is not the leader, so that no request may wait here.
    pub fn is_led_elsewhere(&self) -> bool {
        matches!(self.role(), ReplicaRole::Follower | ReplicaRole::Removed)
    }

    /// Wakes all waiting requests, because nothing more will happen here.
    pub fn abandon(&self, wakes: &mut Wakes<'_>) {
        self.wake_waiters(wakes, true);
        self.run_commit_callbacks();
        self.mark_watchers(wakes, WatchScope::All);
    }

    /// Ends what waits for the in-sync replicas, because nothing is committed now. Waiters stay in
    /// the list until they are answered.
    fn wake_uncommitted(&self, wakes: &mut Wakes<'_>) {
        for waiter in self.waiters.lock().iter().filter(|waiter| waiter.acks == Acks::All) {
            wakes.wake(waiter.thread, waiter.delayed);
        }
        self.run_commit_callbacks();
    }

    /// Wakes all readers after the log start offset moved.
    pub(crate) fn log_start_moved(&self, wakes: &mut Wakes<'_>) {
        self.advance(wakes);
        self.mark_watchers(wakes, WatchScope::All);
    }

    /// The leader or the replicas may have changed, of which readers may have to hear.
    pub(crate) fn wake_readers(&self, wakes: &mut Wakes<'_>) {
        if self.watched.load(Ordering::Relaxed) > 0 {
            self.mark_watchers(wakes, WatchScope::All);
        }
    }

    fn wake_waiters(&self, wakes: &mut Wakes<'_>, all: bool) {
        let (leader, every) = (self.acknowledged(Acks::Leader), self.acknowledged(Acks::All));
        let mut waiters = self.waiters.lock();
        waiters.retain(|waiter| {
            let mark = match waiter.acks {
                Acks::Leader => leader,
                Acks::All => every,
            };
            let waits = !all && mark < waiter.wanted;
            if !waits {
                wakes.wake(waiter.thread, waiter.delayed);
            }
            waits
        });
        self.waiting.store(waiters.len(), Ordering::Relaxed);
    }

    /// Runs `callback` once all in-sync replicas have what lies below `end` and was appended in
    /// `term`: here and now, or on the thread that moves the watermark. Callbacks whose offset was
    /// passed run in the order given.
    pub(crate) fn on_commit(&self, (term, end): (u32, Offset), callback: CommitCallback) {
        {
            let mut commit_callbacks = self.commit_callbacks.lock();
            commit_callbacks.push(PendingCommit { term, end, callback });
            self.callbacks_pending.store(commit_callbacks.len(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.run_commit_callbacks();
    }

    /// Runs the callbacks of appends that are committed or lost.
    fn run_commit_callbacks(&self) {
        let mark = self.acknowledged(Acks::All);
        let term = self.term();
        let is_over = self.log.is_offline() || !self.can_commit();
        let due: Vec<PendingCommit> = {
            let mut commit_callbacks = self.commit_callbacks.lock();
            let is_due = |it: &mut PendingCommit| is_over || it.end <= mark || it.term != term;
            let due = commit_callbacks.extract_if(.., is_due).collect();
            self.callbacks_pending.store(commit_callbacks.len(), Ordering::Relaxed);
            due
        };
        for it in due {
            let is_committed = it.end <= mark && it.term == term;
            (it.callback)(if is_committed { Ok(()) } else { Err(ErrorCode::NotCoordinator) });
        }
    }

    /// Begins to wait. The caller checks [`Partition::acknowledged`] again afterwards.
    pub fn wait(&self, waiter: Waiter) {
        let mut waiters = self.waiters.lock();
        waiters.push(waiter);
        self.waiting.store(waiters.len(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Stops waiting.
    pub fn forget(&self, thread: usize, delayed: DelayedId) {
        let mut waiters = self.waiters.lock();
        waiters.retain(|waiter| waiter.thread != thread || waiter.delayed != delayed);
        self.waiting.store(waiters.len(), Ordering::Relaxed);
    }

    /// Reports changes of this partition as `index` in `watch`. The caller checks the partition
    /// again afterwards.
    pub fn add_watcher(&self, watch: &Arc<ChangeWatcher>, index: u32) {
        let mut watchers = self.watchers.lock();
        watchers.push((Arc::clone(watch), index));
        self.watched.store(watchers.len(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends [`Partition::add_watcher`].
    pub fn remove_watcher(&self, watch: &Arc<ChangeWatcher>) {
        let mut watchers = self.watchers.lock();
        if let Some(at) = watchers.iter().position(|(other, _)| Arc::ptr_eq(other, watch)) {
            watchers.swap_remove(at);
        }
        self.watched.store(watchers.len(), Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partition").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ChangeWatcher {
    /// Watches for a Fetch that reads to the log end, or to the high watermark only.
    pub(crate) fn new(reads_to_log_end: bool) -> Self {
        Self { reads_to_log_end, state: Mutex::default() }
    }

    /// Partition `index` changed.
    fn mark(&self, index: u32, wakes: &mut Wakes<'_>) {
        let mut state = self.state.lock();
        let at = index as usize;
        if state.is_changed.len() <= at {
            state.is_changed.resize(at + 1, false);
        }
        let is_changed = state.is_changed.get_mut(at);
        if is_changed.is_some_and(|is_changed| !std::mem::replace(is_changed, true)) {
            state.changed.push(index);
        }
        if let Some((thread, delayed)) = state.delayed.take() {
            wakes.wake(thread, delayed);
        }
    }

    /// Moves the numbers of the partitions that changed to the end of `into`.
    pub fn take(&self, into: &mut Vec<u32>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for index in state.changed.drain(..) {
            if let Some(is_changed) = state.is_changed.get_mut(index as usize) {
                *is_changed = false;
            }
            into.push(index);
        }
    }

    /// Wakes `delayed` at the next change. False, without effect, if something has changed already.
    pub fn wake_on_change(&self, thread: usize, delayed: DelayedId) -> bool {
        let mut state = self.state.lock();
        if state.changed.is_empty() {
            state.delayed = Some((thread, delayed));
        }
        state.changed.is_empty()
    }

    /// Cancels [`ChangeWatcher::wake_on_change`].
    pub fn cancel_wake(&self) {
        self.state.lock().delayed = None;
    }
}
