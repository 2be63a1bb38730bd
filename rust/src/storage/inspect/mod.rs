//! Reads log files without a log, for `krust log dump` and `krust log verify`. It writes, locks and
//! repairs nothing, so it may read a live directory; the last batch may then look cut.

mod directory;
mod partition;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::scan::{self, WalkStep, Walker};
use crate::record::batch::Header;

pub use directory::{verify_directory, verify_files};
pub use partition::verify;

/// A batch in a file, or a message of an older format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpedBatch {
    /// Where it begins in the file.
    pub position: u64,
    /// Its size in bytes, header included.
    pub size: u64,
    /// Its format.
    pub magic: i8,
    /// Its first offset; in older formats its only offset.
    pub base_offset: i64,
    /// Its last offset.
    pub last_offset: i64,
    /// Its largest timestamp; -1: none.
    pub max_timestamp: i64,
    /// Whether the checksum is right.
    pub crc_ok: bool,
    /// The header, of magic 2.
    pub header: Option<Header>,
}

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The file.
    pub path: PathBuf,
    /// Position in the file, in bytes.
    pub position: u64,
    /// What is wrong, and what it means.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The remedy for damaged records.
const REPAIR: &str = "fetch the partition from another replica, or cut it with krust log repair";

/// The batches of one `.log` file, in order. Ends at the first bytes that are no batch.
pub struct BatchDump {
    path: PathBuf,
    file: File,
    position: u64,
    end: u64,
    scratch: Vec<u8>,
    failed: bool,
}

/// Opens a `.log` file to be dumped.
pub fn dump(path: &Path) -> io::Result<BatchDump> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    let (path, scratch) = (path.to_owned(), Vec::new());
    Ok(BatchDump { path, file, position: 0, end, scratch, failed: false })
}

impl BatchDump {
    /// The bytes of a batch of this file.
    pub fn read(&self, batch: &DumpedBatch) -> io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; usize::try_from(batch.size).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, batch.position)?;
        Ok(bytes)
    }

    fn problem(&mut self, what: impl Into<String>) -> FileProblem {
        self.failed = true;
        let (path, position, what) = (self.path.clone(), self.position, what.into());
        FileProblem { path, position, what, remedy: REPAIR }
    }
}

impl Iterator for BatchDump {
    type Item = Result<DumpedBatch, FileProblem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = Walker::new(&self.file, self.position, self.end).step();
        match step {
            Ok(WalkStep::End) => None,
            Ok(WalkStep::Bad(reason)) => Some(Err(self.problem(reason))),
            Err(error) => Some(Err(self.problem(error.to_string()))),
            Ok(WalkStep::Batch(batch)) => {
                let crc_ok = match scan::check_crc(&self.file, &batch, &mut self.scratch) {
                    Ok(crc_ok) => crc_ok,
                    Err(error) => return Some(Err(self.problem(error.to_string()))),
                };
                self.position = batch.end();
                Some(Ok(DumpedBatch {
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
