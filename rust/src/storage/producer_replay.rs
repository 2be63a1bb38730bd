//! Restores the producers of a log at an offset: the newest `.snapshot`, then the batches after it.
//!
//! Threads: as `recovery`, and a truncation under the log's lock.
//!     An unreadable snapshot is removed, and an older one is used.

use std::sync::Arc;

use super::errors::StorageError;
use super::file_names::{LOG, SNAPSHOT, parse_name};
use super::files;
use super::partition_dir::PartitionDir;
use super::producers::Producers;
use super::scan::{self, WalkStep, Walker};
use super::segment::Segment;
use super::txnindex::AbortedTxn;
use crate::record::batch::Batch;

/// The result of a replay.
pub(crate) struct ReplayedProducers {
    pub producers: Producers,
    /// Offset of the snapshot that was used.
    pub snapshot: Option<i64>,
    /// Transactions that the replayed batches abort.
    pub aborted: Vec<AbortedTxn>,
    /// Offset of the first bad batch, if checksums were verified.
    pub bad: Option<i64>,
}

/// Which part of a log to replay.
pub(crate) struct ProducerReplay {
    /// The replay begins at the newest snapshot up to this offset.
    pub snapshot_limit: i64,
    /// The replay ends before this offset.
    pub end: i64,
    /// Whether the batches' checksums are verified.
    pub check_crc: bool,
}

/// Loads the newest usable snapshot and replays the batches after it.
pub(crate) fn load_producers(
    partition_dir: &Arc<PartitionDir>,
    segments: &[Arc<Segment>],
    range: &ProducerReplay,
) -> Result<ReplayedProducers, StorageError> {
    let limit = range.snapshot_limit;
    let (producers, aborted) = (Producers::default(), Vec::new());
    let mut found = ReplayedProducers { producers, snapshot: None, aborted, bad: None };
    let mut from = i64::MIN;
    for offset in snapshots(partition_dir)?.into_iter().rev().filter(|offset| *offset <= limit) {
        let path = partition_dir.file(offset, SNAPSHOT);
        let bytes = std::fs::read(&path).map_err(|e| StorageError::io("read", &path, e))?;
        if let Some(producers) = Producers::from_snapshot(&bytes) {
            found.producers = producers;
            found.snapshot = Some(offset);
            from = offset;
            break;
        }
        let log = &partition_dir.name;
        tracing::warn!(%log, offset, "snapshot is not readable, it is dropped");
        files::remove_if_there(partition_dir.log_dir.disk(), &path)
            .map_err(|error| partition_dir.log_dir.failed("remove a snapshot", error))?;
    }
    if from >= range.end {
        return Ok(found);
    }
    let first = segments.partition_point(|segment| segment.base_offset <= from).saturating_sub(1);
    for segment in segments.iter().skip(first) {
        replay_segment(segment, from, range, &mut found)?;
    }
    Ok(found)
}

fn replay_segment(
    segment: &Arc<Segment>,
    from: i64,
    range: &ProducerReplay,
    found: &mut ReplayedProducers,
) -> Result<(), StorageError> {
    let size = segment.size();
    let position = if from > segment.base_offset {
        match segment.find(from, size)? {
            Some(batch) => batch.position,
            None => return Ok(()),
        }
    } else {
        0
    };
    let file = segment.file()?;
    let fail = |e| StorageError::io("read", &segment.path(LOG), e);
    let mut walker = Walker::new(&file, position, size);
    let (mut scratch, mut next) = (Vec::new(), segment.base_offset);
    loop {
        let at = match walker.step().map_err(fail)? {
            WalkStep::Batch(at) if at.base_offset < range.end => at,
            WalkStep::Batch(_) | WalkStep::End => return Ok(()),
            WalkStep::Bad(_) => {
                found.bad = found.bad.or(range.check_crc.then_some(next));
                return Ok(());
            }
        };
        next = at.last_offset + 1;
        if range.check_crc && !walker.check_crc(&at, &mut scratch).map_err(fail)? {
            found.bad = found.bad.or(Some(at.base_offset));
        }
        if at.header.is_none_or(|header| header.producer_id < 0) {
            continue;
        }
        let bytes = scan::read_batch(&file, &at, &mut scratch).map_err(fail)?;
        if let Ok(batch) = Batch::parse(bytes) {
            found.aborted.extend(found.producers.replay(&batch));
            found.producers.commit();
        }
    }
}

/// Removes snapshots above the end of the log.
pub(crate) fn drop_snapshots_above(
    partition_dir: &PartitionDir,
    end: i64,
) -> Result<(), StorageError> {
    for offset in snapshots(partition_dir)?.into_iter().filter(|offset| *offset > end) {
        files::remove_if_there(partition_dir.log_dir.disk(), &partition_dir.file(offset, SNAPSHOT))
            .map_err(|error| partition_dir.log_dir.failed("remove a snapshot", error))?;
    }
    Ok(())
}

pub(crate) fn snapshots(partition_dir: &PartitionDir) -> Result<Vec<i64>, StorageError> {
    let mut offsets: Vec<i64> = partition_dir
        .file_names()?
        .iter()
        .filter_map(|name| parse_name(name))
        .filter(|(_, kind)| *kind == SNAPSHOT)
        .map(|(offset, _)| offset)
        .collect();
    offsets.sort_unstable();
    Ok(offsets)
}
