//! A partition that transactions write to: the real log, on its leader. One is of the data, or of
//! `__consumer_offsets`, whose records are offsets.

use std::sync::Arc;

use crate::broker::transactions::transaction::ClientTransactionVersion;
use krust::clock::ManualClock;
use krust::ids::{Epoch, Offset, TopicPartition};
use krust::protocol::ErrorCode;
use krust::record::batch::{self, Batch, BatchBuilder, BatchFields, NewRecord, ValidationRules};
use krust::record::control::ControlRecord;
use krust::storage::{
    AppendError, AppendOrigin, DirOptions, Log, LogConfig, LogDir, LogReadRequest, NewBatch, Open,
    Verification, VerificationGuard,
};

use super::group::{self, Group};
use super::messages::{Marker, Write};

pub const NOW_MS: i64 = 1_700_000_000_000;

pub struct Partition {
    pub log: Arc<Log>,
    /// The group whose offsets are its records, if it is of `__consumer_offsets`.
    pub group: Option<Group>,
}

/// What a partition says to a batch.
pub enum Written {
    /// It is in the log.
    Done,
    /// The coordinator has to confirm its transaction first.
    Ask(VerificationGuard),
    Refused(ErrorCode),
}

/// A batch of a log, as the oracle reads it.
pub enum Found {
    Record { producer_id: i64, value: u64 },
    Marker { producer_id: i64, commit: bool },
}

impl Partition {
    pub fn new(dir: &Arc<LogDir>, number: usize, group: Option<Group>) -> Self {
        let options = Open {
            config: Arc::new(LogConfig::default()),
            topic_id: None,
            leader_epoch: Some(Epoch(0)),
            clean: true,
            dense: true,
            clock: Arc::new(ManualClock::at(NOW_MS)),
            syncer: None,
            checking: None,
        };
        let name = TopicPartition::new("data", i32::try_from(number).unwrap());
        Self { log: Log::open(dir, &name, options).unwrap(), group }
    }

    pub fn dir(path: &std::path::Path) -> Arc<LogDir> {
        LogDir::open(path, &DirOptions::default()).unwrap()
    }

    /// Appends a batch whose transaction is verified, or is to be.
    pub fn write(&mut self, write: &Write, guard: Option<VerificationGuard>) -> Written {
        let has_own_epoch = write.version == ClientTransactionVersion::V2;
        let verification = match guard {
            None => Verification::Required,
            Some(guard) => Verification::ConfirmedBy { guard, has_own_epoch },
        };
        let (origin, base_sequence, key, value) = match self.group {
            None => {
                let value = write.value.to_be_bytes().to_vec();
                (AppendOrigin::Client(verification), write.sequence, None, value)
            }
            Some(_) => {
                let (key, value) = group::record(write.value);
                (AppendOrigin::Coordinator(verification), 0, Some(key), value)
            }
        };
        let (key, value) = (key.as_deref(), Some(&*value));
        let mut builder = BatchBuilder::new();
        builder.add(&NewRecord { timestamp: NOW_MS, key, value, headers: &[] });
        let fields = BatchFields {
            producer_id: write.producer.id,
            producer_epoch: write.producer.epoch,
            base_sequence,
            transactional: true,
            ..BatchFields::default()
        };
        let bytes = builder.to_bytes(&fields).unwrap();
        let batch = Batch::parse(&bytes).unwrap();
        let validated = batch::check(&batch, &ValidationRules::default()).unwrap();
        let new = NewBatch::new(&batch, &validated, NOW_MS);
        match self.log.stage(&new.from(origin)) {
            Ok(appended) => {
                let at = appended.last_offset.0;
                self.log.commit(appended.staged).unwrap();
                self.log.raise_high_watermark(self.log.log_end_offset());
                if let Some(group) = &mut self.group {
                    group.committed(write.producer.id, write.value, at);
                }
                Written::Done
            }
            Err(AppendError::NotVerified(guard)) => Written::Ask(guard),
            Err(error) => Written::Refused(code(&error)),
        }
    }

    pub fn mark(&mut self, marker: &Marker) -> ErrorCode {
        match self.log.stage_marker(&marker.ends, marker.version as i8, NOW_MS) {
            Ok(staged) => {
                self.log.commit(staged.staged).unwrap();
                self.log.raise_high_watermark(self.log.log_end_offset());
                if let Some(group) = &mut self.group {
                    group.ended(marker.ends.producer_id, marker.ends.commit);
                }
                ErrorCode::None
            }
            Err(error) => code(&error),
        }
    }

    /// All batches, in their order.
    pub fn read(&self) -> Vec<Found> {
        let upper = self.log.log_end_offset();
        let (mut found, mut offset) = (Vec::new(), 0);
        while offset < upper.0 {
            let read =
                LogReadRequest { offset: Offset(offset), max_bytes: 1 << 20, upper, min_one: true };
            let bytes = self.log.read(read).unwrap().to_vec().unwrap();
            for batch in batch::iter(&bytes) {
                let batch = batch.unwrap();
                let producer_id = batch.header().producer_id;
                for record in batch.records() {
                    let record = record.unwrap();
                    found.push(if batch.is_control() {
                        let control = ControlRecord::parse(&record).unwrap();
                        Found::Marker { producer_id, commit: is_commit(&control) }
                    } else {
                        Found::Record { producer_id, value: self.value(record.value) }
                    });
                }
                offset = batch.last_offset() + 1;
            }
        }
        found
    }

    /// The records that a read_committed consumer gets, by the last stable offset and the list of
    /// aborted transactions.
    pub fn committed(&self) -> Vec<u64> {
        let upper = self.log.last_stable_offset();
        let mut aborted = self.log.aborted(Offset(0), upper).unwrap();
        let (mut found, mut offset) = (Vec::new(), 0);
        while offset < upper.0 {
            let read =
                LogReadRequest { offset: Offset(offset), max_bytes: 1 << 20, upper, min_one: true };
            let bytes = self.log.read(read).unwrap().to_vec().unwrap();
            for batch in batch::iter(&bytes) {
                let batch = batch.unwrap();
                let header = batch.header();
                let (base, id) = (header.base_offset, header.producer_id);
                offset = batch.last_offset() + 1;
                let ends = aborted.iter().position(|it| {
                    it.producer_id == id && it.first_offset <= base && base <= it.last_offset
                });
                if batch.is_control() {
                    if let Some(at) = ends {
                        aborted.remove(at);
                    }
                } else if ends.is_none() {
                    for record in batch.records() {
                        found.push(self.value(record.unwrap().value));
                    }
                }
            }
        }
        found
    }
}

impl Partition {
    /// What a record says.
    fn value(&self, bytes: Option<&[u8]>) -> u64 {
        let bytes = bytes.unwrap_or_default();
        match self.group {
            None => u64::from_be_bytes(bytes.try_into().unwrap()),
            Some(_) => group::offset(bytes),
        }
    }
}

fn is_commit(control: &ControlRecord) -> bool {
    matches!(control, ControlRecord::EndTransaction { commit: true, .. })
}

fn code(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        AppendError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        AppendError::InvalidTxnState(_) => ErrorCode::InvalidTxnState,
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        other => panic!("{other:?}"),
    }
}
