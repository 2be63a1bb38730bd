//! Whether the `.txnindex` files of a log are the ones that were written (see `partition_dir`).
//!
//! Readers of committed records would be given aborted ones where a `.txnindex` is gone or cut. A
//! file that differs from what was written is made anew from the segment.
//! Threads: as `recovery`, and a compaction that has renamed a segment.
//! Not promised: what another program or a start without this file finds there is taken as it is.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::errors::StorageError;
use super::file_names::TXN_INDEX;
use super::files;
use super::partition_dir::{ABORTED, PartitionDir};
use super::producer_replay::load_producers;
use super::segment::Segment;
use super::txnindex::AbortedTxn;

/// Holds the `.txnindex` files of a log that was just recovered against what was written; `found`:
/// which segments had one. What differs is said, and made anew; a file that nothing is known of is
/// taken as it is.
pub(super) fn check(
    partition_dir: &Arc<PartitionDir>,
    (segments, log_end): (&[Arc<Segment>], i64),
    found: &BTreeSet<i64>,
) -> Result<(), StorageError> {
    let known = partition_dir.txn_index_sums.base_offsets();
    for segment in segments {
        let base = segment.base_offset;
        if !found.contains(&base) && !known.contains(&base) {
            continue;
        }
        let bytes = txn_index(partition_dir, base)?;
        if partition_dir.txn_index_sums.is_same(base, &bytes) {
            note(partition_dir, base, &bytes)?;
            continue;
        }
        tracing::warn!(
            log = %partition_dir.name,
            offset = base,
            "aborted transactions are made anew: its .txnindex is not the one that was written"
        );
        if let Err(error) = make_anew(partition_dir, segments, (segment, log_end)) {
            tracing::error!("{error}");
        }
    }
    Ok(())
}

/// A compaction put a segment, and its `.txnindex` if it has one, in the place of others.
pub(super) fn renamed(partition_dir: &PartitionDir, base_offset: i64) -> Result<(), StorageError> {
    note(partition_dir, base_offset, &txn_index(partition_dir, base_offset)?)
}

/// Makes the aborted transactions of a segment, and their file, anew from its batches.
/// Errors: the segment is damaged as well; the disk's.
pub(super) fn make_anew(
    partition_dir: &Arc<PartitionDir>,
    segments: &[Arc<Segment>],
    (segment, log_end): (&Arc<Segment>, i64),
) -> Result<(), StorageError> {
    let next = segments.iter().map(|it| it.base_offset).find(|it| *it > segment.base_offset);
    let (base, end) = (segment.base_offset, next.unwrap_or(log_end));
    let replayed = load_producers(partition_dir, segments, (base, end, true))?;
    if let Some(offset) = replayed.bad {
        return Err(StorageError::Damaged {
            log: Arc::clone(&partition_dir.name),
            offset,
            reason: "nobody can tell which transactions were aborted: the .txnindex does not \
                     agree with the segment, and the segment is damaged"
                .into(),
        });
    }
    let here = |entry: &AbortedTxn| (base..end).contains(&entry.last_offset);
    segment.set_aborted(replayed.aborted.into_iter().filter(here).collect());
    segment.save(segment.is_sealed())
}

/// The bytes of a segment's `.txnindex`; none without a file.
fn txn_index(partition_dir: &PartitionDir, base_offset: i64) -> Result<Vec<u8>, StorageError> {
    match files::read(partition_dir.log_dir.disk(), &partition_dir.file(base_offset, TXN_INDEX)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| partition_dir.log_dir.failed("read an index", error)),
    }
}

fn note(partition_dir: &PartitionDir, base_offset: i64, bytes: &[u8]) -> Result<(), StorageError> {
    let fail = |error| partition_dir.log_dir.failed(&format!("write {ABORTED}"), error);
    partition_dir.txn_index_sums.note(partition_dir, base_offset, bytes).map_err(fail)
}
