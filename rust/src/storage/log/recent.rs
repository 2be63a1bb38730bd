//! The last batches of a log in memory: what a consumer that waits at the log's end reads next.
//!
//! A Fetch over a thousand partitions with a record each would read every file twice: the header of
//! the first batch, then its bytes. A read of the batches kept here takes no system call and needs
//! no open file.
//! A commit keeps its batches if a reader has reached the log's end since the commit before. A
//! reader that reaches the end and finds nothing in memory keeps what it read. A partition without
//! a reader at its end keeps nothing; its appends cost one more load of an atomic.
//! Invariants: the bytes are whole batches that lie one behind the other in the active segment;
//! what [`Log::read_recent`] gives is what [`Log::read`] gives at the same moment, byte for byte.
//! They count for one segment and one number of truncations, so a cut or a roll voids them.
//! Limits: those of `recent_batches`; beyond, files are read.
//! Threads: readers take no lock (a swapped pointer); commits keep under the writer's mutex.
//! Not promised: that anything is here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::errors::ReadError;
use super::super::scan::{self, WalkStep};
use super::read_result::{LogReadRequest, LogSlice};
use super::recent_batches::{KeptCommit, LIMIT, RecentBatches, RecentBytes};
use super::tail::TailPosition;
use super::{Log, LogWriter};
use crate::ids::Offset;

impl Log {
    /// The same as [`Log::read`], from memory where what is asked for is there. Takes up to
    /// 2 KiB more memory a log, within the limit of all.
    pub fn read_recent(&self, read: LogReadRequest) -> Result<LogSlice, ReadError> {
        self.usable()?;
        let truncations = self.truncations.load(Ordering::Acquire);
        let end = self.tail.load();
        let upper = read.upper.0.min(end.end);
        let is_at_end = upper == end.end;
        if is_at_end && !self.recent.is_wanted.load(Ordering::Relaxed) {
            self.recent.is_wanted.store(true, Ordering::Relaxed);
        }
        let is_inside = read.offset >= self.log_start_offset() && read.offset.0 < upper;
        if is_inside
            && let Some(batches) = self.recent.batches.load_full()
            && (batches.truncations, batches.segment) == (truncations, end.base)
            && let Some(slice) = select(&batches, &read, upper)
        {
            if !self.recent.is_used.load(Ordering::Relaxed) {
                self.recent.is_used.store(true, Ordering::Relaxed);
            }
            return Ok(slice);
        }
        let slice = self.read(read)?;
        if is_at_end && slice.size > 0 && slice.size <= LIMIT {
            let kept = self.keep_read((&read, truncations, &end), &slice);
            return Ok(kept.unwrap_or(slice));
        }
        Ok(slice)
    }

    /// Keeps what was read of the active segment, up to the end; as what is kept.
    fn keep_read(
        &self,
        (read, truncations, end): (&LogReadRequest, u32, &TailPosition),
        slice: &LogSlice,
    ) -> Option<LogSlice> {
        let [range] = slice.ranges.as_slice() else { return None };
        let first = slice.base_offset?.0;
        let is_last = first >= end.base && range.position + range.len as u64 == end.position;
        if !is_last {
            return None;
        }
        let bytes = range.to_vec().ok()?.into_boxed_slice();
        let from = first.min(read.offset.0);
        let batches = RecentBatches::new((truncations, end.base), (from, end.end), bytes)?;
        // Bytes that changed meanwhile are not these: a cut counts itself before it changes any.
        if self.truncations.load(Ordering::Acquire) != truncations {
            return None;
        }
        let found = select(&batches, read, end.end);
        self.recent.is_used.store(true, Ordering::Relaxed);
        self.recent.batches.store(Some(batches));
        found
    }

    /// Before a commit writes what is staged: what is to be kept of it.
    pub(super) fn recent_of(&self, writer: &LogWriter, segment: i64) -> Option<KeptCommit> {
        let staged = writer.staging.len();
        let begins = writer.position.checked_sub(writer.committed.position)?;
        if begins != staged as u64
            || staged > LIMIT
            || !self.recent.is_wanted.swap(false, Ordering::Relaxed)
        {
            return None;
        }
        let truncations = self.truncations.load(Ordering::Acquire);
        let offsets = (writer.committed.next_offset, writer.next_offset);
        let bytes = writer.staging.as_slice().into();
        RecentBatches::new((truncations, segment), offsets, bytes).map(KeptCommit)
    }

    /// Frees batches that no reader has read since the last call.
    pub(super) fn drop_idle_recent(&self) {
        if !self.recent.is_used.swap(false, Ordering::Relaxed) {
            self.recent.batches.store(None);
        }
    }

    /// After the write: keeps it, or lets go of what is no longer the end.
    pub(super) fn keep_recent(&self, kept: Option<KeptCommit>) {
        if kept.is_some() || self.recent.batches.load().is_some() {
            self.recent.is_used.store(true, Ordering::Relaxed);
            self.recent.batches.store(kept.map(|kept| kept.0));
        }
    }
}

/// What `read` asks for, if all of it is in these batches.
fn select(batches: &Arc<RecentBatches>, read: &LogReadRequest, upper: i64) -> Option<LogSlice> {
    if read.offset.0 < batches.from || upper > batches.end {
        return None;
    }
    let size = batches.bytes.len() as u64;
    let (mut at, mut first) = (0, None);
    while at < size {
        let head = batches.bytes.get(usize::try_from(at).ok()?..)?;
        let WalkStep::Batch(batch) = scan::read_head(head, at, size) else { return None };
        if batch.last_offset >= upper {
            break;
        }
        if batch.last_offset >= read.offset.0 {
            first = first.or(Some(batch));
        }
        at = batch.end();
    }
    let first = first?;
    let mut budget = read.max_bytes as u64;
    if read.min_one {
        budget = budget.max(first.size);
    }
    let start = usize::try_from(first.position).ok()?;
    let size = usize::try_from((at - first.position).min(budget)).ok()?;
    let held = RecentBytes { batches: Arc::clone(batches), range: start..start + size };
    Some(LogSlice {
        ranges: Vec::new(),
        held: Some(held),
        size,
        base_offset: Some(Offset(first.base_offset)),
        first_size: first.size,
    })
}
