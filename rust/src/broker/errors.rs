//! Maps errors of lower layers to Kafka's error codes. Only this file does so.
//!
//! It never returns UNKNOWN_SERVER_ERROR: an idempotent producer that receives it duplicates
//! records or fails.

use crate::protocol::ErrorCode;
use crate::record::RecordError;
use crate::storage::{AppendError, ReadError, StorageError};

/// The code for malformed records.
pub(crate) fn of_record(error: &RecordError) -> ErrorCode {
    match error {
        RecordError::Truncated { .. } | RecordError::Corrupt(_) => ErrorCode::CorruptMessage,
        RecordError::Invalid { .. } | RecordError::Magic(_) => ErrorCode::InvalidRecord,
        RecordError::Timestamp { .. } => ErrorCode::InvalidTimestamp,
        RecordError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        RecordError::UnsupportedCodec(_) => ErrorCode::UnsupportedCompressionType,
    }
}

/// The code for a disk that failed, or a log that cannot be used.
pub(crate) fn of_storage(error: &StorageError) -> ErrorCode {
    match error {
        StorageError::Closed(_) => ErrorCode::NotLeaderOrFollower,
        _ => ErrorCode::KafkaStorageError,
    }
}

/// The code for an append that was refused.
pub(crate) fn of_append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Storage(error) => of_storage(error),
        AppendError::NotLeader => ErrorCode::NotLeaderOrFollower,
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        AppendError::InvalidTxnState(_) | AppendError::NotVerified(_) => ErrorCode::InvalidTxnState,
        AppendError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        AppendError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        AppendError::SegmentTooSmall { .. } => ErrorCode::RecordListTooLarge,
        AppendError::Corrupt(_) => ErrorCode::CorruptMessage,
        AppendError::WrongOffset { .. } => ErrorCode::OffsetOutOfRange,
        AppendError::OldEpoch { .. } => ErrorCode::FencedLeaderEpoch,
    }
}

/// The code for a read that was refused.
pub(crate) fn of_read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Storage(error) => of_storage(error),
    }
}
