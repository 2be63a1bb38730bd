//! Reading log files without a log: for `krust log dump` and `krust log verify`. Nothing is
//! written, locked or repaired, so a live directory may be looked at; its last batch may then look
//! cut.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::index::{self, OffsetEntry, TimeEntry};
use super::scan::{self, Step, Walker};
use crate::record::batch::Header;

/// A batch, or a message of an older format, as it lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dumped {
    /// Where it begins.
    pub position: u64,
    /// Its bytes, header included.
    pub size: u64,
    /// Its format.
    pub magic: i8,
    /// Its first offset (older formats: the one it bears).
    pub base_offset: i64,
    /// Its last offset.
    pub last_offset: i64,
    /// Its largest timestamp; -1 without.
    pub max_timestamp: i64,
    /// Whether the checksum is right.
    pub crc_ok: bool,
    /// The header, of magic 2.
    pub header: Option<Header>,
}

/// Something wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes.
    pub position: u64,
    /// What.
    pub what: String,
}

/// The batches of one `.log` file, in order. Ends after the first place that is no batch.
pub struct Dump {
    path: PathBuf,
    file: File,
    position: u64,
    end: u64,
    scratch: Vec<u8>,
    failed: bool,
}

/// Opens a `.log` file to be dumped.
pub fn dump(path: &Path) -> io::Result<Dump> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    let (path, scratch) = (path.to_owned(), Vec::new());
    Ok(Dump { path, file, position: 0, end, scratch, failed: false })
}

impl Dump {
    /// The bytes of a batch of this file.
    pub fn read(&self, batch: &Dumped) -> io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; usize::try_from(batch.size).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, batch.position)?;
        Ok(bytes)
    }

    fn problem(&mut self, what: impl Into<String>) -> Problem {
        self.failed = true;
        Problem { path: self.path.clone(), position: self.position, what: what.into() }
    }
}

impl Iterator for Dump {
    type Item = Result<Dumped, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = Walker::new(&self.file, self.position, self.end).step();
        match step {
            Ok(Step::End) => None,
            Ok(Step::Bad(reason)) => Some(Err(self.problem(reason))),
            Err(error) => Some(Err(self.problem(error.to_string()))),
            Ok(Step::Batch(batch)) => {
                let crc_ok = match scan::check_crc(&self.file, &batch, &mut self.scratch) {
                    Ok(crc_ok) => crc_ok,
                    Err(error) => return Some(Err(self.problem(error.to_string()))),
                };
                self.position = batch.end();
                Some(Ok(Dumped {
                    position: batch.position,
                    size: batch.size,
                    magic: batch.magic,
                    base_offset: batch.base_offset,
                    last_offset: batch.last_offset,
                    max_timestamp: batch.max_timestamp,
                    crc_ok,
                    header: batch.header,
                }))
            }
        }
    }
}

/// Checks all segments of a partition's directory and their indexes; what is wrong with them.
pub fn verify(directory: &Path) -> io::Result<Vec<Problem>> {
    let mut logs: Vec<PathBuf> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    let mut problems = Vec::new();
    let mut next = 0;
    for path in logs {
        let base =
            path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        let Some(base) = base else { continue };
        let batches = verify_log(&path, (base, &mut next), &mut problems)?;
        verify_index(&path.with_extension("index"), (base, &batches), &mut problems)?;
        verify_times(&path.with_extension("timeindex"), (base, &batches), &mut problems)?;
    }
    Ok(problems)
}

fn verify_log(
    path: &Path,
    (base, next): (i64, &mut i64),
    problems: &mut Vec<Problem>,
) -> io::Result<Vec<Dumped>> {
    let mut batches = Vec::new();
    *next = (*next).max(base);
    for found in dump(path)? {
        let batch = match found {
            Ok(batch) => batch,
            Err(problem) => {
                problems.push(problem);
                break;
            }
        };
        let mut complain = |what: String| {
            problems.push(Problem { path: path.to_owned(), position: batch.position, what });
        };
        if !batch.crc_ok {
            complain(format!("wrong checksum at offset {}", batch.base_offset));
        }
        if batch.base_offset < *next {
            complain(format!("offset {} after {}", batch.base_offset, *next - 1));
        }
        *next = batch.last_offset + 1;
        batches.push(batch);
    }
    Ok(batches)
}

/// Whether an index may say `offset` of the batch at `index`: its last one; brokers that wrote the
/// older formats said the first one, which a compressed message does not bear.
fn indexed(batches: &[Dumped], index: usize, offset: i64) -> bool {
    let before = index.checked_sub(1).and_then(|before| batches.get(before));
    batches.get(index).is_some_and(|batch| {
        let inside = before.is_none_or(|before| before.last_offset < offset);
        batch.last_offset == offset || (batch.magic < 2 && inside && offset < batch.last_offset)
    })
}

fn verify_index(
    path: &Path,
    (base, batches): (i64, &[Dumped]),
    problems: &mut Vec<Problem>,
) -> io::Result<()> {
    let Some(bytes) = read_if_there(path)? else { return Ok(()) };
    let bytes = bytes.get(..index::valid_len::<OffsetEntry>(&bytes)).unwrap_or_default();
    for (number, entry) in index::entries::<OffsetEntry>(bytes).enumerate() {
        let at = u64::try_from(entry.position).unwrap_or(u64::MAX);
        let found = batches.binary_search_by_key(&at, |batch| batch.position).ok();
        let offset = base + i64::from(entry.delta);
        if !found.is_some_and(|index| indexed(batches, index, offset)) {
            problems.push(Problem {
                path: path.to_owned(),
                position: (number * 8) as u64,
                what: format!("no batch at {at} that ends at offset {offset}"),
            });
        }
    }
    Ok(())
}

fn verify_times(
    path: &Path,
    (base, batches): (i64, &[Dumped]),
    problems: &mut Vec<Problem>,
) -> io::Result<()> {
    let Some(bytes) = read_if_there(path)? else { return Ok(()) };
    let bytes = bytes.get(..index::valid_len::<TimeEntry>(&bytes)).unwrap_or_default();
    let mut previous = i64::MIN;
    for (number, entry) in index::entries::<TimeEntry>(bytes).enumerate() {
        let offset = base + i64::from(entry.delta);
        let at = batches.partition_point(|batch| batch.last_offset < offset);
        let fits = batches.get(at).is_some_and(|batch| batch.max_timestamp == entry.timestamp);
        if !fits || entry.timestamp <= previous {
            problems.push(Problem {
                path: path.to_owned(),
                position: (number * 12) as u64,
                what: format!("time {} does not belong to offset {offset}", entry.timestamp),
            });
        }
        previous = entry.timestamp;
    }
    Ok(())
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
