//! Checks whether the `.txnindex` files of a log still hold what was written (see `partition_dir`).
//!
//! If a `.txnindex` is missing or cut, read_committed consumers would receive aborted records. A
//! file that differs from what was written is rebuilt from the segment.
//! Threads: as `recovery`, and a compaction that has renamed a segment.
//! Not promised: a check of files without a known checksum, such as those of another program. They
//!     are trusted.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::errors::StorageError;
use super::file_names::TXN_INDEX;
use super::files;
use super::partition_dir::{ABORTED, PartitionDir};
use super::producer_replay::{ProducerReplay, load_producers};
use super::recovered::Recovered;
use super::segment::Segment;
use super::txnindex::AbortedTxn;

/// Compares the `.txnindex` files of a recovered log with what was written. `txn_indexes`: base
/// offsets of the segments that have one. A file that differs is logged and rebuilt; a file without
/// a known checksum is trusted.
pub(super) fn check(
    partition_dir: &Arc<PartitionDir>,
    found: &Recovered,
    txn_indexes: &BTreeSet<i64>,
) -> Result<(), StorageError> {
    let known = partition_dir.txn_index_sums.base_offsets();
    for segment in &found.segments {
        let base = segment.base_offset;
        if !txn_indexes.contains(&base) && !known.contains(&base) {
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
            "aborted transactions are rebuilt: its .txnindex differs from what was written"
        );
        if let Err(error) = rebuild(partition_dir, &found.segments, segment, found.log_end) {
            tracing::error!("{error}");
        }
    }
    Ok(())
}

/// Notes the `.txnindex` of a segment that a compaction put in the place of others.
pub(super) fn renamed(partition_dir: &PartitionDir, base_offset: i64) -> Result<(), StorageError> {
    note(partition_dir, base_offset, &txn_index(partition_dir, base_offset)?)
}

/// Rebuilds the aborted transactions of a segment, and their file, from its batches.
/// Errors: the segment is damaged too, or the disk failed.
pub(super) fn rebuild(
    partition_dir: &Arc<PartitionDir>,
    segments: &[Arc<Segment>],
    segment: &Arc<Segment>,
    log_end: i64,
) -> Result<(), StorageError> {
    let next = segments.iter().map(|it| it.base_offset).find(|it| *it > segment.base_offset);
    let (base, end) = (segment.base_offset, next.unwrap_or(log_end));
    let replayed = load_producers(
        partition_dir,
        segments,
        &ProducerReplay { snapshot_limit: base, end, check_crc: true },
    )?;
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

/// The bytes of a segment's `.txnindex`; empty without a file.
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
