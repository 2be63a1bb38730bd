//! Recovery cuts the end of a log from the first bad batch on. It logs the loss first, then cuts.
//!
//! The log line names the log, the lost offsets and the lost bytes, those of later segments too.
//! The process logs lines of the module `krust.storage.cut` at once (see `py/logs`), so that a
//! crash right after the cut does not lose the line.
//! Limits: one line for each log. After the bad batch, recovery reads only headers, and only those
//! of the bad segment and the last one.
//! Threads: as `recovery`.
//! Not promised: the number of records in unreadable batches. The offsets give an upper bound.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::errors::StorageError;
use super::file_names::LOG;
use super::partition_dir::PartitionDir;
use super::recovered::{Recovered, RecoveryRequest};
use super::scan::{WalkStep, Walker};
use super::segment::Segment;

/// The first bad batch of a log, where recovery cuts it.
pub(crate) struct BadBatch {
    /// Index of its segment.
    pub segment: usize,
    /// Where it begins in the segment's file.
    pub position: u64,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// The end of a log that a cut removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostRange {
    /// The first offset that is lost.
    pub offset: i64,
    /// The last one that a header names.
    pub last_offset: Option<i64>,
    pub bytes: u64,
    pub segments: usize,
}

impl LostRange {
    /// The loss after position `end` of the first of these segments, where `offset` should be.
    fn behind(segments: &[Arc<Segment>], end: u64, offset: i64) -> Result<Self, StorageError> {
        let sizes = segments.iter().map(|segment| segment.size());
        let bytes = sizes.sum::<u64>().saturating_sub(end);
        let mut last_offset = None;
        for (index, segment) in segments.iter().enumerate().rev() {
            let from = if index == 0 { end } else { 0 };
            let named = (index > 0).then(|| segment.base_offset - 1);
            last_offset = last_in(segment, from)?.or(named).filter(|last| *last >= offset);
            if last_offset.is_some() {
                break;
            }
        }
        Ok(Self { offset, last_offset, bytes, segments: segments.len() })
    }

    /// The number of offsets that are lost, as far as it is known.
    pub(crate) fn offsets(&self) -> u64 {
        self.last_offset.map_or(0, |last| last.abs_diff(self.offset) + 1)
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last_offset {
            Some(last) => {
                let (first, count) = (self.offset, self.offsets());
                write!(f, "offsets {first} to {last} (at most {count} records)")?;
            }
            None => write!(f, "what follows offset {}, no whole batch", self.offset - 1)?,
        }
        write!(f, ", {} bytes in {} segments", self.bytes, self.segments)
    }
}

/// The last offset that the headers from a position on name.
fn last_in(segment: &Arc<Segment>, from: u64) -> Result<Option<i64>, StorageError> {
    let file = segment.file()?;
    let fail = |error: io::Error| StorageError::io("read", &segment.path(LOG), error);
    let mut walker = Walker::new(&file, from, segment.size());
    let mut last = None;
    while let WalkStep::Batch(batch) = walker.step().map_err(fail)? {
        if last.is_some_and(|last| batch.base_offset <= last) {
            break;
        }
        last = Some(batch.last_offset);
    }
    Ok(last)
}

/// Decides what a bad batch costs. Above the recovery point it cuts the log there. Below, the log
/// is damaged: it is not cut, and ends there for readers.
///
/// Each step is synced before the next, and the later segments are removed first. Otherwise valid
/// batches after the end could return after a power failure: after a gap, which a compacted log may
/// have, or after new records of the same size.
pub(crate) fn cut(
    partition_dir: &Arc<PartitionDir>,
    request: &RecoveryRequest,
    found: &mut Recovered,
    bad: &BadBatch,
) -> Result<(), StorageError> {
    let BadBatch { segment: index, position: end, reason } = *bad;
    let behind = found.segments.get(index..).unwrap_or_default();
    let loss = LostRange::behind(behind, end, found.log_end)?;
    let gone = found.segments.split_off((index + 1).min(found.segments.len()));
    let Some(segment) = found.segments.last().cloned() else { return Ok(()) };
    if found.log_end < request.recovery_point {
        found.report_damage(
            partition_dir,
            &format!("{reason}; {loss} stay as they are, and are not served"),
        );
        segment.publish_size(end);
        return Ok(());
    }
    tracing::warn!(
        "recovery cuts {} at offset {}: {reason}; lost: {loss}",
        partition_dir.name,
        loss.offset
    );
    if let Some(checking) = request.checking {
        checking.add_cut(loss.bytes, loss.offsets());
    }
    let dir = &partition_dir.log_dir;
    let partition = partition_dir.path.read().clone();
    gone.iter().rev().try_for_each(|segment| segment.remove_files())?;
    dir.sync_dir(&partition)?;
    if end == 0 && index > 0 && segment.base_offset != found.log_end {
        found.segments.pop();
        segment.remove_files()?;
        dir.sync_dir(&partition)
    } else {
        segment.publish_size(end);
        let file = segment.file()?;
        dir.disk().set_len(&file, end).map_err(|error| dir.failed("cut a segment", error))?;
        dir.sync_data(&segment.path(LOG), &file)
    }
}

/// Logs the sum of all cuts of a start in one line.
pub fn log_cuts(so_far: &super::progress::RecoveryCuts) {
    let super::progress::RecoveryCuts { logs, bytes, offsets } = so_far;
    if *logs > 0 {
        tracing::warn!(
            "recovery has cut {logs} logs, {bytes} bytes and at most {offsets} records in all; \
             an earlier line names each log"
        );
    }
}
