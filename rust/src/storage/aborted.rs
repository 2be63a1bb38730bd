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
use super::partition_dir::{ABORTED, Home};
use super::producer_replay::load_producers;
use super::segment::Segment;
use super::txnindex::Aborted;

/// Holds the `.txnindex` files of a log that was just recovered against what was written; `found`:
/// which segments had one. What differs is said, and made anew; a file that nothing is known of is
/// taken as it is.
pub(super) fn check(
    home: &Arc<Home>,
    (segments, log_end): (&[Arc<Segment>], i64),
    found: &BTreeSet<i64>,
) -> Result<(), StorageError> {
    let known = home.written.base_offsets();
    for segment in segments {
        let base = segment.base_offset;
        if !found.contains(&base) && !known.contains(&base) {
            continue;
        }
        let bytes = txn_index(home, base)?;
        if home.written.is_same(base, &bytes) {
            note(home, base, &bytes)?;
            continue;
        }
        tracing::warn!(
            log = %home.name,
            offset = base,
            "aborted transactions are made anew: its .txnindex is not the one that was written"
        );
        if let Err(error) = make_anew(home, segments, (segment, log_end)) {
            tracing::error!("{error}");
        }
    }
    Ok(())
}

/// A compaction put a segment, and its `.txnindex` if it has one, in the place of others.
pub(super) fn renamed(home: &Home, base_offset: i64) -> Result<(), StorageError> {
    note(home, base_offset, &txn_index(home, base_offset)?)
}

/// Makes the aborted transactions of a segment, and their file, anew from its batches.
/// Errors: the segment is damaged as well; the disk's.
pub(super) fn make_anew(
    home: &Arc<Home>,
    segments: &[Arc<Segment>],
    (segment, log_end): (&Arc<Segment>, i64),
) -> Result<(), StorageError> {
    let next = segments.iter().map(|it| it.base_offset).find(|it| *it > segment.base_offset);
    let (base, end) = (segment.base_offset, next.unwrap_or(log_end));
    let replayed = load_producers(home, segments, (base, end, true))?;
    if let Some(offset) = replayed.bad {
        return Err(StorageError::Damaged {
            log: Arc::clone(&home.name),
            offset,
            reason: "nobody can tell which transactions were aborted: the .txnindex does not \
                     agree with the segment, and the segment is damaged"
                .into(),
        });
    }
    let here = |entry: &Aborted| (base..end).contains(&entry.last_offset);
    segment.set_aborted(replayed.aborted.into_iter().filter(here).collect());
    segment.save(segment.is_sealed())
}

/// The bytes of a segment's `.txnindex`; none without a file.
fn txn_index(home: &Home, base_offset: i64) -> Result<Vec<u8>, StorageError> {
    match files::read(home.dir.disk(), &home.file(base_offset, TXN_INDEX)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| home.dir.failed("read an index", error)),
    }
}

fn note(home: &Home, base_offset: i64, bytes: &[u8]) -> Result<(), StorageError> {
    let fail = |error| home.dir.failed(&format!("write {ABORTED}"), error);
    home.written.note(home, base_offset, bytes).map_err(fail)
}
