//! The reply to a producer names each refused record, with the messages of Kafka 3.9.1 (KIP-467).

use krust::protocol::produce::{PartitionProduceResponse, ProduceResponse};
use krust::record::batch::{Batch, BatchBuilder, BatchFields, NewRecord};
use krust::record::compression::Codec;
use krust::record::convert::recompress;
use krust::wire::Reader;

use crate::double::{Made, NOW_MS, TestBroker};
use crate::records::{TOPIC, produce};

const KEY: Option<&[u8]> = Some(b"k");
const NO_KEY: &str = "Compacted topic cannot accept message without key in topic partition";

/// Index and message of each record that was refused; the code, the message for all, and where the
/// log starts.
type ProduceAnswer = (i16, String, i64, Vec<(i32, String)>);

fn fixture(is_compacted: bool, before_max_ms: i64) -> TestBroker {
    let mut fixture = TestBroker::new();
    let mut made = Made::default();
    made.config.compact = is_compacted;
    made.config.before_max_ms = before_max_ms;
    made.config.after_max_ms = 1000;
    fixture.topic(TOPIC, made);
    fixture
}

fn batch(records: &[(i64, Option<&[u8]>)], codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (timestamp, key) in records {
        builder.add(&NewRecord { timestamp: *timestamp, key: *key, ..Default::default() });
    }
    let plain = builder.to_bytes(&BatchFields::default()).unwrap();
    if codec == Codec::None {
        return plain;
    }
    let mut packed = Vec::new();
    recompress(&Batch::parse(&plain).unwrap(), codec.into(), 1 << 20, &mut packed).unwrap();
    packed
}

fn ask(fixture: &mut TestBroker, version: i16, records: &[u8]) -> ProduceAnswer {
    let mut conn = fixture.connect();
    let reply = fixture.ask_a_worker(&mut conn, &produce(version, 1, records));
    let response = ProduceResponse::decode(&mut Reader::new(&reply), version).unwrap();
    let answer: &PartitionProduceResponse<'_> = &response.responses[0].partition_responses[0];
    assert_eq!(answer.base_offset, -1);
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let named = answer.record_errors.iter();
    let named = named.map(|it| (it.batch_index, text(it.batch_index_error_message))).collect();
    (answer.error_code, text(answer.error_message), answer.log_start_offset, named)
}

#[test]
fn records_without_a_key_are_named_in_a_compacted_topic() {
    let records: Vec<_> = (0..100).map(|n| (NOW_MS, KEY.filter(|_| n % 10 > 0))).collect();
    for codec in [Codec::None, Codec::Gzip, Codec::Zstd] {
        let mut fixture = fixture(true, i64::MAX);
        let (code, message, start, named) = ask(&mut fixture, 9, &batch(&records, codec));
        assert_eq!((code, start), (87, 0));
        let text = format!("{NO_KEY} {TOPIC}-0");
        let due: Vec<_> = (0..10).map(|n| (n * 10, text.clone())).collect();
        assert_eq!(named, due, "{codec:?}");
        assert_eq!(
            message,
            format!(
                "One or more records have been rejected due to 10 record errors in total, and \
                 only showing the first three errors at most: \
                 [RecordError(batchIndex=0, message='{text}'), \
                 RecordError(batchIndex=10, message='{text}'), \
                 RecordError(batchIndex=20, message='{text}')]"
            )
        );
    }
}

#[test]
fn records_with_a_time_out_of_bounds_are_named() {
    let mut fixture = fixture(false, 1000);
    let times = [NOW_MS, 1, NOW_MS, 2, NOW_MS + 9000, 3];
    let records = times.map(|time| (time, KEY));
    let (code, message, start, named) = ask(&mut fixture, 9, &batch(&records, Codec::None));
    assert_eq!((code, start), (32, 0));
    assert_eq!(message, "One or more records have been rejected due to invalid timestamp");
    let text = |time: i64, offset: i32| {
        let (from, to) = (NOW_MS - 1000, NOW_MS + 1000);
        let text = format!(
            "Timestamp {time} of message with offset {offset} is out of range. The timestamp \
             should be within [{from}, {to}]"
        );
        (offset, text)
    };
    assert_eq!(named, [text(1, 1), text(2, 3), text(NOW_MS + 9000, 4), text(3, 5)]);
}

#[test]
fn both_faults_are_listed_under_invalid_timestamp() {
    let mut fixture = fixture(true, 1000);
    let records = [(NOW_MS, None), (1, KEY), (2, None), (NOW_MS, KEY)];
    let (code, message, _, named) = ask(&mut fixture, 9, &batch(&records, Codec::None));
    assert_eq!(code, 32);
    assert_eq!(message, "One or more records have been rejected due to invalid timestamp");
    assert_eq!(named.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(named[0].1.starts_with(NO_KEY) && named[2].1.starts_with(NO_KEY));
    assert!(named[1].1.starts_with("Timestamp 1 of message"));
}

#[test]
fn older_versions_get_the_log_start_offset() {
    let mut fixture = fixture(true, i64::MAX);
    let refused = ask(&mut fixture, 7, &batch(&[(NOW_MS, None)], Codec::None));
    assert_eq!(refused, (87, String::new(), 0, Vec::new()));
}

#[test]
fn the_first_bad_records_are_named_and_all_are_counted() {
    let records = vec![(NOW_MS, None); 12_000];
    let mut fixture = fixture(true, i64::MAX);
    let (_, message, _, named) = ask(&mut fixture, 9, &batch(&records, Codec::Lz4));
    assert_eq!(named.len(), 10_000);
    assert!(message.contains("due to 12000 record errors in total"));
}
