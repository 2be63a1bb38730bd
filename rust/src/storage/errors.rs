//! Errors of storage, by fault: the disk's, the producer's, the reader's. Only the broker maps them
//! to Kafka's error codes; the comments below name the codes.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::verification::VerificationGuard;

/// The disk failed, or has wrong content. KAFKA_STORAGE_ERROR (56).
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// A call failed; `what` names the file.
    #[error("{what}: {error}")]
    Io {
        /// The operation and the file.
        what: Arc<str>,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// The disk is full. The staged batches were cut, and a later attempt may succeed.
    #[error("no space left for {0}")]
    NoSpace(Arc<str>),
    /// The log directory went offline earlier and stays so until a restart.
    #[error("log directory {0} is offline")]
    Offline(Arc<str>),
    /// Bytes below the recovery point differ from what was written. The log can be read up to
    /// `offset` only.
    #[error("{log} is damaged at offset {offset}, below its recovery point: {reason}")]
    Damaged {
        /// The partition.
        log: Arc<str>,
        /// The first offset that cannot be read.
        offset: i64,
        /// What is wrong.
        reason: Arc<str>,
    },
    /// A staged append was cut because an earlier write of the same generation failed.
    #[error("append was cut: an earlier write of {0} failed")]
    Cut(Arc<str>),
    /// The log was closed or deleted.
    #[error("log {0} is closed")]
    Closed(Arc<str>),
    /// A file that describes a directory contradicts another one, or cannot be read.
    #[error("{0}")]
    Meta(Arc<str>),
    /// Another process has the log directory.
    #[error("log directory {0} is locked by another process")]
    Locked(Arc<str>),
}

/// Why an append was refused. None of it is in the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// KAFKA_STORAGE_ERROR (56).
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// NOT_LEADER_OR_FOLLOWER (6): producers' batches go to the leader.
    #[error("another broker leads the partition")]
    NotLeader,
    /// OUT_OF_ORDER_SEQUENCE_NUMBER (45).
    #[error("producer {producer_id}: sequence {found} after {last}")]
    OutOfOrderSequence {
        /// Whose.
        producer_id: i64,
        /// The last sequence in the log.
        last: i32,
        /// The first of the batch.
        found: i32,
    },
    /// INVALID_PRODUCER_EPOCH (47).
    #[error("producer {producer_id}: epoch {found} is older than {current}")]
    InvalidProducerEpoch {
        /// Whose.
        producer_id: i64,
        /// The batch's epoch.
        found: i16,
        /// The log's epoch.
        current: i16,
    },
    /// INVALID_TXN_STATE (48): a plain batch inside the producer's open transaction, or a batch of
    /// a transaction that has ended.
    #[error("producer {0} sent a batch that does not belong to its transaction here")]
    InvalidTxnState(i64),
    /// The coordinator has not confirmed the transaction that the batch begins here. With this
    /// guard it may be sent again after that.
    #[error("the transaction is not verified")]
    NotVerified(VerificationGuard),
    /// TRANSACTION_COORDINATOR_FENCED (52).
    #[error("producer {producer_id}: coordinator epoch {found} is older than {current}")]
    CoordinatorFenced {
        /// Whose marker.
        producer_id: i64,
        /// The marker's coordinator epoch.
        found: i32,
        /// The log's coordinator epoch.
        current: i32,
    },
    /// MESSAGE_TOO_LARGE (10).
    #[error("a batch of {size} bytes is above max.message.bytes {limit}")]
    TooLarge {
        /// The batch's size.
        size: u64,
        /// The log's limit.
        limit: u64,
    },
    /// RECORD_LIST_TOO_LARGE (18).
    #[error("a batch of {size} bytes is above segment.bytes {limit}")]
    SegmentTooSmall {
        /// The batch's size.
        size: u64,
        /// The log's limit.
        limit: u64,
    },
    /// CORRUPT_MESSAGE (2): the bytes are not batches of magic 2.
    #[error("corrupt batch: {0}")]
    Corrupt(Arc<str>),
    /// The batch of a follower does not continue its log.
    #[error("offset {found} does not continue a log that ends at {log_end}")]
    WrongOffset {
        /// The batch's base offset.
        found: i64,
        /// Where the log ends.
        log_end: i64,
    },
    /// The batch's leader epoch is older than the log's last.
    #[error("leader epoch {found} is older than the log's {current}")]
    OldEpoch {
        /// The batch's epoch.
        found: i32,
        /// The log's.
        current: i32,
    },
}

/// Why a read was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// OFFSET_OUT_OF_RANGE (1): outside `log_start..=log_end`.
    #[error("offset {offset} is outside of {log_start}..={log_end}")]
    OutOfRange {
        /// The requested offset.
        offset: i64,
        /// The first offset of the log.
        log_start: i64,
        /// One past the last.
        log_end: i64,
    },
    /// KAFKA_STORAGE_ERROR (56).
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl StorageError {
    /// An I/O error on `path`, in the course of `doing`.
    pub(crate) fn io(doing: &str, path: &Path, error: io::Error) -> Self {
        let what: Arc<str> = format!("{doing} {}", path.display()).into();
        if crate::sys::is_no_space(&error) {
            return Self::NoSpace(what);
        }
        Self::Io { what, error: Arc::new(error) }
    }

    /// Whether a read failed because it may not wait for the disk (see `cold`).
    pub fn would_wait(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Whether the file no longer exists.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}
