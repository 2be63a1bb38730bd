//! Opening a log: recovery finds what is there, this turns it into a log that can be used.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};

use super::super::checkpoints::CheckpointedOffsets;
use super::super::dirs::LogDir;
use super::super::errors::StorageError;
use super::super::group_commit::GroupCommit;
use super::super::names;
use super::super::partition_dir::{PartitionDir, TxnIndexSums};
use super::super::recovered::{Recovered, RecoveryRequest};
use super::super::recovery;
use super::super::sync::SyncRequest;
use super::read_positions::ReadPositions;
use super::tail::{Tail, TailPosition};
use super::{CommitPoint, Log, LogWriter, Open};
use crate::ids::{Epoch, TopicPartition};

impl Log {
    /// Opens the log of `name` in `dir`, recovering it if it was not shut down in order. Nothing
    /// is made on the disk before the first append. Damage below the recovery point is no error:
    /// see [`Log::damage`].
    pub fn open(
        dir: &Arc<LogDir>,
        name: &TopicPartition,
        options: Open,
    ) -> Result<Arc<Self>, StorageError> {
        dir.online()?;
        let path = dir.path().join(name.to_string());
        let exists = path.is_dir();
        let points = if exists { dir.points(name) } else { CheckpointedOffsets::default() };
        if !exists {
            dir.forget(name)?;
        }
        let partition_dir = Arc::new(PartitionDir {
            log_dir: Arc::clone(dir),
            name: name.to_string().into(),
            path: RwLock::new(path),
            txn_index_sums: TxnIndexSums::default(),
        });
        let request = RecoveryRequest {
            clean: options.clean,
            dense: options.dense && points.cleaned.is_none() && !dir.lost_cleaned(),
            interval: options.config.index_interval_bytes,
            recovery_point: points.recovery.map_or(0, |offset| offset.0),
            log_start: points.log_start.map(|offset| offset.0),
            high_watermark: points.high_watermark.map(|offset| offset.0),
            checking: options.checking.as_deref(),
        };
        let found = recovery::recover(&partition_dir, &request)?;
        let log = build(partition_dir, (name, options), (found, points));
        dir.register(&log);
        Ok(log)
    }
}

fn build(
    partition_dir: Arc<PartitionDir>,
    (name, options): (&TopicPartition, Open),
    (mut found, points): (Recovered, CheckpointedOffsets),
) -> Arc<Log> {
    let topic_id = OnceLock::new();
    if let Some(id) = names::read_topic_id(&partition_dir.path.read()).or(options.topic_id) {
        let _ = topic_id.set(id);
    }
    let damage = OnceLock::new();
    if let Some(error) = found.damage.clone() {
        tracing::error!("{error}");
        let _ = damage.set(error);
    }
    let latest = found.epochs.latest();
    let leader_epoch = options.leader_epoch.map_or(Epoch(latest.0 + 1), |given| given.max(latest));
    let (start, end) = (found.log_start, found.log_end);
    let high = points.high_watermark.map_or(start, |offset| offset.0).clamp(start, end);
    let active = found.segments.last().cloned();
    let position = active.as_ref().map_or(0, |active| active.size());
    let base = active.as_ref().map_or(end, |active| active.base_offset);
    let now_ms = options.clock.wall_ms();
    let segments = std::mem::take(&mut found.segments);
    let mut writer = writer(found, position, now_ms);
    let flushed = writer.sync_end;
    writer.producers.advance(high);
    let log = Arc::new_cyclic(|me| Log {
        name: name.clone(),
        partition_dir: ArcSwap::new(partition_dir),
        config: ArcSwap::new(options.config),
        clock: options.clock,
        syncer: options.syncer,
        me: me.clone(),
        topic_id,
        tail: Tail::default(),
        log_start: AtomicI64::new(start),
        flushed: AtomicI64::new(flushed),
        high_watermark: AtomicI64::new(high),
        first_unstable: AtomicI64::new(i64::MAX),
        txns_wait: AtomicBool::new(false),
        leader_epoch: AtomicI32::new(leader_epoch.0),
        follows: AtomicBool::new(false),
        truncations: AtomicU32::new(0),
        read_positions: Mutex::new(ReadPositions::default()),
        recent: super::recent_batches::Recent::default(),
        damage,
        closed: AtomicBool::new(false),
        deleting: AtomicBool::new(false),
        asked: SyncRequest::default(),
        group: Mutex::new(GroupCommit::new()),
        cleaning: AtomicU8::new(0),
        layout: Mutex::new(()),
        flushing: Mutex::new(()),
        writer: Mutex::new(writer),
        segments: ArcSwap::from_pointee(segments.into()),
    });
    log.tail.store(TailPosition { end, base, position });
    log.publish_transactions(&log.writer.lock());
    log.ask_for_what_is_left();
    log
}

fn writer(found: Recovered, position: u64, now_ms: i64) -> LogWriter {
    let committed = CommitPoint {
        position,
        next_offset: found.log_end,
        max: (-1, -1),
        since_entry: found.since_entry,
    };
    LogWriter {
        staging: Vec::new(),
        position,
        next_offset: found.log_end,
        max: committed.max,
        since_entry: committed.since_entry,
        committed,
        is_failing: false,
        generation: 0,
        cuts: VecDeque::new(),
        producers: found.producers,
        epochs: found.epochs,
        epochs_saved: found.epochs_saved,
        snapshot: found.snapshot,
        written: 0,
        allocated: position,
        active_since_ms: now_ms,
        names_unsynced: found.names_unsynced,
        sync_end: found.flushed.min(found.log_end),
        unsynced_batches: 0,
        deleted_files: VecDeque::new(),
    }
}
