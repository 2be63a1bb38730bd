//! Retention removes whole segments from the start of a log, by time, by size, or because they lie
//! below the log's start.
//!
//! It never removes the active segment (if that has expired as well, it begins a new one first) or
//! a segment with an offset at or above the high watermark. Order: readers no longer get a segment;
//! its files are renamed to `.deleted`; the renames are synced; the files are removed after
//! `file.delete.delay.ms`. Until the sync a power cut may bring segments back; the checkpoint then
//! holds where the log starts.
//! Threads: under the writer's mutex. Removal takes names away; a reader keeps its open file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::errors::StorageError;
use super::super::file_names::LOG_LAST;
use super::super::files;
use super::super::segment::Segment;
use super::{Log, LogWriter};
use crate::ids::Offset;

/// A segment, as policies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its first offset.
    pub base_offset: Offset,
    /// One past its last offset.
    pub next_offset: Offset,
    /// Bytes of its log.
    pub size: u64,
    /// The largest timestamp of its records; where they have none, or it cannot be read, when it
    /// was last written.
    pub largest_timestamp: i64,
}

impl Log {
    /// Applies the settings' retention at `now_ms` (wall time) and forgets silent producers. How
    /// many segments went. Blocks for some calls; never on a network thread.
    pub fn retain(&self, now_ms: i64) -> Result<usize, StorageError> {
        self.drop_idle_recent();
        self.usable()?;
        self.purge()?;
        let config = self.config.load_full();
        let summaries = self.segment_summaries()?;
        let mut keep_from = self.log_start_offset().0;
        if config.delete && self.damage.get().is_none() {
            keep_from = keep_from.max(by_time(&summaries, config.retention_ms, now_ms));
            keep_from = keep_from.max(by_size(&summaries, config.retention_bytes));
        }
        let _layout = self.layout.lock();
        let count = {
            let mut writer = self.writer.lock();
            self.usable()?;
            self.write_and_publish(&mut writer)?;
            writer.producers.expire(now_ms, config.producer_id_expiration_ms);
            let end = writer.next_offset;
            let is_all = keep_from >= end && keep_from > self.log_start_offset().0;
            if is_all && end <= self.high_watermark().0 && writer.position > 0 {
                self.roll(&mut writer, now_ms)?;
            }
            self.drop_below(&mut writer, keep_from)?
        };
        self.sync_deletions()?;
        Ok(count)
    }

    /// Drops whole segments below `offset`, as a policy decided. It never drops the active segment,
    /// one above the high watermark, or one of a damaged log. Returns how many it dropped.
    pub fn drop_segments_below(&self, offset: Offset) -> Result<usize, StorageError> {
        if self.damage.get().is_some() {
            return Ok(0);
        }
        let _layout = self.layout.lock();
        let count = {
            let mut writer = self.writer.lock();
            self.usable()?;
            self.write_and_publish(&mut writer)?;
            self.drop_below(&mut writer, offset.0)?
        };
        self.sync_deletions()?;
        Ok(count)
    }

    /// Makes durable that segments are gone; under the layout's lock, not the writer's.
    fn sync_deletions(&self) -> Result<(), StorageError> {
        if self.deleting.load(Ordering::Acquire) {
            let path = self.path();
            self.partition_dir().log_dir.sync_dir(&path)?;
            self.deleting.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// The segments, oldest first; the last one is active.
    pub fn segment_summaries(&self) -> Result<Vec<SegmentSummary>, StorageError> {
        let end = self.log_end_offset().0;
        self.steady(|segments| {
            let nexts = segments.iter().skip(1).map(|s| s.base_offset).chain([end]);
            let summary = |(segment, next): (&Arc<Segment>, i64)| {
                let largest = match segment.max_timestamp() {
                    // A damaged segment grows old as well.
                    Err(StorageError::Damaged { .. }) => -1,
                    found => found?.0,
                };
                Ok(SegmentSummary {
                    base_offset: Offset(segment.base_offset),
                    next_offset: Offset(next),
                    size: segment.size(),
                    largest_timestamp: if largest >= 0 { largest } else { segment.modified_ms() },
                })
            };
            segments.iter().zip(nexts).map(summary).collect()
        })
    }

    /// Removes deleted files whose delay is over.
    fn purge(&self) -> Result<(), StorageError> {
        let now = self.clock.monotonic_ms();
        let mut writer = self.writer.lock();
        while writer.deleted_files.front().is_some_and(|(due_ms, _)| *due_ms <= now) {
            let Some((_, path)) = writer.deleted_files.pop_front() else { break };
            files::remove_if_there(self.partition_dir().log_dir.disk(), &path).map_err(
                |error| self.partition_dir().log_dir.failed("remove a deleted file", error),
            )?;
        }
        Ok(())
    }

    fn drop_below(&self, writer: &mut LogWriter, keep_from: i64) -> Result<usize, StorageError> {
        let segments = self.segments.load_full();
        let limit = keep_from.min(self.high_watermark().0);
        let nexts = segments.iter().skip(1).map(|segment| segment.base_offset);
        let count = nexts.take_while(|next| *next <= limit).count();
        if count == 0 {
            return Ok(0);
        }
        let (gone, kept) = segments.split_at(count);
        let Some(first) = kept.first() else { return Ok(0) };
        self.deleting.store(true, Ordering::Release);
        self.increment_log_start_offset(writer, Offset(first.base_offset));
        self.flushed.fetch_max(first.base_offset, Ordering::AcqRel);
        self.publish_segments(kept.to_vec());
        gone.iter().try_for_each(|segment| self.async_delete(writer, segment, &LOG_LAST))?;
        tracing::info!(log = %self.name, count, start = first.base_offset, "segments deleted");
        Ok(count)
    }

    /// Renames a segment's files of these kinds to `.deleted`; they are removed after the delay.
    pub(super) fn async_delete(
        &self,
        writer: &mut LogWriter,
        segment: &Arc<Segment>,
        kinds: &[&str],
    ) -> Result<(), StorageError> {
        let delay = self.config.load().file_delete_delay_ms;
        let from = self.clock.monotonic_ms().saturating_add(delay);
        let partition_dir = self.partition_dir();
        let disk = partition_dir.log_dir.disk();
        for kind in kinds {
            let path = segment.path(kind);
            let target = files::with_suffix(&path, ".deleted");
            let renamed = files::rename_if_there(disk, &path, &target)
                .map_err(|error| partition_dir.log_dir.failed("rename a deleted file", error))?;
            if renamed {
                writer.deleted_files.push_back((from, target));
            }
        }
        Ok(())
    }
}

/// The offset from which on segments are young enough.
fn by_time(summaries: &[SegmentSummary], retention_ms: i64, now_ms: i64) -> i64 {
    if retention_ms < 0 {
        return 0;
    }
    let old =
        |segment: &&SegmentSummary| now_ms.saturating_sub(segment.largest_timestamp) > retention_ms;
    let active_is_empty = summaries.last().is_some_and(|active| active.size == 0);
    let count = summaries.len() - usize::from(active_is_empty);
    summaries.iter().take(count).take_while(old).last().map_or(0, |segment| segment.next_offset.0)
}

/// The offset from which on the log is small enough.
fn by_size(summaries: &[SegmentSummary], retention_bytes: i64) -> i64 {
    let Ok(limit) = u64::try_from(retention_bytes) else { return 0 };
    let size: u64 = summaries.iter().map(|segment| segment.size).sum();
    let mut excess = size.saturating_sub(limit);
    let mut keep_from = 0;
    for segment in summaries.split_last().map_or(&[][..], |(_, sealed)| sealed) {
        if segment.size > excess {
            break;
        }
        excess -= segment.size;
        keep_from = segment.next_offset.0;
    }
    keep_from
}
