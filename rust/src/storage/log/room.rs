//! Whether a batch fits into the active segment, and what it costs to know.
//!
//! A batch that does not fit needs a roll: the old segment's file is trimmed, its indexes and a
//! snapshot of the producers are written, and files of a new segment are made. The first batch of a
//! log needs its directory; the first one since a log was opened may need its indexes rebuilt. A
//! network thread does none of that, because it serves other connections meanwhile: it asks
//! [`Log::has_room`], and an append that finds no room is work for a worker.
//! Threads: under the writer's mutex.

use std::sync::Arc;
use std::time::Duration;

use super::super::cold::without_waiting;
use super::super::config::LogConfig;
use super::super::errors::StorageError;
use super::super::segment::Segment;
use super::append::log_append;
use super::{Log, LogWriter};
use crate::record::batch::{Batch, ValidationResult};

/// How long a network thread waits for another writer: longer than a plain append takes.
pub(super) const PATIENCE: Duration = Duration::from_micros(100);

/// What is about to be appended, and when.
pub(super) struct IncomingBatch {
    pub last_offset: i64,
    /// Its largest timestamp.
    pub timestamp: i64,
    /// Its bytes.
    pub size: usize,
    pub now_ms: i64,
}

impl IncomingBatch {
    /// A producer's batch at the end of the log.
    pub(super) fn of(
        writer: &LogWriter,
        config: &LogConfig,
        (batch, validated, now_ms): (&Batch<'_>, &ValidationResult, i64),
    ) -> Self {
        let timestamp = if log_append(config) { now_ms } else { validated.max_timestamp };
        let last_offset = writer.next_offset + i64::from(batch.header().last_offset_delta);
        Self { last_offset, timestamp, size: batch.size(), now_ms }
    }
}

impl Log {
    /// Whether the batch does not fit into the active segment. Creates the first segment.
    pub(super) fn must_roll(
        &self,
        writer: &mut LogWriter,
        config: &LogConfig,
        next: &IncomingBatch,
    ) -> Result<bool, StorageError> {
        let active = self.segments.load().last().cloned();
        let Some(active) = active else {
            return self.first_segment(writer, next.now_ms).map(|()| false);
        };
        if active.is_sealed() {
            active.unseal()?;
            writer.max = active.max_timestamp()?;
            writer.committed.max = writer.max;
        }
        is_full(writer, config, (&active, next))
    }

    /// Whether the batch fits into the active segment, whose file and indexes are open.
    pub(super) fn has_room(
        &self,
        writer: &LogWriter,
        config: &LogConfig,
        next: &IncomingBatch,
    ) -> bool {
        let segments = self.segments.load();
        let Some(active) = segments.last().filter(|active| !active.is_sealed()) else {
            return false;
        };
        let is_full = || {
            if !active.is_open() {
                active.file()?;
            }
            is_full(writer, config, (active, next))
        };
        matches!(without_waiting(is_full), Ok(false))
    }
}

/// Whether the batch does not fit into the active segment.
fn is_full(
    writer: &LogWriter,
    config: &LogConfig,
    (active, next): (&Arc<Segment>, &IncomingBatch),
) -> Result<bool, StorageError> {
    let IncomingBatch { last_offset, timestamp, size, now_ms } = *next;
    let age = match active.first_timestamp()? {
        Some(first) if first >= 0 => timestamp.saturating_sub(first),
        _ => now_ms.saturating_sub(writer.active_since_ms),
    };
    let index_full = |bytes: usize, entry: u64| {
        bytes as u64 + entry > config.segment_index_bytes / entry * entry
    };
    let full = writer.position + size as u64 > config.segment_bytes
        || age > config.full_after_ms().saturating_sub(jitter(config, active.base_offset))
        || index_full(active.offsets.active_size(), 8)
        || index_full(active.times.active_size(), 12);
    let no_room = last_offset - active.base_offset > i64::from(i32::MAX)
        || writer.position + size as u64 > i32::MAX as u64;
    Ok((full && writer.position > 0) || no_room)
}

/// What a segment's life is shortened by, the same at every look.
fn jitter(config: &LogConfig, base_offset: i64) -> i64 {
    if config.segment_jitter_ms <= 0 {
        return 0;
    }
    let mixed = base_offset.unsigned_abs().wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
    i64::try_from(mixed).unwrap_or(0) % (config.segment_jitter_ms + 1)
}
