//! Checks whether the small files of a partition agree with its log. Checkpoints and leader epochs
//! have no checksum, so each is compared with another file or with batches.
//!
//! - The oldest leader epoch begins at the log start. If the two differ, the lower offset counts:
//!   no record is hidden, but deleted records may be seen again.
//! - A recovery point beyond the end of the log means lost records (damage), unless the high
//!   watermark, which is written with it, is not beyond the end.
//! - A leader epoch begins where its first batch does. The newest epoch is that of the last batch.
//! - A segment with an index and without a log file is missing.
//!
//! Threads: one, before any other thread knows the log.
//! Not promised: that a recovery point that is too low is noticed. It only costs time.

use std::sync::Arc;

use super::epochs::Epochs;
use super::errors::StorageError;
use super::file_names::LOG;
use super::files;
use super::partition_dir::PartitionDir;
use super::recovered::{Recovered, RecoveryRequest};
use super::segment::Segment;

/// The offset where the log starts, by the checkpoint or by the oldest leader epoch. `first`: base
/// offset of the first segment. An empty log (`None`) starts where the checkpoint says, because its
/// epochs may be those of a former log.
pub(crate) fn log_start(
    partition_dir: &PartitionDir,
    request: &RecoveryRequest,
    first: Option<i64>,
    epochs: Option<&Epochs>,
) -> i64 {
    let checkpoint = request.log_start.unwrap_or(0).max(first.unwrap_or(0));
    let Some(first) = first else { return checkpoint };
    let Some(begins) = epochs.and_then(|epochs| epochs.entries().first()) else {
        return checkpoint;
    };
    let begins = begins.1.0.max(first);
    if begins != checkpoint {
        let start = begins.min(checkpoint);
        tracing::warn!(
            log = %partition_dir.name, start,
            "log-start-offset-checkpoint says that the log starts at {checkpoint}, its leader \
             epochs begin at {begins}: one of the files is damaged, and the lower offset \
             counts. Records that were deleted may be seen again: delete them once more"
        );
    }
    begins.min(checkpoint)
}

/// Whether a log that ends below its recovery point lost records. If not, logs which file is wrong.
pub(crate) fn lost_its_end(
    partition_dir: &PartitionDir,
    request: &RecoveryRequest,
    log_end: i64,
) -> bool {
    if log_end >= request.recovery_point {
        return false;
    }
    let high = request.high_watermark.unwrap_or(i64::MAX);
    if high > log_end {
        return true;
    }
    let point = request.recovery_point;
    tracing::warn!(
        log = %partition_dir.name, log_end, high_watermark = high,
        "recovery-point-offset-checkpoint says {point}, beyond the end of the log, and the high \
         watermark does not: the checkpoint is damaged, the log is not"
    );
    false
}

/// Logs that the segment `base` has an index and no log file. `next`: the next segment's base
/// offset.
pub(crate) fn report_missing(partition_dir: &PartitionDir, base: i64, next: Option<i64>) {
    let until = next.map_or_else(|| "the end".to_owned(), |next| (next - 1).to_string());
    tracing::error!(
        log = %partition_dir.name,
        "segment {base} is missing, its index is left: offsets {base} to {until} are lost, unless \
         they were being deleted; restore {base:020}.log, or fetch the partition from a replica"
    );
}

/// The end of a log's last batch.
pub(crate) struct LastBatch {
    /// One past its last offset.
    pub end: i64,
    /// Its leader epoch.
    pub epoch: i32,
}

/// Whether the leader epochs agree with the batches. Only a few headers are read.
pub(crate) fn has_right_epochs(
    partition_dir: &Arc<PartitionDir>,
    found: &Recovered,
    last: Option<LastBatch>,
) -> bool {
    let Recovered { segments, log_start, epochs, .. } = found;
    let log_start = *log_start;
    let newest = epochs.entries().last().map_or((-1, 0), |entry| (entry.0.0, entry.1.0));
    // The epoch of a batch begins before the end of the log.
    let is_newest = |last: &LastBatch| last.epoch == newest.0 && newest.1 < last.end;
    let last = last.filter(|last| last.epoch >= 0);
    let mut wrong = last.filter(|last| !is_newest(last)).map(|_| newest.0);
    for (number, (epoch, start)) in epochs.entries().iter().enumerate() {
        let from = start.0.max(log_start);
        let index = segments.partition_point(|it| it.base_offset <= from).saturating_sub(1);
        let Some(segment) = segments.get(index) else { break };
        let found = segment.find(from, segment.size()).ok().flatten();
        let Some(batch) = found.filter(|it| it.magic == 2) else { continue };
        let begins = batch.base_offset >= start.0 || (number == 0 && start.0 <= log_start);
        let fits = if batch.base_offset == start.0 {
            batch.leader_epoch == epoch.0
        } else {
            batch.leader_epoch >= epoch.0
        };
        let before = start.0.checked_sub(1).filter(|before| *before >= log_start && number > 0);
        let later = match before {
            Some(before) => epoch_at(segments, before).is_some_and(|found| found >= epoch.0),
            None => false,
        };
        if !(begins && fits) || later {
            wrong = Some(epoch.0);
        }
    }
    if let Some(epoch) = wrong {
        tracing::warn!(
            log = %partition_dir.name, epoch,
            "leader-epoch-checkpoint does not agree with the log: it is rebuilt"
        );
    }
    wrong.is_none()
}

/// The leader epoch of the batch that holds an offset.
fn epoch_at(segments: &[Arc<Segment>], offset: i64) -> Option<i32> {
    let index = segments.partition_point(|it| it.base_offset <= offset).saturating_sub(1);
    let segment = segments.get(index)?;
    let batch = segment.find(offset, segment.size()).ok().flatten()?;
    (batch.base_offset <= offset).then_some(batch.leader_epoch)
}

/// Renames segments that lie completely below the log start to `.cut`, instead of deleting them: a
/// damaged checkpoint must not delete a log.
pub(crate) fn keep_aside(
    partition_dir: &PartitionDir,
    found: &Recovered,
) -> Result<(), StorageError> {
    let Some(first) = found.segments.first() else { return Ok(()) };
    let (from, to, start) = (first.base_offset, found.log_end - 1, found.log_start);
    tracing::warn!(
        log = %partition_dir.name, start,
        "offsets {from} to {to} lie below the start of the log, which log-start-offset-checkpoint \
         says; they are not served any more, and their segments are kept as .log.0.cut"
    );
    for segment in &found.segments {
        let path = segment.path(LOG);
        let target = files::with_suffix(&path, ".0.cut");
        files::rename_if_there(partition_dir.log_dir.disk(), &path, &target)
            .map_err(|error| partition_dir.log_dir.failed("keep a segment aside", error))?;
    }
    partition_dir.log_dir.sync_dir(&partition_dir.path.read())
}
