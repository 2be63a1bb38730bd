//! Whether the small files of a partition agree with its log: checkpoints and leader epochs bear no
//! checksum, so each is held against another one, or against batches.
//!
//! - The log start is also where the oldest leader epoch begins. Where both differ the lower one
//!   counts: nothing is hidden, but deleted records may be seen again.
//! - A recovery point beyond the end of the log: the log lost records (damage), unless the high
//!   watermark, written with it, is not beyond the end either.
//! - A leader epoch begins where its first batch does; the newest one is that of the last batch.
//! - Segments whose index is left without its log are missing.
//!
//! Threads: one, before anybody else knows the log.
//! Not promised: a recovery point that is too low is not noticed: more is checked than need be.

use std::sync::Arc;

use super::epochs::Epochs;
use super::errors::StorageError;
use super::file_names::LOG;
use super::files;
use super::partition_dir::PartitionDir;
use super::recovered::{Recovered, RecoveryRequest};
use super::segment::Segment;

/// The offset where the log starts, by the checkpoint or by the oldest leader epoch. An empty log,
/// `first` is `None`, starts where the checkpoint says: its epochs may be those of a former log.
pub(crate) fn log_start(
    partition_dir: &PartitionDir,
    request: &RecoveryRequest,
    (first, epochs): (Option<i64>, &Epochs),
) -> i64 {
    let checkpoint = request.log_start.unwrap_or(0).max(first.unwrap_or(0));
    let Some(first) = first else { return checkpoint };
    let Some(begins) = epochs.entries().first().map(|entry| entry.1.0.max(first)) else {
        return checkpoint;
    };
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

/// Whether a log that ends below its recovery point lost records. If not, says which file is wrong.
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

/// Warns of segments whose index is there and whose log is not.
pub(crate) fn name_missing(partition_dir: &PartitionDir, (base, next): (i64, Option<i64>)) {
    let until = next.map_or_else(|| "the end".to_owned(), |next| (next - 1).to_string());
    tracing::error!(
        log = %partition_dir.name,
        "segment {base} is missing, its index is left: offsets {base} to {until} are lost, unless \
         they were being deleted; restore {base:020}.log, or fetch the partition from a replica"
    );
}

/// Whether the epochs are those of the batches, as far as a few headers tell. `last`: where the
/// last batch ends, and its epoch.
pub(crate) fn has_right_epochs(
    partition_dir: &Arc<PartitionDir>,
    (segments, log_start): (&[Arc<Segment>], i64),
    epochs: &Epochs,
    last: Option<(i64, i32)>,
) -> Result<bool, StorageError> {
    let newest = epochs.entries().last().map_or((-1, 0), |entry| (entry.0.0, entry.1.0));
    // An epoch that some batch bears begins before the end of the log.
    let is_newest = |(end, epoch): &(i64, i32)| *epoch == newest.0 && newest.1 < *end;
    let last = last.filter(|last| last.1 >= 0);
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
            "leader-epoch-checkpoint does not agree with the log: it is made anew"
        );
    }
    Ok(wrong.is_none())
}

/// The leader epoch of the batch that holds an offset.
fn epoch_at(segments: &[Arc<Segment>], offset: i64) -> Option<i32> {
    let index = segments.partition_point(|it| it.base_offset <= offset).saturating_sub(1);
    let segment = segments.get(index)?;
    let batch = segment.find(offset, segment.size()).ok().flatten()?;
    (batch.base_offset <= offset).then_some(batch.leader_epoch)
}

/// What lies wholly below the start of the log is kept beside it, in files that end in `.cut`: a
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
