//! Records for all tests here: owned, comparable, and made by proptest.

use krust::record::batch::{Batch, BatchBuilder, BatchFields, NewRecord, Record};
use krust::record::compression::Codec;
use krust::record::{RecordError, convert, legacy};
use proptest::prelude::*;

pub const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

#[derive(Clone, Debug, PartialEq)]
pub struct OwnedRecord {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl OwnedRecord {
    pub fn of(record: &Record<'_>) -> Self {
        Self {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|(key, value)| {
                    (String::from_utf8(key.to_vec()).unwrap(), value.map(<[u8]>::to_vec))
                })
                .collect(),
        }
    }

    /// What an old format keeps of it.
    pub fn reduced(&self, magic: i8) -> Self {
        let timestamp = if magic == 0 { -1 } else { self.timestamp };
        Self { timestamp, headers: Vec::new(), ..self.clone() }
    }
}

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        4 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
        2 => (any::<u8>(), 0usize..70_000).prop_map(|(byte, size)| Some(vec![byte; size])),
    ]
}

/// 1-40 records at consecutive offsets from 0, headers' keys unique.
pub fn records() -> impl Strategy<Value = Vec<OwnedRecord>> {
    let headers = prop::collection::btree_map("[a-z]{0,6}", bytes(), 0..3);
    let record = (0i64..4_000_000_000_000, bytes(), bytes(), headers);
    prop::collection::vec(record, 1..40).prop_map(|records| {
        let owned = |(offset, (timestamp, key, value, headers)): (usize, _)| OwnedRecord {
            offset: offset as i64,
            timestamp,
            key,
            value,
            headers: std::collections::BTreeMap::into_iter(headers).collect(),
        };
        records.into_iter().enumerate().map(owned).collect()
    })
}

pub fn codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(CODECS.to_vec())
}

pub fn build(records: &[OwnedRecord], fields: &BatchFields) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for record in records {
        let headers: Vec<_> =
            record.headers.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        builder.add(&NewRecord {
            timestamp: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        });
    }
    builder.to_bytes(fields).unwrap()
}

pub fn read(bytes: &[u8]) -> Result<Vec<OwnedRecord>, RecordError> {
    let mut records = Vec::new();
    convert::each_record(&Batch::parse(bytes)?, |record| {
        records.push(OwnedRecord::of(record));
        Ok(())
    })?;
    Ok(records)
}

pub fn read_set(set: &[u8]) -> Result<Vec<OwnedRecord>, RecordError> {
    let mut records = Vec::new();
    for message in legacy::iter(set) {
        let mut held = Vec::new();
        records.extend(
            legacy::records(&message?, 1 << 26, &mut held)?.map(|record| OwnedRecord::of(&record)),
        );
    }
    Ok(records)
}

/// The set that an old consumer gets.
pub fn down(bytes: &[u8], magic: i8) -> Vec<u8> {
    let target = convert::LegacyTarget { magic, first_offset: 0 };
    let mut out = Vec::new();
    let mut limit = usize::MAX;
    let batch = Batch::parse(bytes).unwrap();
    assert!(convert::to_legacy(&batch, &target, &mut limit, &mut out).unwrap());
    out
}
