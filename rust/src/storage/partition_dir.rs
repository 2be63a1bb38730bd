//! The directory of one partition: its path, its files, and a checksum of each `.txnindex` file.
//!
//! A segment without aborted transactions has no `.txnindex`. If the file is deleted, or cut
//! between two entries, it looks valid. Therefore the size and checksum of each `.txnindex` are
//! kept in another file; `aborted` compares them.
//! Format: `krust-aborted-transactions` in the partition's directory: line 1 version `0`, line 2
//! the count n, then n lines `base_offset size crc32c`. Kafka ignores files of such names.
//! Threads: shared; one lock for the path, one for the checksums, held while the file is written.
//! A file of checksums that a power failure damaged counts as missing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::dirs::LogDir;
use super::errors::StorageError;
use super::file_names::LOG;
use super::files;
use crate::record::crc::crc32c;

/// The directory of a log's files. Its segments share it; it changes when the log is moved or
/// deleted.
#[derive(Debug)]
pub(crate) struct PartitionDir {
    pub log_dir: Arc<LogDir>,
    pub path: RwLock<PathBuf>,
    pub name: Arc<str>,
    /// The checksums of its segments' `.txnindex` files.
    pub txn_index_sums: TxnIndexSums,
}

impl PartitionDir {
    /// The path of the file of `kind` for `base_offset`.
    pub(crate) fn file(&self, base_offset: i64, kind: &str) -> PathBuf {
        self.path.read().join(format!("{base_offset:020}.{kind}"))
    }

    /// Removes one of its files, if it is there.
    pub(super) fn remove(&self, path: PathBuf) -> Result<(), StorageError> {
        files::remove_if_there(self.log_dir.disk(), &path)
            .map_err(|error| self.log_dir.failed("remove a leftover", error))
    }

    /// The names of all its files; none without a directory.
    pub(super) fn file_names(&self) -> Result<Vec<String>, StorageError> {
        let path = self.path.read();
        let fail = |error| StorageError::io("list", &path, error);
        let entries = match std::fs::read_dir(&*path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        entries
            .map(|entry| entry.map(|entry| entry.file_name().into_string().unwrap_or_default()))
            .collect::<io::Result<_>>()
            .map_err(fail)
    }

    /// Reads the checksums of the `.txnindex` files.
    pub(super) fn load_txn_index_sums(&self) {
        *self.txn_index_sums.0.lock() = read(self);
    }
}

/// The file's name.
pub(super) const ABORTED: &str = "krust-aborted-transactions";

/// Size and CRC-32C of a `.txnindex`.
type FileSum = (usize, u32);

/// The sums of a log's `.txnindex` files by base offset. A segment without such a file has none.
#[derive(Debug, Default)]
pub(crate) struct TxnIndexSums(Mutex<BTreeMap<i64, FileSum>>);

impl TxnIndexSums {
    /// Notes the new content of a segment's `.txnindex`; no bytes: there is no such file.
    pub(super) fn note(
        &self,
        partition_dir: &PartitionDir,
        base_offset: i64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut sums = self.0.lock();
        let sum = (!bytes.is_empty()).then(|| sum(bytes));
        let before = match sum {
            Some(sum) => sums.insert(base_offset, sum),
            None => sums.remove(&base_offset),
        };
        if before == sum { Ok(()) } else { write(partition_dir, &mut sums) }
    }

    /// Whether the `.txnindex` of a segment has its last content. `bytes`: the present content;
    /// empty without a file.
    pub(super) fn is_same(&self, base_offset: i64, bytes: &[u8]) -> bool {
        self.0.lock().get(&base_offset).is_none_or(|known| *known == sum(bytes))
    }

    /// Takes over the sums of a log that moves to `partition_dir`.
    pub(super) fn take_over(&self, partition_dir: &PartitionDir, other: &Self) -> io::Result<()> {
        let known = other.0.lock().clone();
        let mut sums = self.0.lock();
        *sums = known;
        if sums.is_empty() { Ok(()) } else { write(partition_dir, &mut sums) }
    }

    /// The segments whose `.txnindex` is known.
    pub(super) fn base_offsets(&self) -> BTreeSet<i64> {
        self.0.lock().keys().copied().collect()
    }
}

fn sum(bytes: &[u8]) -> FileSum {
    (bytes.len(), crc32c(bytes))
}

fn path(partition_dir: &PartitionDir) -> PathBuf {
    partition_dir.path.read().join(ABORTED)
}

/// Writes the file, without the sums of segments that no longer exist.
fn write(partition_dir: &PartitionDir, sums: &mut BTreeMap<i64, FileSum>) -> io::Result<()> {
    sums.retain(|base, _| partition_dir.file(*base, LOG).exists());
    let (disk, path) = (partition_dir.log_dir.disk(), path(partition_dir));
    if sums.is_empty() {
        return files::remove_if_there(disk, &path);
    }
    files::replace_derived(disk, &path, to_text(sums).as_bytes())
}

fn read(partition_dir: &PartitionDir) -> BTreeMap<i64, FileSum> {
    let bytes = match std::fs::read(path(partition_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
        other => other.unwrap_or_default(),
    };
    std::str::from_utf8(&bytes).ok().and_then(parse).unwrap_or_else(|| {
        tracing::warn!(
            log = %partition_dir.name,
            "{ABORTED} is not readable: each .txnindex is taken as it is; krust log verify tells \
             whether it is right"
        );
        BTreeMap::new()
    })
}

fn to_text(sums: &BTreeMap<i64, FileSum>) -> String {
    let mut text = format!("0\n{}\n", sums.len());
    for (base, (size, crc)) in sums {
        text.push_str(&format!("{base} {size} {crc:08x}\n"));
    }
    text
}

/// Reads the text of a file; `None` if it is malformed.
fn parse(text: &str) -> Option<BTreeMap<i64, FileSum>> {
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
