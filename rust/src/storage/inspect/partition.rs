//! Checks all files of a partition's directory against its batches: derived files must agree with
//! them.
//!
//! Checked: checksums; that offsets rise and end below the next segment; every index entry, and
//! that the indexes reach the end; aborted transactions, by a replay; snapshots' checksums, and
//! that none is missing; leader epochs; the topic's id.
//! After a clean shutdown (`clean`) all files must be there. After a kill, those of the last
//! segment may lag.
//! Not promised: that a lost batch of a compacted log is reported. Such logs may have gaps.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::super::epochs::Epochs;
use super::super::file_names::parse_name;
use super::super::index::{self, IndexEntry, OffsetEntry, TimeEntry};
use super::super::names;
use super::super::producers::Producers;
use super::super::txnindex::{self, AbortedTxn};
use super::{DumpedBatch, FileProblem, REPAIR, dump};
use crate::ids::{Epoch, Offset, TopicPartition};
use crate::record::batch::Batch;

const REBUILT: &str = "delete the file: the next start rebuilds it from the log";
/// A killed Kafka leaves at least this many zeros at the end of an index.
const PREALLOCATED: usize = 64 << 10;
/// A rebuilt index has an entry every so many bytes.
const REBUILT_INTERVAL: u64 = 4096;
const EPOCHS: &str = "leader-epoch-checkpoint";

/// A partition's directory while it is checked.
struct PartitionCheck<'p> {
    directory: &'p Path,
    /// Whether the broker shut down cleanly.
    clean: bool,
    /// Whether its broker wrote topic ids; such a broker writes all other files too.
    modern: bool,
    /// Whether compaction may have removed batches.
    gaps: bool,
    bases: Vec<i64>,
    batches: Vec<Vec<DumpedBatch>>,
    sizes: Vec<u64>,
    problems: Vec<FileProblem>,
}

/// Checks all segments of a partition's directory and their other files. Returns the problems.
pub fn verify(directory: &Path) -> io::Result<Vec<FileProblem>> {
    let root = directory.parent().unwrap_or(directory);
    let name = directory.file_name().and_then(|name| name.to_str()).and_then(names::parse_live);
    let mut checked = PartitionCheck {
        directory,
        clean: root.join(".kafka_cleanshutdown").exists(),
        modern: directory.join(names::METADATA).exists(),
        gaps: name.as_ref().is_none_or(|name| was_cleaned(root, name)),
        bases: Vec::new(),
        batches: Vec::new(),
        sizes: Vec::new(),
        problems: Vec::new(),
    };
    let files = names_in(directory)?;
    checked.bases = offsets_of(&files, "log");
    checked.missing_segments(&files);
    checked.segments()?;
    for index in 0..checked.bases.len() {
        checked.indexes(index)?;
    }
    checked.transactions()?;
    checked.snapshots(&offsets_of(&files, "snapshot"))?;
    checked.epochs()?;
    checked.topic_id(name.as_ref())?;
    Ok(checked.problems)
}

impl PartitionCheck<'_> {
    fn complain(&mut self, path: PathBuf, position: u64, what: String, remedy: &'static str) {
        self.problems.push(FileProblem { path, position, what, remedy });
    }

    fn file(&self, base: i64, kind: &str) -> PathBuf {
        self.directory.join(format!("{base:020}.{kind}"))
    }

    /// Whether a segment is sealed, so that its files are complete.
    fn is_sealed(&self, index: usize) -> bool {
        self.clean || index + 1 < self.bases.len()
    }

    /// Reports segments that have an index and no log file.
    fn missing_segments(&mut self, files: &[String]) {
        let mut gone = BTreeSet::new();
        for kind in ["index", "timeindex", "txnindex"] {
            gone.extend(offsets_of(files, kind));
        }
        for base in gone
            .into_iter()
            .filter(|base| self.bases.binary_search(base).is_err())
            .collect::<Vec<_>>()
        {
            let next = self.bases.iter().find(|next| **next > base);
            let until = next.map_or("the end".to_owned(), |next| format!("{}", next - 1));
            let what = format!(
                "the segment is gone, its index is left: offsets {base} to {until} are lost"
            );
            self.complain(self.file(base, "log"), 0, what, REPAIR);
        }
    }

    /// Reads every batch.
    fn segments(&mut self) -> io::Result<()> {
        let mut next: Option<i64> = None;
        let mut epoch = -1;
        for (index, base) in self.bases.clone().into_iter().enumerate() {
            let path = self.file(base, "log");
            let limit = self.bases.get(index + 1).copied().unwrap_or(i64::MAX);
            let mut due = next.unwrap_or(base);
            if base > due && !self.gaps {
                let what = format!("offsets {due} to {} are missing before it", base - 1);
                self.complain(path.clone(), 0, what, REPAIR);
            }
            due = due.max(base);
            let mut batches = Vec::new();
            for found in dump(&path)? {
                let batch = match found {
                    Ok(batch) => batch,
                    Err(mut problem) => {
                        problem.what =
                            format!("{}: nothing from offset {due} on can be read", problem.what);
                        self.problems.push(problem);
                        break;
                    }
                };
                if let Some(what) =
                    wrong_in(&batch, &BatchLimits { due, limit, epoch, gaps: self.gaps })
                {
                    self.complain(path.clone(), batch.position, what, REPAIR);
                }
                epoch = epoch.max(batch.header.map_or(-1, |header| header.leader_epoch));
                due = batch.last_offset.saturating_add(1);
                batches.push(batch);
            }
            next = Some(due);
            self.sizes.push(std::fs::metadata(&path)?.len());
            self.batches.push(batches);
        }
        Ok(())
    }

    fn indexes(&mut self, index: usize) -> io::Result<()> {
        let (Some(base), Some(batches)) =
            (self.bases.get(index).copied(), self.batches.get(index).cloned())
        else {
            return Ok(());
        };
        let (offsets, times) = (self.file(base, "index"), self.file(base, "timeindex"));
        if let Some(bytes) = self.read_index::<OffsetEntry>(index, &offsets)? {
            self.offsets(&offsets, (index, base, &batches), &bytes);
        }
        if let Some(bytes) = self.read_index::<TimeEntry>(index, &times)? {
            self.times(&times, (index, base, &batches), &bytes);
        }
        Ok(())
    }

    /// The entries of an index, where there is one.
    fn read_index<E: IndexEntry>(
        &mut self,
        index: usize,
        path: &Path,
    ) -> io::Result<Option<Vec<u8>>> {
        let sealed = self.is_sealed(index);
        let has_batches = self.batches.get(index).is_some_and(|batches| !batches.is_empty());
        let Some(bytes) = read_if_there(path)? else {
            if sealed && has_batches && self.modern {
                let what = "is missing: the next start reads the segment for it".to_owned();
                self.complain(
                    path.to_owned(),
                    0,
                    what,
                    "none is needed: the next start rebuilds it",
                );
            }
            return Ok(None);
        };
        let len = index::valid_len::<E>(&bytes);
        if sealed && (1..PREALLOCATED).contains(&(bytes.len() - len)) {
            let what = format!("its last {} bytes are no entries", bytes.len() - len);
            self.complain(path.to_owned(), len as u64, what, REBUILT);
        }
        Ok(Some(bytes.get(..len).unwrap_or_default().to_vec()))
    }

    fn offsets(
        &mut self,
        path: &Path,
        (index, base, batches): (usize, i64, &[DumpedBatch]),
        bytes: &[u8],
    ) {
        let (mut last, mut widest) = (0, 0);
        for (number, entry) in index::entries::<OffsetEntry>(bytes).enumerate() {
            let at = u64::try_from(entry.position).unwrap_or(u64::MAX);
            let found = batches.binary_search_by_key(&at, |batch| batch.position).ok();
            let offset = base + i64::from(entry.delta);
            if !found.is_some_and(|index| indexed(batches, index, offset)) {
                let what = format!("entry {number}: no batch at {at} that ends at offset {offset}");
                self.complain(path.to_owned(), (number * 8) as u64, what, REBUILT);
            } else {
                widest = widest.max(at.saturating_sub(last));
                last = at;
            }
        }
        // The distance of entries depends on `index.interval.bytes`, which is in no file.
        let others = self.widest_interval(index).max(widest).max(REBUILT_INTERVAL);
        let largest = batches.iter().map(|batch| batch.size).max().unwrap_or(0);
        let size = self.sizes.get(index).copied().unwrap_or(0);
        if self.is_sealed(index) && size.saturating_sub(last) > 2 * others + largest {
            let what =
                format!("ends early: nothing of it points beyond byte {last} of the segment");
            self.complain(path.to_owned(), bytes.len() as u64, what, REBUILT);
        }
    }

    /// The widest distance between entries of the other segments' indexes.
    fn widest_interval(&self, index: usize) -> u64 {
        let mut widest = 0;
        for (other, base) in self.bases.iter().enumerate().filter(|(other, _)| *other != index) {
            let Ok(Some(bytes)) = read_if_there(&self.file(*base, "index")) else { continue };
            let bytes = bytes.get(..index::valid_len::<OffsetEntry>(&bytes)).unwrap_or_default();
            let limit = self.sizes.get(other).copied().unwrap_or(0);
            let mut last = 0;
            for entry in index::entries::<OffsetEntry>(bytes) {
                let at = u64::try_from(entry.position).unwrap_or(0).min(limit);
                widest = widest.max(at.saturating_sub(last));
                last = at;
            }
        }
        widest
    }

    fn times(
        &mut self,
        path: &Path,
        (index, base, batches): (usize, i64, &[DumpedBatch]),
        bytes: &[u8],
    ) {
        let mut previous = i64::MIN;
        for (number, entry) in index::entries::<TimeEntry>(bytes).enumerate() {
            let offset = base + i64::from(entry.delta);
            let at = batches.partition_point(|batch| batch.last_offset < offset);
            let fits = batches.get(at).is_some_and(|batch| batch.max_timestamp == entry.timestamp);
            if !fits || entry.timestamp <= previous {
                let time = entry.timestamp;
                let what =
                    format!("entry {number}: time {time} does not belong to offset {offset}");
                self.complain(path.to_owned(), (number * 12) as u64, what, REBUILT);
            }
            previous = entry.timestamp;
        }
        let largest = batches.iter().map(|batch| batch.max_timestamp).max().unwrap_or(-1);
        if self.is_sealed(index) && largest >= 0 && previous < largest {
            let what = format!("ends early: it does not have the largest time, {largest}");
            self.complain(path.to_owned(), bytes.len() as u64, what, REBUILT);
        }
    }

    /// Compares the aborted transactions with a replay of all markers.
    fn transactions(&mut self) -> io::Result<()> {
        let first = self.bases.first().copied().unwrap_or(0);
        let snapshot = read_if_there(&self.file(first, "snapshot"))?;
        let mut producers =
            snapshot.and_then(|bytes| Producers::from_snapshot(&bytes)).unwrap_or_default();
        let whole = self.problems.iter().all(|problem| problem.remedy != REPAIR);
        for (index, base) in self.bases.clone().into_iter().enumerate() {
            let batches = self.batches.get(index).cloned().unwrap_or_default();
            let due = replay(&self.file(base, "log"), &batches, &mut producers)?;
            let path = self.file(base, "txnindex");
            let bytes = read_if_there(&path)?.unwrap_or_default();
            let has_right = txnindex::parse(&bytes).is_some_and(|found| same(&found, &due));
            if whole && self.is_sealed(index) && !has_right {
                let what = format!(
                    "is not the list of the {} transactions that the segment aborts",
                    due.len()
                );
                self.complain(path, 0, what, REBUILT);
            }
        }
        Ok(())
    }

    fn snapshots(&mut self, offsets: &[i64]) -> io::Result<()> {
        for offset in offsets {
            let path = self.file(*offset, "snapshot");
            let bytes = read_if_there(&path)?.unwrap_or_default();
            if Producers::from_snapshot(&bytes).is_none() {
                let what =
                    "is not readable: what producers have sent is read from the log".to_owned();
                self.complain(path, 0, what, REBUILT);
            }
        }
        let end = self.batches.last().and_then(|batches| batches.last());
        let end = end.map(|batch| batch.last_offset + 1).filter(|_| self.clean && self.modern);
        let after_first = self.bases.iter().skip(1).copied();
        let oldest = offsets.first().copied().unwrap_or(i64::MAX);
        let due: Vec<i64> = after_first.filter(|base| *base > oldest).chain(end).collect();
        for offset in due.into_iter().filter(|offset| !offsets.contains(offset)) {
            let what = "is missing: what producers have sent is read from the log".to_owned();
            let remedy = "none is needed: the next start reads the log instead";
            self.complain(self.file(offset, "snapshot"), 0, what, remedy);
        }
        Ok(())
    }

    fn epochs(&mut self) -> io::Result<()> {
        let path = self.directory.join(EPOCHS);
        let all = self.batches.iter().flatten();
        let due: Vec<(i32, i64)> = all
            .filter_map(|batch| Some((batch.header?.leader_epoch, batch.base_offset)))
            .filter(|(epoch, _)| *epoch >= 0)
            .collect();
        let Some(bytes) = read_if_there(&path)? else {
            if self.clean && self.modern && !due.is_empty() {
                let what = "is missing: the next start rebuilds it from the log".to_owned();
                self.complain(path, 0, what, "none is needed: the next start rebuilds it");
            }
            return Ok(());
        };
        let Some(epochs) = std::str::from_utf8(&bytes).ok().and_then(Epochs::parse) else {
            let what = "is no list of leader epochs".to_owned();
            self.complain(path, 0, what, REBUILT);
            return Ok(());
        };
        if let Some(what) = wrong_in_epochs(&epochs, &due, self.clean, self.gaps) {
            self.complain(path, 0, what, REBUILT);
        }
        Ok(())
    }

    fn topic_id(&mut self, name: Option<&TopicPartition>) -> io::Result<()> {
        let path = self.directory.join(names::METADATA);
        let there = read_if_there(&path)?.is_some();
        let id = names::read_topic_id(self.directory);
        let remedy = "copy the file of another partition of the topic";
        let root = self.directory.parent().unwrap_or(self.directory);
        let others = name.map_or_else(Vec::new, |_| names::list(root).unwrap_or_default());
        // Older brokers write no topic ids.
        if !there && others.iter().any(|other| other.topic_id.is_some()) {
            let what = "is missing: no file tells the topic id".to_owned();
            self.complain(path, 0, what, remedy);
            return Ok(());
        }
        let (Some(name), Some(id)) = (name, id) else {
            if there && id.is_none() {
                self.complain(path, 0, "tells no topic id".to_owned(), remedy);
            }
            return Ok(());
        };
        let text = read_if_there(&path)?.unwrap_or_default();
        if text.trim_ascii_end() != names::topic_id_text(id).as_bytes() {
            let what = "tells the topic id in another way than brokers write it".to_owned();
            self.complain(path.clone(), 0, what, remedy);
        }
        for other in others {
            let is_same = other.name.topic == name.topic && other.kind == names::DirKind::Live;
            if let Some(known) = other.topic_id.filter(|known| is_same && *known != id) {
                let what = format!("topic id {id}, and {} has {known}", other.name);
                self.complain(path.clone(), 0, what, remedy);
            }
        }
        Ok(())
    }
}

/// The limits for a batch.
struct BatchLimits {
    /// Its first offset must not be below this one.
    due: i64,
    /// Its last offset must be below this one.
    limit: i64,
    /// Its leader epoch must not be below this one.
    epoch: i32,
    /// Whether it may begin above `due`.
    gaps: bool,
}

/// What is wrong with a batch, if anything.
fn wrong_in(batch: &DumpedBatch, limits: &BatchLimits) -> Option<String> {
    let DumpedBatch { base_offset, last_offset, .. } = *batch;
    let BatchLimits { due, limit, epoch, gaps } = *limits;
    if !batch.crc_ok {
        return Some(format!("wrong checksum: offsets {base_offset} to {last_offset} are damaged"));
    }
    if base_offset < due {
        return Some(format!("offset {base_offset} after {}: one of them is wrong", due - 1));
    }
    if base_offset > due && batch.magic == 2 && !gaps {
        return Some(format!("offsets {due} to {} are missing before it", base_offset - 1));
    }
    if last_offset >= limit {
        return Some(format!("offset {last_offset} reaches into the next segment"));
    }
    let found = batch.header.map_or(-1, |header| header.leader_epoch);
    if found < -1 {
        return Some(format!("leader epoch {found} is none"));
    }
    (found >= 0 && found < epoch)
        .then(|| format!("leader epoch {found} after {epoch}: one of them is wrong"))
}

/// What is wrong with the leader epochs. `due`: epoch and base offset of the batches, in order.
fn wrong_in_epochs(epochs: &Epochs, due: &[(i32, i64)], clean: bool, gaps: bool) -> Option<String> {
    let latest = due.last().map_or(-1, |last| last.0);
    let end = due.last().map_or(0, |last| last.1);
    for (number, (Epoch(epoch), Offset(start))) in epochs.entries().iter().enumerate() {
        let at = due.partition_point(|(_, base)| base < start);
        let first = due.get(at);
        let before = at.checked_sub(1).and_then(|at| due.get(at));
        let begins = first.is_none_or(|(found, base)| found == epoch || base != start);
        let ends = number == 0 || before.is_none_or(|(found, _)| found < epoch);
        let holds = first.is_none_or(|(found, _)| found >= epoch);
        let is_batch = number == 0
            || gaps
            || first.is_none_or(|(found, base)| found != epoch || base == start);
        if !(begins && ends && holds && is_batch) && (clean || *start <= end) {
            return Some(format!("no batch of epoch {epoch} begins at offset {start}"));
        }
    }
    (clean && latest >= 0 && epochs.latest().0 < latest)
        .then(|| format!("does not have epoch {latest}, which the last batch bears"))
}

/// The transactions that a segment's markers abort.
fn replay(
    path: &Path,
    batches: &[DumpedBatch],
    producers: &mut Producers,
) -> io::Result<Vec<AbortedTxn>> {
    let mut file = None;
    let mut aborted = Vec::new();
    for batch in batches {
        let Some(header) = batch.header.filter(|header| header.producer_id >= 0) else { continue };
        if !header.is_control() {
            producers.note(&header, header.is_transactional());
            producers.commit();
            continue;
        }
        let opened = match &file {
            Some(opened) => opened,
            None => &*file.insert(dump(path)?),
        };
        let bytes = opened.read(batch)?;
        if let Ok(parsed) = Batch::parse(&bytes) {
            aborted.extend(producers.replay(&parsed));
            producers.commit();
        }
    }
    Ok(aborted)
}

/// Whether both lists hold the same transactions; one may begin below the log start.
fn same(found: &[AbortedTxn], due: &[AbortedTxn]) -> bool {
    let of =
        |it: &AbortedTxn| (it.producer_id, it.first_offset, it.last_offset, it.last_stable_offset);
    found.len() == due.len() && found.iter().map(of).eq(due.iter().map(of))
}

/// Whether an index may have `offset` for the batch at `index`: the last offset. Brokers that wrote
/// the older formats used the first one, which a compressed message does not have.
fn indexed(batches: &[DumpedBatch], index: usize, offset: i64) -> bool {
    let before = index.checked_sub(1).and_then(|before| batches.get(before));
    batches.get(index).is_some_and(|batch| {
        let inside = before.is_none_or(|before| before.last_offset < offset);
        batch.last_offset == offset || (batch.magic < 2 && inside && offset < batch.last_offset)
    })
}

fn was_cleaned(root: &Path, name: &TopicPartition) -> bool {
    super::super::checkpoints::Checkpoints::read(root).points(name).cleaned.is_some()
}

fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<std::fs::DirEntry>| {
        entry.map(|entry| entry.file_name().into_string().unwrap_or_default())
    };
    std::fs::read_dir(directory)?.map(name).collect()
}

/// The offsets in the names of the files of `kind`, ascending.
fn offsets_of(files: &[String], kind: &str) -> Vec<i64> {
    let parsed = files.iter().filter_map(|name| parse_name(name));
    let mut found: Vec<i64> = parsed.filter(|it| it.1 == kind).map(|it| it.0).collect();
    found.sort_unstable();
    found
}

pub(super) fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
