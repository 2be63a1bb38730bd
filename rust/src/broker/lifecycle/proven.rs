//! Lower bounds for producer ids and leader epochs that opened logs prove.
//!
//! Metadata may be older than the logs: it was lost, or another broker wrote the directory. If a
//! producer id is assigned twice, the second producer's first batches look like duplicates, which
//! are acknowledged but not written. If a leader epoch falls, recovery takes the log for damaged.
//! Producer ids come from each log's producer state and from the records of `__transaction_state`;
//! InitProducerId assigns none below them. Epochs above those of a delta are kept for the policy,
//! which raises the topic's epoch. A log never appends with an epoch below its newest.
//! Threads: any; several logs may be opened at a time.
//! Not promised: bounds from producers that a log has removed (`producer.id.expiration.ms`); the
//!     log compares no batch with them. Ids above [`LAST_PRODUCER_ID`] are ignored: a controller
//!     cannot reach them by counting, but any client may write them.

use crate::broker::requests::broker::Broker;
use crate::broker::state::transactions::shard::TOPIC;
use crate::broker::transactions::records::{self, TopicNames, TransactionRecord};
use crate::ids::{Epoch, TopicPartition};
use crate::record::{RecordError, batch, convert};
use crate::storage::{Log, LogReadRequest, ReadError};

/// Bytes read of it at a time.
const CHUNK: usize = 1 << 20;
/// The highest producer id that proves anything.
const LAST_PRODUCER_ID: i64 = i64::MAX / 2;

/// The error of a read of transaction records.
#[derive(Debug, thiserror::Error)]
enum TransactionReadError {
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Record(#[from] RecordError),
}

impl Broker {
    /// Records the bounds that an opened log proves. `leader_epoch` is the delta's.
    pub(crate) fn note_proven(&self, log: &Log, leader_epoch: Option<Epoch>) {
        let newest = log.latest_epoch();
        // A controller that read only the checkpoint could not know that the log has the same
        // epoch.
        let is_new = |leader_epoch| {
            leader_epoch < newest || (leader_epoch == newest && !log.are_epochs_saved())
        };
        if leader_epoch.is_some_and(is_new) {
            self.proven.epochs.lock().push((log.name().clone(), newest));
        }
        let remembered = log.producers().into_iter().map(|producer| producer.producer_id);
        let mut highest = remembered.filter(|id| *id <= LAST_PRODUCER_ID).max();
        if &*log.name().topic == TOPIC {
            let outcome = transactions(log, &mut |id| highest = highest.max(Some(id)));
            if let Err(error) = outcome {
                tracing::warn!(log = %log.name(), "ids of producers are not all known: {error}");
            }
        }
        if let Some(highest) = highest {
            self.producer_ids.begin_above(highest);
        }
    }

    /// One above the highest producer id that a log has named.
    pub fn first_free_producer_id(&self) -> i64 {
        self.producer_ids.floor()
    }

    /// Partitions whose log has a newer leader epoch than the delta that opened it, or the same
    /// epoch without an entry in `leader-epoch-checkpoint`; with that epoch. Each is returned once.
    pub fn take_newer_epochs(&self) -> Vec<(TopicPartition, Epoch)> {
        std::mem::take(&mut self.proven.epochs.lock())
    }
}

/// Passes the producer ids in records of `__transaction_state` to `sink`.
fn transactions(log: &Log, sink: &mut impl FnMut(i64)) -> Result<(), TransactionReadError> {
    let (mut next, end) = (log.log_start_offset(), log.log_end_offset());
    let mut bytes = Vec::new();
    while next < end {
        bytes.clear();
        let read = LogReadRequest { offset: next, max_bytes: CHUNK, upper: end, min_one: true };
        log.read(read)?.read_into(&mut bytes)?;
        let begin = next;
        for batch in batch::iter(&bytes) {
            let batch = match batch {
                Ok(batch) => batch,
                Err(RecordError::Truncated { .. }) if next > begin => break,
                Err(error) => return Err(error.into()),
            };
            if !batch.is_control() {
                convert::each_record(&batch, |record| {
                    transaction(record.key, record.value).into_iter().for_each(&mut *sink);
                    Ok(())
                })?;
            }
            next.0 = batch.last_offset() + 1;
        }
        if next == begin {
            break;
        }
    }
    Ok(())
}

/// The highest producer id in the record of a transactional id: its own, or the one that follows.
fn transaction(key: Option<&[u8]>, value: Option<&[u8]>) -> Option<i64> {
    let record = records::read(key, value, &mut TopicNames::default()).ok()?;
    let TransactionRecord::Updated(_, transaction) = record else { return None };
    let id = transaction.producer.id.max(transaction.next_producer_id);
    (0..=LAST_PRODUCER_ID).contains(&id).then_some(id)
}
