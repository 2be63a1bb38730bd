//! Records as bytes: the batch of today (magic 2), the message sets before it (magic 0 and 1),
//! their codecs, and the way from each to the other.
//!
//! Invariants: what came from a socket or a disk is only viewed, never trusted; every size is
//!     checked against the bytes that are there before it is used; everything inflated is bounded
//!     (see [`compression`]).
//! Threads: plain values, no shared state.
//! Not promised: this module knows no protocol; [`RecordError`] says whose fault it is, and the
//!     layer above picks the error code.

pub mod batch;
mod blocks;
mod build;
pub(crate) mod check;
pub mod compression;
pub mod control;
pub mod convert;
pub mod crc;
mod cursor;
mod down;
pub mod faults;
mod frame;
mod header;
pub mod legacy;
mod lz4;
pub mod retain;
mod skim;
mod xerial;
mod zstd_frame;

/// Why bytes are not the records they should be. The variant alone decides what the peer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the batch or message does: a cut tail, or a lie about the size.
    #[error("{needed} bytes needed, {present} present")]
    Truncated {
        /// Bytes that the batch or message says it has.
        needed: usize,
        /// Bytes that are there.
        present: usize,
    },
    /// The frame of a batch is damaged: checksum, sizes (Kafka: CORRUPT_MESSAGE, 2).
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
    #[error("timestamp {timestamp} is out of bounds, or not the producer's to set")]
    Timestamp {
        /// Which record of the batch, from 0; -1: the batch as a whole.
        index: i32,
        /// The time that was refused, in milliseconds.
        timestamp: i64,
    },
    /// The format is not the one expected here (Kafka: INVALID_RECORD, 87).
    #[error("magic {0} is not accepted here")]
    Magic(i8),
    /// More bytes than may be held at a time (Kafka: MESSAGE_TOO_LARGE, 10).
    #[error("{size} bytes exceed the limit of {limit}")]
    TooLarge {
        /// What was found or declared.
        size: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A codec that is unknown, or too new for the other side (Kafka:
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
