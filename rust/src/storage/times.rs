//! Checks whether a time index agrees with its segment. The index has no checksum, and a wrong
//! entry would make a search miss records, or delete a segment too early.
//!
//! An entry is right if the batch that it names has its timestamp as the largest. The last entry is
//! the segment's largest if no later batch has a larger timestamp.
//! Cost: one search an entry; for the last entry a walk from its batch on, which is usually the
//! last batch. Threads: as the segment.

use std::sync::Arc;

use super::errors::StorageError;
use super::file_names::LOG;
use super::index::TimeEntry;
use super::scan::{BatchAt, WalkStep, Walker};
use super::segment::Segment;

impl Segment {
    /// The entry, if it is right. If not, the indexes are rebuilt, and the search begins at the
    /// segment's start.
    pub(crate) fn checked_time(
        self: &Arc<Self>,
        entry: Option<TimeEntry>,
    ) -> Result<Option<TimeEntry>, StorageError> {
        let Some(found) = entry else { return Ok(None) };
        if self.batch_of(found)?.is_some() {
            return Ok(entry);
        }
        self.warn_of_times();
        self.rebuild().map(|()| None)
    }

    /// Whether the last entry has the largest timestamp of the segment.
    pub(crate) fn is_largest_time(self: &Arc<Self>, last: TimeEntry) -> Result<bool, StorageError> {
        let is_right = match self.batch_of(last)? {
            Some(batch) => {
                let file = self.file()?;
                let mut walker = Walker::new(&file, batch.end(), self.size());
                loop {
                    let step = walker.step();
                    match step.map_err(|error| StorageError::io("read", &self.path(LOG), error))? {
                        WalkStep::Batch(later) if later.max_timestamp > last.timestamp => {
                            break false;
                        }
                        WalkStep::Batch(_) => {}
                        WalkStep::End | WalkStep::Bad(_) => break true,
                    }
                }
            }
            None => false,
        };
        if !is_right {
            self.warn_of_times();
        }
        Ok(is_right)
    }

    fn batch_of(self: &Arc<Self>, entry: TimeEntry) -> Result<Option<BatchAt>, StorageError> {
        let offset = self.base_offset + i64::from(entry.delta);
        let found = self.find(offset, self.size())?;
        Ok(found.filter(|batch| batch.max_timestamp == entry.timestamp))
    }

    fn warn_of_times(&self) {
        let base = self.base_offset;
        tracing::warn!(log = %self.log_name(), base, "the time index is wrong, it is rebuilt");
    }
}
