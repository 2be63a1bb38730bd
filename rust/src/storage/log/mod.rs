//! One partition's log: what may be done with it, and who may do it.
//!
//! Writers: [`Log::stage`] checks a batch, gives it offsets and keeps it; [`Log::commit`] writes
//! all that is kept and shows it to readers. All batches of a partition that one readable event
//! brought cost one write. Readers: [`Log::read`] names byte ranges of files.
//! Invariants: log_start <= high_watermark <= log_end, flushed <= log_end; offsets are dense per
//! append and never used twice after a commit; batches lie in files whole.
//! Threads: one mutex for writers; readers take none (a swapped list of segments, a seqlock for
//! the end) but the short one of an index. Three watermarks: writers move log_end, whoever syncs
//! moves flushed, the replica protocol high_watermark. Truncation lowers them, a log that begins
//! again sets them to its start, and a restart takes high_watermark from its checkpoint.
//! Not promised: files exist only after the first append; what is not flushed may not survive a
//! power cut; the leader epoch file may lag, it is derived.

mod append;
mod compact;
mod flush;
mod follow;
mod lookup;
mod open;
mod read;
mod read_positions;
mod read_result;
mod recent;
mod recent_batches;
mod relocate;
mod retention;
mod room;
mod segments;
mod staging;
mod tail;
mod trim;

use std::any::Any;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::checkpoints::CheckpointedOffsets;
use super::config::LogConfig;
use super::dirs::{LogDir, LogInDir};
use super::epochs::Epochs;
use super::errors::StorageError;
use super::group_commit::GroupCommit;
use super::partition_dir::PartitionDir;
use super::producers::{ActiveProducer, Producers};
use super::progress::LogCheck;
use super::segment::Segment;
use super::sync::{SyncRequest, SyncedLog, Syncer, Urgency};
use crate::clock::Clock;
use crate::ids::{Epoch, Offset, TopicId, TopicPartition};

pub use append::{Appended, NewBatch, Stage, StagedMarker};
pub(super) use compact::CompactionView;
pub(super) use flush::Ending;
pub use lookup::FoundOffset;
pub(super) use lookup::find_record;
pub use read_result::{LogReadRequest, LogSlice};
pub use recent_batches::RecentBytes;
pub(super) use relocate::{Copied, FutureLog, MOVED};
pub use retention::SegmentSummary;
use segments::Segments;

/// How a log is opened.
#[derive(Clone)]
pub struct Open {
    /// The typed topic settings.
    pub config: Arc<LogConfig>,
    /// The topic's id, written to `partition.metadata` with the first append.
    pub topic_id: Option<TopicId>,
    /// The epoch to append with, unless the log has seen a newer one; `None`: one more than it has.
    pub leader_epoch: Option<Epoch>,
    /// Whether the directory was shut down in order, so that nothing needs to be checked.
    pub clean: bool,
    /// Whether offsets are known to be without gaps: the topic is not compacted. A gap beyond the
    /// recovery point is then a reason to cut, unless a cleaner was here. Leave it false where the
    /// settings are unknown.
    pub dense: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The thread that syncs; `None`: only [`Log::flush`] does.
    pub syncer: Option<Arc<Syncer>>,
    /// Where the progress of the check is counted; `None`: nowhere.
    pub checking: Option<Arc<LogCheck>>,
}

/// One partition.
pub struct Log {
    name: TopicPartition,
    partition_dir: ArcSwap<PartitionDir>,
    config: ArcSwap<LogConfig>,
    clock: Arc<dyn Clock>,
    syncer: Option<Arc<Syncer>>,
    me: Weak<Log>,
    topic_id: OnceLock<TopicId>,
    segments: ArcSwap<Segments>,
    tail: tail::Tail,
    log_start: AtomicI64,
    flushed: AtomicI64,
    high_watermark: AtomicI64,
    /// `i64::MAX`: no transaction is open.
    first_unstable: AtomicI64,
    txns_wait: AtomicBool,
    leader_epoch: AtomicI32,
    /// Another broker leads: producers' batches are refused. Set under the writer's lock.
    follows: AtomicBool,
    /// Rises when offsets are taken back, so that what readers remembered is void.
    truncations: AtomicU32,
    read_positions: Mutex<read_positions::ReadPositions>,
    recent: recent_batches::Recent,
    damage: OnceLock<StorageError>,
    closed: AtomicBool,
    /// Files of old segments were renamed, and a power cut may bring them back.
    deleting: AtomicBool,
    /// What sync is asked for and has not begun (see `sync`).
    pub(super) asked: SyncRequest,
    /// The appends that wait for the disk. After `writer`.
    group: Mutex<GroupCommit>,
    /// Whether a cleaner works on it, or has given up on it (see `cleaner`).
    pub(super) cleaning: AtomicU8,
    /// Held while segments go or change places, but for the append of a new one. Before `flushing`.
    layout: Mutex<()>,
    /// Held through a flush, so that there is one at a time. Before `writer`.
    flushing: Mutex<()>,
    writer: Mutex<LogWriter>,
}

/// What writers share.
struct LogWriter {
    /// Batches that are not written yet; between commits without memory (see `staging`).
    staging: Vec<u8>,
    /// One past the last byte, staged ones included.
    position: u64,
    next_offset: i64,
    /// The largest timestamp of the active segment and the last offset of its batch.
    max: (i64, i64),
    /// Bytes since the last index entry.
    since_entry: u64,
    /// The same as of the last commit, to go back to.
    committed: CommitPoint,
    /// The last write failed.
    is_failing: bool,
    /// Counts failures; a stage of an older generation was cut unless `cuts` says otherwise.
    generation: u32,
    /// For recent generations that failed: how far they were committed.
    cuts: VecDeque<(u32, i64)>,
    producers: Producers,
    epochs: Epochs,
    epochs_saved: bool,
    /// The newest snapshot's offset.
    snapshot: Option<i64>,
    /// Bytes appended since the log was opened.
    written: u64,
    /// Up to where disk is reserved in the active segment.
    allocated: u64,
    /// When the active segment was made or opened.
    active_since_ms: i64,
    /// The directory has entries that are not synced.
    names_unsynced: bool,
    /// One past what a sync covers that was asked for or began: `flush.messages` counts from here.
    sync_end: i64,
    /// Batches for which no sync was asked yet.
    unsynced_batches: u32,
    /// Files that were renamed to `.deleted`, and the time from which on they are removed.
    deleted_files: VecDeque<(i64, PathBuf)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CommitPoint {
    position: u64,
    next_offset: i64,
    max: (i64, i64),
    since_entry: u64,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (start, end) = (self.log_start_offset(), self.log_end_offset());
        write!(f, "Log {{ {}, {start}..{end} }}", self.name)
    }
}

impl Log {
    /// Whose log it is.
    pub fn name(&self) -> &TopicPartition {
        &self.name
    }

    /// The topic's id, where it is known.
    pub fn topic_id(&self) -> Option<TopicId> {
        self.topic_id.get().copied()
    }

    /// Sets the topic's id, where none was known.
    pub fn set_topic_id(&self, id: TopicId) {
        let _ = self.topic_id.set(id);
    }

    /// The settings it follows.
    pub fn config(&self) -> Arc<LogConfig> {
        self.config.load_full()
    }

    /// Follows other settings from now on.
    pub fn reconfigure(&self, config: Arc<LogConfig>) {
        self.config.store(config);
        self.ask_for_what_is_left();
    }

    /// Asks for a sync where the settings want what is committed on disk and it is not there: after
    /// a recovery or a change of settings no append may come that would ask.
    pub(super) fn ask_for_what_is_left(&self) {
        let Some(syncer) = &self.syncer else { return };
        let left = self.log_end_offset().0 - self.flushed_offset().0;
        let config = self.config.load();
        if left > 0 && (config.ack_flush || left >= config.flush_messages) {
            syncer.ask(&self.me, Urgency::Now);
        }
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Acquire))
    }

    /// One past the last offset.
    pub fn log_end_offset(&self) -> Offset {
        Offset(self.tail.load().end)
    }

    /// One past the last offset that is known to be on the disk.
    pub fn flushed_offset(&self) -> Offset {
        Offset(self.flushed.load(Ordering::Acquire))
    }

    /// One past the last offset that all in-sync replicas have.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// Raises the high watermark, at most to the log's end (in flush mode `ack`: to the flushed
    /// offset). Truncation lowers it (`trim.rs`), not this, in whatever order threads call.
    /// Returns its value now.
    pub fn raise_high_watermark(&self, offset: Offset) -> Offset {
        let limit =
            if self.config.load().ack_flush { self.flushed_offset() } else { Offset(i64::MAX) };
        let value = offset.min(limit).min(self.log_end_offset()).max(self.log_start_offset());
        let before = self.high_watermark.fetch_max(value.0, Ordering::AcqRel);
        let value = value.max(Offset(before));
        if self.txns_wait.load(Ordering::Acquire) {
            let mut writer = self.writer.lock();
            writer.producers.advance(value.0);
            self.publish_transactions(&writer);
        }
        value
    }

    /// One past the last offset that a read_committed reader may see.
    pub fn last_stable_offset(&self) -> Offset {
        Offset(self.first_unstable.load(Ordering::Acquire)).min(self.high_watermark())
    }

    /// The epoch that appends are made with.
    pub fn leader_epoch(&self) -> Epoch {
        Epoch(self.leader_epoch.load(Ordering::Acquire))
    }

    /// Takes producers' batches from now on, with `epoch`; one older than the present is ignored.
    pub fn set_leader_epoch(&self, epoch: Epoch) {
        self.leader_epoch.fetch_max(epoch.0, Ordering::AcqRel);
        self.follows.store(false, Ordering::Release);
    }

    /// The same; notes that the epoch begins at the log's end, so that a follower whose last batch
    /// is of an earlier epoch learns where that one ended.
    pub fn begin_leader_epoch(&self, epoch: Epoch) {
        self.set_leader_epoch(epoch);
        let mut writer = self.writer.lock();
        let start = Offset(writer.next_offset);
        if writer.epochs.assign(epoch, start) {
            writer.epochs_saved = false;
        }
    }

    /// Takes no producers' batches from now on, because another broker leads. What was staged is
    /// written first, so that nothing of this broker's is appended later.
    pub fn stop_leading(&self) {
        let mut writer = self.writer.lock();
        self.follows.store(true, Ordering::Release);
        writer.producers.void_guards();
        if let Err(error) = self.write_and_publish(&mut writer) {
            tracing::warn!(log = %self.name, "staged appends are lost: {error}");
        }
    }

    /// The epoch of the last batch; -1 in a log without any. It is below [`Log::latest_epoch`] if
    /// a leader, this one or a Kafka, began an epoch and appended nothing in it.
    pub fn last_batch_epoch(&self) -> Epoch {
        let writer = self.writer.lock();
        writer.epochs.latest_before(Offset(writer.next_offset))
    }

    /// The newest epoch in the log; -1 without any.
    pub fn latest_epoch(&self) -> Epoch {
        self.writer.lock().epochs.latest()
    }

    /// Whether `leader-epoch-checkpoint` has all epochs of the log: it is written behind appends.
    pub fn are_epochs_saved(&self) -> bool {
        self.writer.lock().epochs_saved
    }

    /// The epochs of the log and where each began.
    pub fn epochs(&self) -> Vec<(Epoch, Offset)> {
        self.writer.lock().epochs.entries().to_vec()
    }

    /// The producers it remembers.
    pub fn producers(&self) -> Vec<ActiveProducer> {
        self.writer.lock().producers.active_producers()
    }

    /// Bytes of all segments that readers may see.
    pub fn size(&self) -> u64 {
        self.segments.load().iter().map(|segment| segment.size()).sum()
    }

    /// What is wrong with the log, if bytes below its recovery point are not what was written.
    pub fn damage(&self) -> Option<&StorageError> {
        self.damage.get()
    }

    /// The log directory it lies in.
    pub fn dir(&self) -> Arc<LogDir> {
        Arc::clone(&self.partition_dir().log_dir)
    }

    /// Whether the log directory it lies in is offline.
    pub fn is_offline(&self) -> bool {
        self.partition_dir().log_dir.is_offline()
    }

    /// Where its files are; another one after a move to another log directory.
    pub(super) fn partition_dir(&self) -> Guard<Arc<PartitionDir>> {
        self.partition_dir.load()
    }

    pub(super) fn is_on_disk(&self) -> bool {
        !self.closed.load(Ordering::Acquire) && !self.segments.load().is_empty()
    }

    /// Up to where the next start need not check; never beyond damage.
    pub(super) fn recovery_point(&self) -> Offset {
        self.flushed_offset().min(self.log_end_offset())
    }

    /// The log start, where it is not simply the first segment's.
    pub(super) fn checkpointed_start(&self) -> Option<Offset> {
        let start = self.log_start_offset();
        let first = self.segments.load().first().map_or(0, |segment| segment.base_offset);
        (start.0 > first || self.deleting.load(Ordering::Acquire)).then_some(start)
    }

    /// An error unless the log can be used at all.
    fn usable(&self) -> Result<(), StorageError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StorageError::Closed(Arc::clone(&self.partition_dir().name)));
        }
        self.partition_dir().log_dir.online()
    }

    /// Shows readers the state of transactions.
    fn publish_transactions(&self, writer: &LogWriter) {
        let first = writer.producers.first_unstable().unwrap_or(i64::MAX);
        self.first_unstable.store(first, Ordering::Release);
        self.txns_wait.store(writer.producers.waits_for_high_watermark(), Ordering::Release);
    }

    /// Swaps the list of segments.
    fn publish_segments(&self, segments: Vec<Arc<Segment>>) {
        self.segments.store(Arc::new(segments.into()));
    }
}

impl Log {
    /// The open logs of a directory.
    pub(super) fn all_in(dir: &LogDir) -> Vec<Arc<Self>> {
        let of = |log: Arc<dyn LogInDir>| {
            let log: Arc<dyn Any + Send + Sync> = log;
            log.downcast().ok()
        };
        dir.logs().into_iter().filter_map(of).collect()
    }
}

impl LogInDir for Log {
    fn name(&self) -> &TopicPartition {
        self.name()
    }

    fn is_on_disk(&self) -> bool {
        self.is_on_disk()
    }

    fn dir(&self) -> Arc<LogDir> {
        self.dir()
    }

    fn points(&self) -> Option<CheckpointedOffsets> {
        self.damage().is_none().then(|| CheckpointedOffsets {
            recovery: Some(self.recovery_point()),
            log_start: self.checkpointed_start(),
            high_watermark: Some(self.high_watermark()),
            cleaned: None,
        })
    }

    fn prepare_checkpoint(&self) -> Result<(), StorageError> {
        // The oldest epoch begins where the log starts: it is never behind the checkpoint.
        if self.checkpointed_start().is_some() { self.save_epochs() } else { Ok(()) }
    }
}

impl SyncedLog for Log {
    fn name(&self) -> &TopicPartition {
        self.name()
    }

    fn asked(&self) -> &SyncRequest {
        &self.asked
    }

    fn flush(&self) -> Result<Offset, StorageError> {
        self.flush()
    }

    fn allocate(&self, to: u64) {
        self.allocate(to);
    }

    fn take_dir_offline(&self, why: &str) {
        self.partition_dir().log_dir.take_offline(&why);
    }
}
