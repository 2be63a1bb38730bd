//! Records as bytes: batches (magic 2), the older message sets (magic 0 and 1), their codecs, and
//! the conversions between them.
//!
//! Invariants: bytes from a socket or a disk are viewed, never trusted. Every size is checked
//!     against the bytes present before it is used. Inflated output is bounded (see
//!     [`compression`]).
//! Threads: plain values, no shared state.
//! Errors: [`RecordError`] says what is wrong; the layer above picks the error code, because this
//!     module does not know the protocol.

pub mod batch;
mod blocks;
mod build;
pub(crate) mod check;
pub mod compression;
pub mod control;
pub mod convert;
pub mod crc;
mod cursor;
mod down_convert;
pub mod faults;
mod frame;
mod header;
pub mod legacy;
mod lz4;
mod record_stream;
pub mod retain;
pub mod stored;
pub(crate) mod walk;
mod xerial;
mod zstd_frame;

/// Why bytes are not valid records. The variant alone decides what the peer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the batch or message does: the tail is cut, or the size is wrong.
    #[error("{needed} bytes needed, {present} present")]
    Truncated {
        /// Bytes that the batch or message says it has.
        needed: usize,
        /// Bytes that are there.
        present: usize,
    },
    /// The checksum or a size of a batch is wrong (Kafka: CORRUPT_MESSAGE, 2).
    #[error("corrupt batch: {0}")]
    Corrupt(&'static str),
    /// A record breaks the rules (Kafka: INVALID_RECORD, 87).
    #[error("invalid record: {reason}")]
    Invalid {
        /// Which record of the batch, from 0; -1: the batch as a whole.
        index: i32,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A record's time lies outside the topic's bounds (Kafka: INVALID_TIMESTAMP, 32).
    #[error("timestamp {timestamp} is out of bounds, or set where only the broker may set it")]
    Timestamp {
        /// Which record of the batch, from 0; -1: the batch as a whole.
        index: i32,
        /// The time that was refused, in milliseconds.
        timestamp: i64,
    },
    /// The format is not the one expected here (Kafka: INVALID_RECORD, 87).
    #[error("magic {0} is not accepted here")]
    Magic(i8),
    /// The batch or its output exceeds a size limit (Kafka: MESSAGE_TOO_LARGE, 10).
    #[error("{size} bytes exceed the limit of {limit}")]
    TooLarge {
        /// The size found or declared, in bytes.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The codec is unknown, or too new for the peer (Kafka:
    /// UNSUPPORTED_COMPRESSION_TYPE, 76).
    #[error("codec {0} is not supported here")]
    UnsupportedCodec(i8),
}

impl RecordError {
    /// The batch as a whole breaks a rule.
    pub(crate) const fn batch(reason: &'static str) -> Self {
        Self::Invalid { index: -1, reason }
    }
}
