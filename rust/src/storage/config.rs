//! The settings of one partition's log: the typed form of Kafka's topic settings.
//! Threads: immutable; a change swaps the whole `Arc`.

use crate::record::batch::TimestampType;

/// The settings of one log; names and defaults are Kafka 3.9's, -1 and `i64::MAX` mean never.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is full at this size.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment is full at this age.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: at most this much is taken off `segment_ms`, fixed per segment.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: a segment is full when an index has this size.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: the fewest bytes of log between two index entries.
    pub index_interval_bytes: u64,
    /// `retention.ms`; -1: for ever.
    pub retention_ms: i64,
    /// `retention.bytes`; -1: without limit.
    pub retention_bytes: i64,
    /// `max.message.bytes`: the largest batch that is accepted, header included.
    pub max_message_bytes: u64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`; the broker layer checks it, with `record::batch::check`.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms` (Kafka 4's default of one hour); the broker layer checks
    /// it.
    pub after_max_ms: i64,
    /// `compression.type`: Kafka's codec number, `None` for `producer`. The broker layer
    /// recompresses; the log stores batches as they are.
    pub compression_type: Option<u8>,
    /// `cleanup.policy` contains `delete`.
    pub delete: bool,
    /// `cleanup.policy` contains `compact`.
    pub compact: bool,
    /// `min.cleanable.dirty.ratio`: cleaned when more than this part of it is dirty.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: younger records are not cleaned.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: dirty segments that are older are cleaned whatever the ratio.
    pub max_compaction_lag_ms: i64,
    /// `delete.retention.ms`: how long tombstones stay after a cleaning first met them.
    pub delete_retention_ms: i64,
    /// `flush.messages`: fdatasync after this many records; one less may be acknowledged without a
    /// sync.
    pub flush_messages: i64,
    /// `flush.ms`: fdatasync at most this long after an append.
    pub flush_ms: i64,
    /// `krust.flush.mode=ack`: every append asks for an fdatasync and the high watermark waits.
    pub ack_flush: bool,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: i64,
    /// `preallocate`: reserve disk ahead from the start, and not only for a hot partition.
    pub preallocate: bool,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
    /// `krust.partition.producers.max`; less than 1000 counts as 1000.
    pub producers_max: usize,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 604_800_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            before_max_ms: i64::MAX,
            after_max_ms: 3_600_000,
            compression_type: None,
            delete: true,
            compact: false,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: 86_400_000,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            ack_flush: false,
            file_delete_delay_ms: 60_000,
            preallocate: false,
            producer_id_expiration_ms: 86_400_000,
            producers_max: 100_000,
        }
    }
}

impl LogConfig {
    /// Whether no append is acknowledged before it is on the disk.
    pub fn waits_for_disk(&self) -> bool {
        self.ack_flush || self.flush_messages == 1
    }

    /// The unflushed allowance: how many records that are not flushed may be acknowledged. A power
    /// failure loses at most so many acknowledged records.
    pub fn unflushed_allowance(&self) -> i64 {
        if self.ack_flush { 0 } else { self.flush_messages.max(1) - 1 }
    }

    /// The age at which a segment is full. In a compacted log also `max.compaction.lag.ms` limits
    /// it.
    pub(super) fn full_after_ms(&self) -> i64 {
        if self.compact {
            self.segment_ms.min(self.max_compaction_lag_ms.max(0))
        } else {
            self.segment_ms
        }
    }
}
