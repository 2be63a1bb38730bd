//! Each kind of bad Produce has its own code.

use krust::broker::Flow;
use krust::protocol::produce::ProduceResponse;
use krust::record::batch::{HEADER_SIZE, Header};
use krust::record::compression::Codec;
use krust::wire::Reader;

use crate::double::{Made, TestBroker};
use crate::records::{TOPIC, batch, batch_with, produce, produce_to, put};

fn made() -> TestBroker {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    fixture
}

#[test]
fn a_batch_is_refused_for_its_format() {
    let mut fixture = made();
    let mut conn = fixture.connect();
    let good = batch(&["a"]);
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let two = [good.clone(), good.clone()].concat();
    let zstd = batch_with(&["a"], Codec::Zstd, |_| {});
    let transactional = batch_with(&["a"], Codec::None, |fields| {
        fields.transactional = true;
        (fields.producer_id, fields.producer_epoch, fields.base_sequence) = (1, 0, 0);
    });
    for (version, records, code) in [
        (3, &damaged, 2),
        (9, &two, 87),
        (9, &Vec::new(), 87),
        (9, &good[..good.len() - 1].to_vec(), 87),
        (6, &zstd, 76),
        (7, &zstd, 0),
        (9, &transactional, 53),
    ] {
        assert_eq!(put(&mut fixture, &mut conn, (version, 1, records)).0, code, "v{version}");
    }
}

/// A batch whose compressed records are something else, under a right checksum.
fn garbled(codec: Codec) -> Vec<u8> {
    let mut bytes = batch_with(&["a"], codec, |_| {});
    let header = Header::read(&bytes).unwrap();
    let records: Vec<u8> = bytes.split_off(HEADER_SIZE).iter().map(|byte| byte ^ 0x55).collect();
    [&header.seal(&records)[..], &records].concat()
}

#[test]
fn a_batch_is_refused_for_its_compressed_records() {
    let mut fixture = made();
    let mut conn = fixture.connect();
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let (good, bad) = (batch_with(&["a"], codec, |_| {}), garbled(codec));
        assert_eq!(put(&mut fixture, &mut conn, (9, 1, &bad)).0, 87, "{codec:?}");
        assert_eq!(put(&mut fixture, &mut conn, (9, 1, &good)).0, 0, "{codec:?}");
    }
}

#[test]
fn a_message_beside_a_wrapper_is_refused() {
    let mut fixture = made();
    let mut conn = fixture.connect();
    let down = |codec| {
        let target = krust::record::convert::LegacyTarget { magic: 1, first_offset: 0 };
        let (bytes, mut set) = (batch_with(&["a"], codec, |_| {}), Vec::new());
        let batch = krust::record::batch::Batch::parse(&bytes).unwrap();
        let mut limit = usize::MAX;
        krust::record::convert::to_legacy(&batch, &target, &mut limit, &mut set).unwrap();
        set
    };
    let (plain, wrapper) = (down(Codec::None), down(Codec::Gzip));
    for (set, code) in [
        (wrapper.clone(), 0),
        ([&plain[..], &plain].concat(), 0),
        ([&wrapper[..], &wrapper].concat(), 87),
        ([&plain[..], &wrapper].concat(), 87),
        ([&wrapper[..], &plain[..20]].concat(), 0),
    ] {
        assert_eq!(put(&mut fixture, &mut conn, (2, 1, &set)).0, code);
    }
}

#[test]
fn a_request_is_refused_for_its_acks() {
    let mut fixture = made();
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (2, 2, &batch(&["a"]))).0, 21);
    assert_eq!(put(&mut fixture, &mut conn, (1, 2, &batch(&["a"]))).0, 0);
    assert_eq!(put(&mut fixture, &mut conn, (3, -2, &batch(&["a"]))).0, 21);
}

#[test]
fn a_batch_is_refused_for_its_size() {
    let mut fixture = TestBroker::new();
    let mut small = Made::default();
    small.config.max_message_bytes = 100;
    fixture.topic(TOPIC, small);
    let mut conn = fixture.connect();
    let long = "x".repeat(100);
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&[&long]))).0, 10);
}

#[test]
fn a_record_without_a_key_is_refused_in_a_compacted_topic() {
    let mut fixture = TestBroker::new();
    let mut compacted = Made::default();
    compacted.config.compact = true;
    fixture.topic(TOPIC, compacted);
    let mut conn = fixture.connect();
    let mut builder = krust::record::batch::BatchBuilder::new();
    for key in [Some(&b"k"[..]), None] {
        builder.add(&krust::record::batch::NewRecord {
            timestamp: crate::double::NOW_MS,
            key,
            ..Default::default()
        });
    }
    let records = builder.to_bytes(&krust::record::batch::BatchFields::default()).unwrap();
    let request = produce(8, 1, &records);
    let reply = fixture.ask(&mut conn, &request);
    let response = ProduceResponse::decode(&mut Reader::new(&reply), 8).unwrap();
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!((answer.error_code, answer.base_offset), (87, -1));
    assert_eq!(answer.record_errors[0].batch_index, 1);
}

#[test]
fn a_bad_batch_with_acks_zero_closes_the_connection() {
    let mut fixture = made();
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[produce(9, 0, &batch(&["a"])).bytes]);
    fixture.turn_until_idle(&mut conn);
    assert_eq!((conn.flow, conn.sent.len()), (Flow::Go, 0));
    fixture.event(&mut conn, &[produce(9, 0, b"nonsense").bytes]);
    assert_eq!((conn.flow, conn.sent.len()), (Flow::Close, 0));
}

#[test]
fn an_unknown_topic_id_is_named() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (13, 1, &batch(&["a"]))).0, 100);
    assert_eq!(put(&mut fixture, &mut conn, (12, 1, &batch(&["a"]))).0, 3);
}

#[test]
fn very_many_partitions_without_records_close_the_connection() {
    let mut fixture = made();
    let mut conn = fixture.connect();
    for (count, flow) in [(10_000, Flow::Go), (10_001, Flow::Close)] {
        let partitions: Vec<(i32, &[u8])> = (0..count).map(|index| (index, &[][..])).collect();
        fixture.event(&mut conn, &[produce_to(9, 1, &partitions).bytes]);
        assert_eq!(conn.flow, flow, "{count}");
    }
}
