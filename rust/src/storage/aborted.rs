//! What each `.txnindex` of a log held when it was written, so that one that is gone is missed.
//!
//! A segment without aborted transactions has no `.txnindex`. One that was deleted, or cut between
//! two entries, looks like that of a segment in which nothing more was aborted, and readers of
//! committed records would be given what was aborted. So its size and checksum are kept beside it;
//! whatever else is found there is made anew from the segment.
//! Format: `krust-aborted-transactions` in the partition's directory: line 1 version `0`, line 2
//! the count n, then n lines `base_offset size crc32c`. Kafka leaves files of such names alone.
//! Threads: a lock of the log's, held for the writing of the file.
//! Not promised: what another program or a start without this file finds there is taken as it is;
//! a file that a power cut spoiled counts as none.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::errors::StorageError;
use super::files;
use super::recovery::{self, Recovered};
use super::segment::{Home, LOG, Segment, TXN_INDEX};
use super::txnindex::Aborted;
use crate::record::crc::crc32c;

/// The file's name.
pub(super) const ABORTED: &str = "krust-aborted-transactions";

/// Size and CRC-32C of a `.txnindex`.
type Sum = (usize, u32);

/// The sums of a log's `.txnindex` files by base offset. Segments without one are not in here.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<BTreeMap<i64, Sum>>);

impl Written {
    /// The `.txnindex` of a segment holds `bytes` from now on; none: there is no such file.
    pub(super) fn note(&self, home: &Home, base_offset: i64, bytes: &[u8]) -> io::Result<()> {
        let mut sums = self.0.lock();
        let sum = (!bytes.is_empty()).then(|| sum(bytes));
        let before = match sum {
            Some(sum) => sums.insert(base_offset, sum),
            None => sums.remove(&base_offset),
        };
        if before == sum { Ok(()) } else { write(home, &mut sums) }
    }

    /// Whether the `.txnindex` of a segment holds what was written. `bytes`: none without a file.
    pub(super) fn is_same(&self, base_offset: i64, bytes: &[u8]) -> bool {
        self.0.lock().get(&base_offset).is_none_or(|known| *known == sum(bytes))
    }

    /// Takes over what is known of a log that moves to `home`.
    pub(super) fn take_over(&self, home: &Home, other: &Self) -> io::Result<()> {
        let known = other.0.lock().clone();
        let mut sums = self.0.lock();
        *sums = known;
        if sums.is_empty() { Ok(()) } else { write(home, &mut sums) }
    }
}

/// Reads what was written of the `.txnindex` files of a log.
pub(super) fn load(home: &Home) {
    *home.written.0.lock() = read(home);
}

/// Holds the `.txnindex` files of a log that was just recovered against what was written; `found`:
/// which segments had one. What differs is said, and made anew; a file that nothing is known of is
/// taken as it is.
pub(super) fn check(
    home: &Arc<Home>,
    log: &Recovered,
    found: &BTreeSet<i64>,
) -> Result<(), StorageError> {
    let known = home.written.0.lock().clone();
    for segment in &log.segments {
        let base = segment.base_offset;
        if !found.contains(&base) && !known.contains_key(&base) {
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
        if let Err(error) = make_anew(home, &log.segments, (segment, log.log_end)) {
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
    let replayed = recovery::load_producers(home, segments, (base, end, true))?;
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

fn sum(bytes: &[u8]) -> Sum {
    (bytes.len(), crc32c(bytes))
}

fn path(home: &Home) -> PathBuf {
    home.path.read().join(ABORTED)
}

/// Writes the file, without what it knew of segments that are gone.
fn write(home: &Home, sums: &mut BTreeMap<i64, Sum>) -> io::Result<()> {
    sums.retain(|base, _| home.file(*base, LOG).exists());
    let (disk, path) = (home.dir.disk(), path(home));
    if sums.is_empty() {
        return files::remove_if_there(disk, &path);
    }
    files::replace_derived(disk, &path, to_text(sums).as_bytes())
}

fn read(home: &Home) -> BTreeMap<i64, Sum> {
    let bytes = match std::fs::read(path(home)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
        other => other.unwrap_or_default(),
    };
    std::str::from_utf8(&bytes).ok().and_then(parse).unwrap_or_else(|| {
        tracing::warn!(
            log = %home.name,
            "{ABORTED} is not readable: each .txnindex is taken as it is; krust log verify tells \
             whether it is right"
        );
        BTreeMap::new()
    })
}

fn to_text(sums: &BTreeMap<i64, Sum>) -> String {
    let mut text = format!("0\n{}\n", sums.len());
    for (base, (size, crc)) in sums {
        text.push_str(&format!("{base} {size} {crc:08x}\n"));
    }
    text
}

/// Reads the text of a file; `None` if it is none.
fn parse(text: &str) -> Option<BTreeMap<i64, Sum>> {
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != "0" {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let mut sums = BTreeMap::new();
    for line in lines {
        let mut words = line.split(' ');
        let base = words.next()?.parse().ok()?;
        let size = words.next()?.parse().ok()?;
        sums.insert(base, (size, u32::from_str_radix(words.next()?, 16).ok()?));
        if words.next().is_some() {
            return None;
        }
    }
    (sums.len() == count).then_some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_the_round_trip() {
        let sums = BTreeMap::from([(0, (68, 7)), (1200, (34, u32::MAX))]);
        assert_eq!(to_text(&sums), "0\n2\n0 68 00000007\n1200 34 ffffffff\n");
        assert_eq!(parse(&to_text(&sums)), Some(sums));
    }

    #[test]
    fn a_torn_file_counts_as_none() {
        let whole = "0\n1\n0 68 00000007\n";
        (0..whole.len()).for_each(|len| assert_eq!(parse(&whole[..len]), None, "{len} bytes"));
    }
}
