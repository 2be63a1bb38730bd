//! What the cleaner needs of a log: what is dirty, and putting a cleaned segment in the place of
//! those it was made from.
//!
//! Order of the swap: the cleaned files are durable; they are renamed to `.swap`, and the names are
//! made durable; the old files are renamed to `.deleted`, the new ones get their names, readers get
//! the new list. A crash before the names are durable leaves the old segments, one after that is
//! finished by the next start. What fails half-way takes the directory offline, for the same end.
//! Invariant: what is in the old segments and not in the new one is superseded by what is synced.
//! Threads: the lock on the layout keeps truncation and retention away; the writer's mutex is held
//! for renames only, no sync.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::aborted;
use super::super::cleaner::choose::{self, CleanableRange, DirtyRange, SegmentInfo};
use super::super::cleaner::output::CLEANED;
use super::super::errors::StorageError;
use super::super::file_names::{INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX};
use super::super::files;
use super::super::panics::caught;
use super::super::segment::Segment;
use super::{Log, LogWriter};
use crate::ids::Offset;

const SWAP: &str = "swap";

/// A log's segments at one moment, for a cleaning that may take long.
pub(in super::super) struct CompactionView {
    /// All, the active one last.
    pub segments: Vec<Arc<Segment>>,
    truncations: u32,
}

impl SegmentInfo for Arc<Segment> {
    fn base_offset(&self) -> i64 {
        self.base_offset
    }

    fn size(&self) -> u64 {
        Segment::size(self)
    }

    fn largest_timestamp(&self) -> Result<i64, StorageError> {
        let largest = self.max_timestamp()?.0;
        Ok(if largest >= 0 { largest } else { self.modified_ms() })
    }

    fn first_timestamp(&self) -> Result<i64, StorageError> {
        Segment::first_timestamp(self).map(|first| first.unwrap_or(0))
    }
}

impl Log {
    /// What of the log could be cleaned at `now_ms` (wall time), whether or not its settings want
    /// that; `None` where it has no segment.
    pub fn dirty(&self, now_ms: i64) -> Result<Option<DirtyRange>, StorageError> {
        self.usable()?;
        let bounds = CleanableRange {
            cleaned: self.partition_dir().log_dir.points(&self.name).cleaned.map(|offset| offset.0),
            log_start: self.log_start_offset().0,
            log_end: self.log_end_offset().0,
            last_stable: self.last_stable_offset().0,
        };
        let config = self.config.load_full();
        self.steady(|segments| choose::dirty(segments, &bounds, &config, now_ms))
    }

    pub(in super::super) fn view(&self) -> CompactionView {
        let _layout = self.layout.lock();
        let truncations = self.truncations.load(Ordering::Acquire);
        CompactionView { segments: self.segments.load().to_vec(), truncations }
    }

    /// Runs `f` while no segment goes or changes place, and the log is in use.
    pub(in super::super) fn laid_out<R>(
        &self,
        f: impl FnOnce() -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        let _layout = self.layout.lock();
        self.usable()?;
        f()
    }

    /// For each producer its last batch of data, if it has one, and its epoch.
    pub(in super::super) fn last_batches(
        &self,
    ) -> Result<HashMap<i64, (Option<i64>, i16)>, StorageError> {
        let mut writer = self.writer.lock();
        self.write_and_publish(&mut writer)?;
        Ok(writer.producers.last_batches())
    }

    /// Notes that the log is clean up to `offset`, unless it was truncated since `view`.
    pub(in super::super) fn note_cleaned(
        &self,
        view: &CompactionView,
        offset: Offset,
    ) -> Result<(), StorageError> {
        let _layout = self.layout.lock();
        self.usable()?;
        if self.is_truncated_since(view) {
            return Ok(());
        }
        self.partition_dir().log_dir.cleaned(&self.name, offset)
    }

    /// Puts the durable `.cleaned` files of `size` bytes in the place of `old`; false, and they are
    /// removed, where those are not all there any more.
    pub(in super::super) fn replace(
        &self,
        view: &CompactionView,
        old: &[Arc<Segment>],
        size: u64,
    ) -> Result<bool, StorageError> {
        let Some(base) = old.first().map(|segment| segment.base_offset) else { return Ok(false) };
        let _layout = self.layout.lock();
        self.usable()?;
        let segments = self.segments.load_full();
        let first = segments.partition_point(|segment| segment.base_offset < base);
        let present = segments.get(first..first + old.len()).unwrap_or_default();
        let same = present.len() == old.len()
            && present.iter().zip(old).all(|(one, other)| Arc::ptr_eq(one, other));
        if !same || self.is_truncated_since(view) {
            self.discard(base)?;
            return Ok(false);
        }
        let swap = || self.swap(base, (first, old), size);
        let swapped = caught(&format_args!("the swap of a cleaned segment of {}", self.name), swap);
        let half = || StorageError::Meta("a swap of a cleaned segment panicked".into());
        let swapped = swapped.unwrap_or_else(|| Err(half()));
        if let Err(error) = &swapped {
            self.partition_dir().log_dir.take_offline(error);
        }
        swapped.map(|()| true)
    }

    fn is_truncated_since(&self, view: &CompactionView) -> bool {
        self.truncations.load(Ordering::Acquire) != view.truncations
    }

    fn swap(
        &self,
        base: i64,
        (first, old): (usize, &[Arc<Segment>]),
        size: u64,
    ) -> Result<(), StorageError> {
        let dir = &self.partition_dir().log_dir;
        let path = self.partition_dir().path.read().clone();
        self.rename_all(base, [LOG, INDEX, TIME_INDEX, TXN_INDEX], (CLEANED, SWAP))?;
        dir.sync_dir(&path)?;
        {
            let _no_flush = self.flushing.lock();
            let mut writer = self.writer.lock();
            // Who reads the old data may ask for its aborted transactions later.
            old.iter().try_for_each(Segment::keep_aborted)?;
            old.iter().for_each(|segment| segment.replace());
            old.iter().try_for_each(|segment| self.put_aside(&mut writer, segment, base))?;
            self.rename_all(base, [INDEX, TIME_INDEX, TXN_INDEX, LOG], (SWAP, ""))?;
            aborted::renamed(&self.partition_dir(), base)?;
            let mut segments = self.segments.load().to_vec();
            segments.splice(
                first..first + old.len(),
                [Segment::existing(&self.partition_dir(), base, size)],
            );
            self.publish_segments(segments);
        }
        dir.sync_dir(&path)
    }

    fn put_aside(
        &self,
        writer: &mut LogWriter,
        segment: &Arc<Segment>,
        base: i64,
    ) -> Result<(), StorageError> {
        let kinds: &[&str] = if segment.base_offset == base {
            &[LOG, INDEX, TIME_INDEX, TXN_INDEX]
        } else {
            &[LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT]
        };
        self.async_delete(writer, segment, kinds)
    }

    fn rename_all(
        &self,
        base: i64,
        kinds: [&str; 4],
        (from, to): (&str, &str),
    ) -> Result<(), StorageError> {
        let named = |kind: &str, suffix: &str| match suffix {
            "" => self.partition_dir().file(base, kind),
            suffix => self.partition_dir().file(base, &format!("{kind}.{suffix}")),
        };
        for kind in kinds {
            files::rename_if_there(
                self.partition_dir().log_dir.disk(),
                &named(kind, from),
                &named(kind, to),
            )
            .map_err(|error| {
                self.partition_dir().log_dir.failed("swap a cleaned segment", error)
            })?;
        }
        Ok(())
    }

    /// Removes what a cleaning wrote.
    pub(in super::super) fn discard(&self, base: i64) -> Result<(), StorageError> {
        for kind in [LOG, INDEX, TIME_INDEX, TXN_INDEX] {
            let path = self.partition_dir().file(base, &format!("{kind}.{CLEANED}"));
            files::remove_if_there(self.partition_dir().log_dir.disk(), &path).map_err(
                |error| self.partition_dir().log_dir.failed("remove a cleaned segment", error),
            )?;
        }
        Ok(())
    }
}
