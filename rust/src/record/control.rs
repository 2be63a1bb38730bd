//! Control records. The broker writes them between the data; consumers skip them.
//! ```text
//! key:   version int16 = 0, type int16 (0 abort, 1 commit, 2 .. of KRaft)
//! value: of types 0 and 1: version int16 = 0, coordinator_epoch int32
//! ```
//! A batch with the *control* attribute holds one control record. The batch that ends a transaction
//! is also *transactional*: it has the producer's id and epoch, and no sequence number.

use super::RecordError;
use super::batch::{BatchBuilder, BatchFields, NewRecord, Record};
use super::cursor::Cursor;

/// The meaning of a control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    /// The transaction ends.
    EndTransaction {
        /// Whether the transaction is committed; otherwise it is aborted.
        commit: bool,
        /// Epoch of the coordinator that ended it.
        coordinator_epoch: i32,
    },
    /// Another type, by its number; partitions of data ignore it.
    Other(i16),
}

/// The marker that ends a producer's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransactionMarker {
    /// The producer's id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// Epoch of the coordinator that ends the transaction.
    pub coordinator_epoch: i32,
    /// Whether the transaction is committed; otherwise it is aborted.
    pub commit: bool,
}

impl ControlRecord {
    /// Reads a record of a control batch. Errors: `Invalid` if the key or the value is too short,
    /// or an end-transaction marker has a negative version.
    pub fn parse(record: &Record<'_>) -> Result<Self, RecordError> {
        let bad = || RecordError::batch("control record cut");
        let mut key = Cursor::new(record.key.unwrap_or_default());
        let version = key.int16().ok_or_else(bad)?;
        let kind = key.int16().ok_or_else(bad)?;
        if !matches!(kind, 0 | 1) {
            return Ok(Self::Other(kind));
        }
        let mut value = Cursor::new(record.value.unwrap_or_default());
        let value_version = value.int16().ok_or_else(bad)?;
        if version < 0 || value_version < 0 {
            return Err(RecordError::batch("control record of a negative version"));
        }
        let coordinator_epoch = value.int32().ok_or_else(bad)?;
        Ok(Self::EndTransaction { commit: kind == 1, coordinator_epoch })
    }
}

impl EndTransactionMarker {
    /// A batch that holds the marker, with `timestamp` in milliseconds and base offset 0.
    pub fn to_batch(&self, timestamp: i64) -> Result<Vec<u8>, RecordError> {
        let [k0, k1] = i16::from(self.commit).to_be_bytes();
        let [e0, e1, e2, e3] = self.coordinator_epoch.to_be_bytes();
        let mut builder = BatchBuilder::new();
        builder.add(&NewRecord {
            timestamp,
            key: Some(&[0, 0, k0, k1]),
            value: Some(&[0, 0, e0, e1, e2, e3]),
            headers: &[],
        });
        builder.to_bytes(&BatchFields {
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            transactional: true,
            control: true,
            ..BatchFields::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::*;

    #[test]
    fn a_marker_comes_back_from_its_batch() {
        for commit in [false, true] {
            let marker = EndTransactionMarker {
                producer_id: 12,
                producer_epoch: 3,
                coordinator_epoch: 70_000,
                commit,
            };
            let bytes = marker.to_batch(99).unwrap();
            let batch = Batch::parse(&bytes).unwrap();
            assert!(batch.crc_ok() && batch.is_control() && batch.is_transactional());
            assert_eq!((batch.header().producer_id, batch.header().base_sequence), (12, -1));
            let record = batch.records().next().unwrap().unwrap();
            let expected = ControlRecord::EndTransaction { commit, coordinator_epoch: 70_000 };
            assert_eq!(ControlRecord::parse(&record), Ok(expected));
        }
    }

    #[test]
    fn a_short_control_record_is_refused_and_a_foreign_one_named() {
        let record = Record {
            offset: 0,
            timestamp: 0,
            key: Some(&[0, 0, 0]),
            value: None,
            headers: Default::default(),
        };
        assert!(ControlRecord::parse(&record).is_err());
        assert!(ControlRecord::parse(&Record { key: Some(&[0, 0, 0, 1]), ..record }).is_err());
        let leader = Record { key: Some(&[0, 0, 0, 2]), ..record };
        assert_eq!(ControlRecord::parse(&leader), Ok(ControlRecord::Other(2)));
    }
}
