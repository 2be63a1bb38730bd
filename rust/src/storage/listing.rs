//! Lists the files of a partition's directory, after it has cleared what a crash left.
//!
//! It finishes deletions that began (`.deleted`), finishes or undoes compactions (`.cleaned`,
//! `.swap`), and removes indexes without a segment.
//! Invariant: running it twice gives the same result as once, also if it is killed in between.
//! Threads: one, before any other thread knows the log.
//!     Files with other names stay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::consistency;
use super::errors::StorageError;
use super::file_names::{INDEX, LOG, TIME_INDEX, TXN_INDEX, parse_name};
use super::files;
use super::partition_dir::{ABORTED, PartitionDir};
use super::scan::{WalkStep, Walker};

/// The files in a partition's directory.
pub(crate) struct DirListing {
    /// The segments by base offset, with their sizes.
    pub segments: BTreeMap<i64, u64>,
    /// The segments that have a `.txnindex`.
    pub txn_indexes: BTreeSet<i64>,
    /// Whether there are checksums of those files.
    pub has_sums: bool,
}

/// Lists the segments and their sizes, after leftovers were cleared; `None` without a directory.
pub(super) fn list(partition_dir: &Arc<PartitionDir>) -> Result<Option<DirListing>, StorageError> {
    if !partition_dir.path.read().is_dir() {
        return Ok(None);
    }
    let leftovers = |name: &String| {
        [".deleted", ".cleaned", ".swap", ".tmp"].iter().any(|suffix| name.ends_with(suffix))
    };
    let mut all = partition_dir.file_names()?;
    if all.iter().any(leftovers) {
        clear_leftovers(partition_dir, &all)?;
        all = partition_dir.file_names()?;
    }
    let (mut segments, mut txn_indexes) = (BTreeMap::new(), BTreeSet::new());
    for (base, kind) in all.iter().filter_map(|name| parse_name(name)) {
        if kind == LOG {
            let path = partition_dir.file(base, LOG);
            let metadata =
                std::fs::metadata(&path).map_err(|e| StorageError::io("stat", &path, e))?;
            segments.insert(base, metadata.len());
        }
    }
    for (base, kind) in all.iter().filter_map(|name| parse_name(name)) {
        if [INDEX, TIME_INDEX, TXN_INDEX].contains(&kind) && !segments.contains_key(&base) {
            if kind == INDEX {
                let next = segments.range(base..).next().map(|(next, _)| *next);
                consistency::report_missing(partition_dir, base, next);
            }
            partition_dir.remove(partition_dir.file(base, kind))?;
        } else if kind == TXN_INDEX {
            txn_indexes.insert(base);
        }
    }
    let has_sums = all.iter().any(|name| name == ABORTED);
    Ok(Some(DirListing { segments, txn_indexes, has_sums }))
}

/// Finishes deletions. Finishes a compaction that has renamed all its results to `.swap`: the
/// segments they replace are removed, and they get their names. Undoes a compaction that has not;
/// its `.cleaned` files, which show that, are removed last.
fn clear_leftovers(partition_dir: &Arc<PartitionDir>, all: &[String]) -> Result<(), StorageError> {
    let path = partition_dir.path.read().clone();
    let ends_with = |suffix: &'static str| all.iter().filter(move |name| name.ends_with(suffix));
    let bases = |suffix| ends_with(suffix).filter_map(|name| parse_name(name)).map(|name| name.0);
    let oldest_cleaned = bases(".cleaned").min().unwrap_or(i64::MAX);
    let swapped: Vec<i64> = bases(".log.swap").filter(|base| *base < oldest_cleaned).collect();
    for name in ends_with(".deleted").chain(ends_with(".tmp")) {
        partition_dir.remove(path.join(name))?;
    }
    for name in ends_with(".swap") {
        if parse_name(name).is_none_or(|(base, _)| !swapped.contains(&base)) {
            partition_dir.remove(path.join(name))?;
        }
    }
    for name in ends_with(".cleaned") {
        partition_dir.remove(path.join(name))?;
    }
    swapped.iter().try_for_each(|base| finish_swap(partition_dir, *base, all))
}

fn finish_swap(
    partition_dir: &Arc<PartitionDir>,
    base: i64,
    all: &[String],
) -> Result<(), StorageError> {
    let end = end_of(&partition_dir.file(base, "log.swap"))?;
    for (other, kind) in all.iter().filter_map(|name| parse_name(name)) {
        let replaced = other == base || (base..end).contains(&other);
        if replaced && [LOG, INDEX, TIME_INDEX, TXN_INDEX].contains(&kind) {
            partition_dir.remove(partition_dir.file(other, kind))?;
        }
    }
    for kind in [INDEX, TIME_INDEX, TXN_INDEX, LOG] {
        let from = partition_dir.file(base, &format!("{kind}.swap"));
        files::rename_if_there(
            partition_dir.log_dir.disk(),
            &from,
            &partition_dir.file(base, kind),
        )
        .map_err(|error| partition_dir.log_dir.failed("finish a compaction", error))?;
    }
    Ok(())
}

/// One past the last offset of a file that is not a segment yet.
fn end_of(path: &PathBuf) -> Result<i64, StorageError> {
    let fail = |error| StorageError::io("read", path, error);
    let file = std::fs::File::open(path).map_err(fail)?;
    let size = file.metadata().map_err(fail)?.len();
    let mut walker = Walker::new(&file, 0, size);
    let mut end = 0;
    while let WalkStep::Batch(batch) = walker.step().map_err(fail)? {
        end = batch.last_offset + 1;
    }
    Ok(end)
}
