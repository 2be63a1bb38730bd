//! Reads a coordinator's log in order and yields its records and the ends of its transactions.
//!
//! Records are read in place, in chunks; compressed batches are inflated. A batch with a wrong
//! checksum is skipped and logged as an error.
//! Limits: a chunk has 5 MiB. A compressed message of an old format may inflate to 64 MiB.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::broker::lifecycle::coordinator::{ReplayedRecord, ShardReplay};
use crate::ids::Offset;
use crate::record::batch::{self, Batch};
use crate::record::compression::Codec;
use crate::record::control::ControlRecord;
use crate::record::legacy::{self, Message};
use crate::record::{RecordError, convert};
use crate::storage::{Log, LogReadRequest, ReadError};

/// Bytes read at a time, as `offsets.load.buffer.size`.
const CHUNK: usize = 5 << 20;
/// The largest inflated size of a compressed message of an old format.
const INFLATED: usize = 64 << 20;

/// Why a partition was not replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("the broker stops")]
    Closing,
}

/// A replay in progress.
#[derive(Debug, Default)]
pub(super) struct LogReplay<R> {
    /// The state built so far.
    pub(super) replayed: R,
    /// One past the last record read.
    next: Offset,
    /// First and last offsets of batches with a wrong checksum, until they are logged.
    damaged: Vec<(i64, i64)>,
}

impl<R: ShardReplay> LogReplay<R> {
    /// Reads to the log end offset, and returns it.
    pub(super) fn read(&mut self, log: &Log, stop: &AtomicBool) -> Result<Offset, ReplayError> {
        let mut bytes = Vec::new();
        self.next = self.next.max(log.log_start_offset());
        loop {
            if stop.load(Ordering::Acquire) {
                return Err(ReplayError::Closing);
            }
            let upper = log.log_end_offset();
            let read = LogReadRequest { offset: self.next, max_bytes: CHUNK, upper, min_one: true };
            bytes.clear();
            log.read(read)?.read_into(&mut bytes)?;
            let outcome = self.chunk(&bytes);
            for (from, to) in self.damaged.drain(..) {
                tracing::error!(
                    partition = %log.name(), from, to,
                    "a batch has a wrong checksum and is left out: what the coordinator wrote \
                     with it is lost, and what it wrote before counts again"
                );
            }
            match outcome? {
                Some(next) if next > self.next => self.next = next,
                _ => {
                    self.next = self.next.max(upper);
                    return Ok(self.next);
                }
            }
        }
    }

    /// Replays the batches of a chunk. The last one may be cut. Returns the offset after them.
    fn chunk(&mut self, bytes: &[u8]) -> Result<Option<Offset>, ReplayError> {
        let mut next = None;
        for batch in batch::iter(bytes) {
            match batch {
                Ok(batch) => {
                    if batch.crc_ok() {
                        self.batch(&batch)?;
                    } else {
                        self.damaged.push((batch.header().base_offset, batch.last_offset()));
                    }
                    next = Some(Offset(batch.last_offset() + 1));
                }
                Err(RecordError::Truncated { .. }) => break,
                Err(RecordError::Magic(_)) if next.is_none() => return self.older(bytes),
                // The next chunk begins here.
                Err(RecordError::Magic(_)) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(next)
    }

    /// Replays messages of the old formats.
    fn older(&mut self, bytes: &[u8]) -> Result<Option<Offset>, ReplayError> {
        let (mut next, mut rest, mut held) = (None, bytes, Vec::new());
        loop {
            let message = match Message::parse(rest) {
                Ok(message) => message,
                Err(RecordError::Truncated { .. } | RecordError::Magic(_)) => return Ok(next),
                Err(error) => return Err(error.into()),
            };
            let (offset, transaction_of) = (message.offset, None);
            let mut apply = |key, value| {
                self.replayed.record(&ReplayedRecord { offset, transaction_of, key, value });
            };
            if message.codec == Codec::None {
                apply(message.key, message.value);
            } else {
                legacy::records(&message, INFLATED, &mut held)?
                    .for_each(|record| apply(record.key, record.value));
            }
            next = Some(Offset(message.offset + 1));
            rest = rest.get(message.size()..).unwrap_or_default();
        }
    }

    fn batch(&mut self, batch: &Batch<'_>) -> Result<(), RecordError> {
        let producer = batch.header().producer_id;
        if batch.is_control() {
            return convert::each_record(batch, |record| {
                if let Ok(ControlRecord::EndTransaction { commit, .. }) =
                    ControlRecord::parse(record)
                {
                    self.replayed.end_transaction(producer, commit);
                }
                Ok(())
            });
        }
        let transaction_of = batch.is_transactional().then_some(producer);
        convert::each_record(batch, |record| {
            let (offset, key, value) = (record.offset, record.key, record.value);
            self.replayed.record(&ReplayedRecord { offset, transaction_of, key, value });
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::broker::requests::broker::Broker;
    use crate::broker::state::coordinator::shard::{CoordinatorShard, ShardMemory};
    use crate::record::batch::{BatchBuilder, BatchFields, NewRecord};
    use crate::record::compression::deflate;
    use crate::record::control::EndTransactionMarker;
    use crate::record::legacy::NewMessage;

    /// A coordinator that keeps what it is told.
    #[derive(Debug, Default, PartialEq)]
    struct Values(Vec<String>);

    impl ShardReplay for Values {
        type Kept = Self;
        const THREAD: &'static str = "values";

        fn record(&mut self, record: &ReplayedRecord<'_>) {
            let value = String::from_utf8_lossy(record.value.unwrap_or_default());
            let offset = record.offset;
            self.0.push(match record.transaction_of {
                None => format!("{value}@{offset}"),
                Some(producer) => format!("{value}@{offset} of {producer}"),
            });
        }

        fn end_transaction(&mut self, producer_id: i64, commit: bool) {
            self.0.push(format!("{producer_id} {}", if commit { "commits" } else { "aborts" }));
        }

        fn take_over(
            self,
            _broker: &Broker,
            _shard: &Arc<CoordinatorShard<Self>>,
            memory: &mut ShardMemory<Self>,
        ) {
            memory.kept = self;
        }
    }

    fn batch(value: &[u8], producer_id: i64) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        builder.add(&NewRecord { timestamp: 0, key: Some(b"k"), value: Some(value), headers: &[] });
        let transactional = producer_id >= 0;
        builder
            .to_bytes(&BatchFields { producer_id, transactional, ..BatchFields::default() })
            .unwrap()
    }

    fn marker(producer_id: i64, commit: bool) -> Vec<u8> {
        let marker =
            EndTransactionMarker { producer_id, producer_epoch: 0, coordinator_epoch: 0, commit };
        marker.to_batch(0).unwrap()
    }

    fn message(codec: Codec, value: &[u8]) -> Vec<u8> {
        let (mut bytes, value) = (Vec::new(), Some(value));
        let attributes = codec as i8;
        legacy::put(
            &mut bytes,
            &NewMessage { magic: 1, attributes, value, ..NewMessage::default() },
        );
        bytes
    }

    fn values(batches: &[Vec<u8>]) -> Vec<String> {
        let mut log_replay = LogReplay::<Values>::default();
        log_replay.chunk(&batches.concat()).unwrap();
        log_replay.replayed.0
    }

    #[test]
    fn records_name_their_transactions_and_markers_end_them() {
        let open = [batch(b"a", 1), batch(b"b", 2), batch(b"c", -1)];
        let ended = [open.concat(), marker(2, false), marker(1, true)];
        let wanted = ["a@0 of 1", "b@0 of 2", "c@0", "2 aborts", "1 commits"];
        assert_eq!(values(&ended), wanted);
    }

    #[test]
    fn a_batch_with_a_wrong_checksum_is_left_out_and_reported() {
        let mut damaged = batch(b"b", -1);
        *damaged.last_mut().unwrap() ^= 1;
        let mut log_replay = LogReplay::<Values>::default();
        log_replay.chunk(&[batch(b"a", -1), damaged, batch(b"c", -1)].concat()).unwrap();
        assert_eq!(log_replay.replayed.0, ["a@0", "c@0"]);
        assert_eq!(log_replay.damaged, [(0, 0)]);
    }

    #[test]
    fn a_message_of_an_older_format_inflates_no_further_than_it_may() {
        let mut log_replay = LogReplay::<Values>::default();
        let most = INFLATED - 34; // the message around the value
        for (size, fits) in [(most, true), (most + 1, false)] {
            let (inside, mut value) = (message(Codec::None, &vec![0; size]), Vec::new());
            deflate(Codec::Gzip, None, &inside, &mut value).unwrap();
            let outcome = log_replay.chunk(&message(Codec::Gzip, &value));
            assert_eq!(outcome.is_ok(), fits, "{outcome:?}");
        }
    }
}
