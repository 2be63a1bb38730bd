//! Control records: what the broker writes among the data, to be skipped by those who read it.
//! ```text
//! key:   version int16 = 0, type int16 (0 abort, 1 commit, 2 .. of KRaft)
//! value: of 0 and 1: version int16 = 0, coordinator_epoch int32
//! ```
//! A batch of attributes *control* holds one of them; that of a transaction's end is
//! *transactional* too and carries the producer's id and epoch, but no sequence number.

use super::RecordError;
use super::batch::{Builder, Entry, Fields, Record};
use super::cursor::Cursor;

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// A transaction's end.
    EndTransaction {
        /// Whether its records count.
        commit: bool,
        /// Epoch of the coordinator that ended it.
        coordinator_epoch: i32,
    },
    /// Another type, by its number; of no meaning to a partition of data.
    Other(i16),
}

/// The end of a producer's transaction, to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The producer's id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// Epoch of the coordinator that ends it.
    pub coordinator_epoch: i32,
    /// Whether its records count.
    pub commit: bool,
}

impl Control {
    /// Reads a record of a control batch. Errors: `Invalid` where key or value are too short, or a
    /// transaction's end has a version below 0.
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

impl Marker {
    /// The batch that says so, at `timestamp` milliseconds, its base offset still 0.
    pub fn to_batch(&self, timestamp: i64) -> Result<Vec<u8>, RecordError> {
        let [k0, k1] = i16::from(self.commit).to_be_bytes();
        let [e0, e1, e2, e3] = self.coordinator_epoch.to_be_bytes();
        let mut builder = Builder::new();
        builder.add(&Entry {
            timestamp,
            key: Some(&[0, 0, k0, k1]),
            value: Some(&[0, 0, e0, e1, e2, e3]),
            headers: &[],
        });
        builder.to_bytes(&Fields {
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            transactional: true,
            control: true,
            ..Fields::default()
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
            let marker =
                Marker { producer_id: 12, producer_epoch: 3, coordinator_epoch: 70_000, commit };
            let bytes = marker.to_batch(99).unwrap();
            let batch = Batch::parse(&bytes).unwrap();
            assert!(batch.crc_ok() && batch.is_control() && batch.is_transactional());
            assert_eq!((batch.header().producer_id, batch.header().base_sequence), (12, -1));
            let record = batch.records().next().unwrap().unwrap();
            let expected = Control::EndTransaction { commit, coordinator_epoch: 70_000 };
            assert_eq!(Control::parse(&record), Ok(expected));
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
        assert!(Control::parse(&record).is_err());
        assert!(Control::parse(&Record { key: Some(&[0, 0, 0, 1]), ..record }).is_err());
        let leader = Record { key: Some(&[0, 0, 0, 2]), ..record };
        assert_eq!(Control::parse(&leader), Ok(Control::Other(2)));
    }
}
