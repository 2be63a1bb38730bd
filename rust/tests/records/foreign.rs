//! The `kafka-protocol` crate as referee of batches, both ways (it has dropped the older sets).

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use krust::record::batch::{self, Batch, BatchFields, ValidationRules};
use krust::record::compression::Codec;
use proptest::prelude::*;

use super::sample::{OwnedRecord, build, codec, read, records};

fn theirs(records: &[OwnedRecord]) -> Vec<Record> {
    let owned = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| Bytes::from(bytes.clone()));
    records
        .iter()
        .map(|record| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset: record.offset,
            sequence: record.offset as i32,
            timestamp: record.timestamp,
            key: owned(&record.key),
            value: owned(&record.value),
            headers: record
                .headers
                .iter()
                .map(|(key, value)| (StrBytes::from_string(key.clone()), owned(value)))
                .collect::<IndexMap<_, _>>(),
        })
        .collect()
}

fn ours(records: Vec<Record>) -> Vec<OwnedRecord> {
    let owned = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.to_vec());
    records
        .into_iter()
        .map(|record| OwnedRecord {
            offset: record.offset,
            timestamp: record.timestamp,
            key: owned(record.key),
            value: owned(record.value),
            headers: record
                .headers
                .into_iter()
                .map(|(key, value)| (key.to_string(), owned(value)))
                .collect(),
        })
        .collect()
}

fn compression(codec: Codec) -> Compression {
    match codec {
        Codec::None => Compression::None,
        Codec::Gzip => Compression::Gzip,
        Codec::Snappy => Compression::Snappy,
        Codec::Lz4 => Compression::Lz4,
        Codec::Zstd => Compression::Zstd,
    }
}

fn encoded(records: &[OwnedRecord], codec: Codec) -> BytesMut {
    let mut bytes = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: compression(codec) };
    RecordBatchEncoder::encode(&mut bytes, &theirs(records), &options).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn batches_of_another_codec_are_read(records in records(), codec in codec()) {
        let bytes = encoded(&records, codec);
        let batch = Batch::parse(&bytes).unwrap();
        prop_assert_eq!(batch.size(), bytes.len());
        batch::check(&batch, &ValidationRules::default()).unwrap();
        prop_assert_eq!(read(&bytes).unwrap(), records);
    }

    #[test]
    fn another_codec_reads_these_batches(records in records(), codec in codec()) {
        let bytes = build(&records, &BatchFields { codec, ..BatchFields::default() });
        let set = RecordBatchDecoder::decode(&mut Bytes::from(bytes)).unwrap();
        prop_assert_eq!(ours(set.records), records);
    }
}
