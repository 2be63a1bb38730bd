//! The sync of a segment, with its indexes once it is sealed, and the end of its reserved disk.
//!
//! Disk is reserved ahead of the appends to a busy segment. A roll leaves what is left of it to
//! the sync that follows, because giving it back takes milliseconds. After a crash the recovery
//! does it.
//! Threads: those that flush a log, one at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::errors::StorageError;
use super::super::file_names::{INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX};
use super::Segment;

impl Segment {
    /// Has the next sync give back the disk that is reserved behind its end. Call when nothing is
    /// appended to it any more, whatever happens.
    pub(crate) fn give_back_later(&self) {
        self.has_reserve.store(true, Ordering::Release);
    }

    /// Gives back the disk that is reserved behind its end, where that was left for later.
    pub(crate) fn give_back(self: &Arc<Self>) -> Result<(), StorageError> {
        if !self.has_reserve.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let disk = self.partition_dir.log_dir.disk();
        let fail = |e| self.failed("trim", e);
        self.change(|file| disk.set_len(file, self.size()).map_err(fail))
    }

    /// Makes the data, and for a sealed segment its indexes, durable.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<(), StorageError> {
        self.give_back()?;
        self.sync_log()?;
        let dir = &self.partition_dir.log_dir;
        if !self.is_sealed() {
            return Ok(());
        }
        for kind in [INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT] {
            let path = self.path(kind);
            match dir.disk().open(&path) {
                Ok(file) => dir.sync_data(&path, &file)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.failed("open an index of", error)),
            }
        }
        Ok(())
    }
}
