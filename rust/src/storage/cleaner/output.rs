//! The segment that a cleaning writes: `.log.cleaned` and its indexes, durable before another
//! thread sees them.
//! Threads: a plain value of one cleaner; files are created while the log's layout is locked, so
//! that none appears in a directory that is being removed.
//! Files of a cleaning that stopped stay until the next start, or until the next cleaning from the
//! same offset.

use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use super::super::errors::StorageError;
use super::super::file_names::{INDEX, LOG, TIME_INDEX, TXN_INDEX};
use super::super::files;
use super::super::indexing::IndexBuilder;
use super::super::partition_dir::PartitionDir;
use super::super::scan::{self, WalkStep};
use super::super::txnindex::{self, AbortedTxn};

/// The suffix of the files that are being written.
pub(in super::super) const CLEANED: &str = "cleaned";

const GATHER: usize = 1 << 20;

/// The segment that a cleaning writes (see the module).
pub(super) struct CleanedSegment<'h> {
    partition_dir: &'h Arc<PartitionDir>,
    base_offset: i64,
    file: File,
    held: Vec<u8>,
    written: u64,
    indexes: IndexBuilder,
}

impl<'h> CleanedSegment<'h> {
    /// Begins the segment of `base_offset`, and replaces files that an earlier cleaning left.
    pub(super) fn create(
        partition_dir: &'h Arc<PartitionDir>,
        base_offset: i64,
        index_interval_bytes: u64,
    ) -> Result<Self, StorageError> {
        let disk = partition_dir.log_dir.disk();
        let path = partition_dir.file(base_offset, &cleaned(LOG));
        let fail = |error| partition_dir.log_dir.failed("make a cleaned segment", error);
        let file = disk.create(&path).map_err(fail)?;
        disk.set_len(&file, 0).map_err(fail)?;
        for kind in [INDEX, TIME_INDEX, TXN_INDEX] {
            files::remove_if_there(disk, &partition_dir.file(base_offset, &cleaned(kind)))
                .map_err(fail)?;
        }
        let indexes = IndexBuilder::new(base_offset, index_interval_bytes);
        Ok(Self { partition_dir, base_offset, file, held: Vec::new(), written: 0, indexes })
    }

    /// Bytes so far.
    pub(super) fn size(&self) -> u64 {
        self.written + self.held.len() as u64
    }

    /// The buffer for the next batch. The caller appends the whole batch, then calls
    /// [`CleanedSegment::appended`].
    pub(super) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.held
    }

    /// Notes the batch that was appended to the buffer from byte `start` on. Returns the bytes that
    /// were written to the disk.
    pub(super) fn appended(&mut self, start: usize) -> Result<u64, StorageError> {
        let bytes = self.held.get(start..).unwrap_or_default();
        let position = self.written + start as u64;
        if let WalkStep::Batch(batch) = scan::read_head(bytes, position, self.size()) {
            self.indexes.add(&batch);
        }
        if self.held.len() < GATHER { Ok(0) } else { self.write() }
    }

    fn write(&mut self) -> Result<u64, StorageError> {
        let disk = self.partition_dir.log_dir.disk();
        let fail = |error| self.partition_dir.log_dir.failed("write a cleaned segment", error);
        disk.write_at(&self.file, &[&self.held], self.written).map_err(fail)?;
        let len = self.held.len() as u64;
        self.written += len;
        self.held.clear();
        Ok(len)
    }

    /// Makes the data durable. No batch may be added afterwards.
    pub(super) fn sync(&mut self) -> Result<(), StorageError> {
        self.write()?;
        let path = self.partition_dir.file(self.base_offset, &cleaned(LOG));
        self.partition_dir.log_dir.sync_data(&path, &self.file)
    }

    /// Ends the segment after it was synced: indexes and names are durable too. Returns its size.
    pub(super) fn finish(
        self,
        aborted: &[AbortedTxn],
        modified: SystemTime,
    ) -> Result<u64, StorageError> {
        let Self { partition_dir, base_offset, file, written, indexes, .. } = self;
        let fail = |error| partition_dir.log_dir.failed("write a cleaned index", error);
        file.set_modified(modified).map_err(fail)?;
        let (offsets, times) = indexes.into_bytes();
        let mut kinds = vec![(INDEX, offsets), (TIME_INDEX, times)];
        if !aborted.is_empty() {
            kinds.push((TXN_INDEX, txnindex::to_bytes(aborted)));
        }
        for (kind, bytes) in kinds {
            let path = partition_dir.file(base_offset, &cleaned(kind));
            let file = partition_dir.log_dir.disk().create(&path).map_err(fail)?;
            partition_dir.log_dir.disk().write_at(&file, &[&bytes], 0).map_err(fail)?;
            partition_dir.log_dir.sync_data(&path, &file)?;
        }
        let path = partition_dir.path.read().clone();
        partition_dir.log_dir.sync_dir(&path)?;
        Ok(written)
    }
}

/// `kind` with the suffix of the files that are being written.
fn cleaned(kind: &str) -> String {
    format!("{kind}.{CLEANED}")
}
