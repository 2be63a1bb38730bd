//! The batches of idempotent producers that were refused on a connection for a temporary reason.
//!
//! A producer sends some batches of a partition without waiting for answers. If this broker does
//! not lead yet when the first arrives, and leads when the second does, the second does not follow
//! the last one in the log. Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, as if records were lost.
//! librdkafka then takes a new epoch, and sends again what has no answer in any partition: records
//! that another broker has appended are doubled. Here the second is refused for the reason of the
//! first, and the producer sends both again in order.
//! Threads: the connection's network thread, or the worker that has a request of the connection;
//! never both, because later requests wait for that one.
//! Limits: [`PARTITIONS`] partitions at a time; of others, nothing is known.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::protocol::ErrorCode;

/// The most partitions of which refused batches are known.
const PARTITIONS: usize = 1000;
/// An idempotent producer has five batches of a partition under way at most: so many are behind the
/// first.
const BEHIND: u8 = 4;

/// A batch of an idempotent producer, of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentBatch<'a> {
    pub(crate) topic: &'a Arc<str>,
    pub(crate) partition: i32,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
}

/// The first batch that was refused of those that a producer has under way.
#[derive(Clone, Copy, Debug)]
struct RefusedBatch {
    producer_epoch: i16,
    base_sequence: i32,
    error: ErrorCode,
    /// How many batches may still be behind it.
    behind: u8,
}

/// Topic, partition and producer id.
type Key = (Arc<str>, i32, i64);

/// The refused batches of a connection.
#[derive(Debug, Default)]
pub(crate) struct RefusedBatches {
    known: HashMap<Key, RefusedBatch>,
}

/// The same, for a request that moves to a worker.
pub(crate) type SharedRefusedBatches = Arc<Mutex<RefusedBatches>>;

impl RefusedBatches {
    /// Whether no refused batch is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The answer to a batch that ended with `error`, `None` if it was appended.
    pub(crate) fn answer(&mut self, batch: SentBatch<'_>, error: ErrorCode) -> ErrorCode {
        let key = (Arc::clone(batch.topic), batch.partition, batch.producer_id);
        match error {
            ErrorCode::NotLeaderOrFollower
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::KafkaStorageError => {
                if self.error_of_first(&key, &batch).is_none() {
                    let (producer_epoch, base_sequence) =
                        (batch.producer_epoch, batch.base_sequence);
                    let behind = BEHIND;
                    self.note(key, RefusedBatch { producer_epoch, base_sequence, error, behind });
                }
                error
            }
            ErrorCode::OutOfOrderSequenceNumber => {
                self.error_of_first(&key, &batch).unwrap_or(error)
            }
            _ => {
                self.known.remove(&key);
                error
            }
        }
    }

    /// The error of the refused batch that this one was sent behind.
    fn error_of_first(&mut self, key: &Key, batch: &SentBatch<'_>) -> Option<ErrorCode> {
        let first = self.known.get_mut(key).filter(|first| first.is_before(batch))?;
        first.behind = first.behind.checked_sub(1)?;
        Some(first.error)
    }

    fn note(&mut self, key: Key, refused: RefusedBatch) {
        if self.known.len() < PARTITIONS || self.known.contains_key(&key) {
            self.known.insert(key, refused);
        }
    }
}

impl RefusedBatch {
    /// Whether the producer sent `batch` after it.
    fn is_before(&self, batch: &SentBatch<'_>) -> bool {
        // Sequence numbers begin at 0 again after 2^31 - 1.
        let distance = batch.base_sequence.wrapping_sub(self.base_sequence) & i32::MAX;
        self.producer_epoch == batch.producer_epoch && distance > 0 && distance < i32::MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorCode::{None as Appended, NotLeaderOrFollower, OutOfOrderSequenceNumber};

    fn answer(refused: &mut RefusedBatches, base_sequence: i32, error: ErrorCode) -> ErrorCode {
        let topic = Arc::from("orders");
        let (partition, producer_id, producer_epoch) = (0, 7, 1);
        let batch =
            SentBatch { topic: &topic, partition, producer_id, producer_epoch, base_sequence };
        refused.answer(batch, error)
    }

    #[test]
    fn batches_behind_a_refused_one_are_refused_for_its_reason() {
        let mut refused = RefusedBatches::default();
        assert_eq!(answer(&mut refused, 5, NotLeaderOrFollower), NotLeaderOrFollower);
        for behind in 0..4 {
            let found = answer(&mut refused, 6 + behind, OutOfOrderSequenceNumber);
            assert_eq!(found, NotLeaderOrFollower);
        }
        let sixth = answer(&mut refused, 10, OutOfOrderSequenceNumber);
        assert_eq!(sixth, OutOfOrderSequenceNumber, "no producer has six under way");
    }

    #[test]
    fn nothing_is_behind_a_batch_that_was_appended_after_all() {
        let mut refused = RefusedBatches::default();
        answer(&mut refused, 5, NotLeaderOrFollower);
        assert_eq!(answer(&mut refused, 5, Appended), Appended);
        assert!(refused.is_empty());
        let later = answer(&mut refused, 9, OutOfOrderSequenceNumber);
        assert_eq!(later, OutOfOrderSequenceNumber);
    }

    #[test]
    fn a_batch_before_the_refused_one_is_not_behind_it() {
        let mut refused = RefusedBatches::default();
        answer(&mut refused, 5, NotLeaderOrFollower);
        let earlier = answer(&mut refused, 4, OutOfOrderSequenceNumber);
        assert_eq!(earlier, OutOfOrderSequenceNumber);
        answer(&mut refused, i32::MAX - 1, NotLeaderOrFollower);
        let wrapped = answer(&mut refused, 3, OutOfOrderSequenceNumber);
        assert_eq!(wrapped, NotLeaderOrFollower, "sequence numbers begin again");
    }

    #[test]
    fn no_more_partitions_are_known_than_the_limit() {
        let mut refused = RefusedBatches::default();
        let topic = Arc::from("orders");
        for partition in 0..2000 {
            let (producer_id, producer_epoch, base_sequence) = (7, 1, 0);
            let batch =
                SentBatch { topic: &topic, partition, producer_id, producer_epoch, base_sequence };
            refused.answer(batch, NotLeaderOrFollower);
        }
        assert_eq!(refused.known.len(), PARTITIONS);
    }
}
