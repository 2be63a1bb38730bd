//! Directories that Apache Kafka wrote are read record by record, also after kill -9.

use std::collections::BTreeMap;

use krust::ids::{Offset, TopicPartition};
use krust::record::compression::{Codec, Inflate};
use krust::record::{batch, legacy};
use krust::storage::{DirKind, Log, LogReadRequest, inspect};
use serde_json::Value;

use crate::support::{LogFixture, append, batch as make, kafka_data, run, unpack_kafka};

type Record = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn json(name: &str) -> Value {
    serde_json::from_slice(&run("xz", &["-dc", kafka_data(name).to_str().unwrap()])).unwrap()
}

fn base64(text: &Value) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.as_str()?.bytes().filter(|byte| *byte != b'=') {
        bits = bits << 6 | u32::try_from(DIGITS.iter().position(|d| *d == byte).unwrap()).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// All records that a reader of the log up to `upper` gets, without those of aborted transactions.
fn read(log: &Log, upper: Offset, committed: bool) -> Vec<Record> {
    let mut found = Vec::new();
    let mut next = log.log_start_offset();
    let aborted = if committed { log.aborted(next, upper).unwrap() } else { Vec::new() };
    loop {
        let slice = log
            .read(LogReadRequest { offset: next, max_bytes: 700, upper, min_one: true })
            .unwrap();
        let bytes = slice.to_vec().unwrap();
        for batch in batch::iter(&bytes) {
            let Ok(batch) = batch else { break };
            assert!(batch.crc_ok());
            let before = next;
            next = Offset(batch.last_offset() + 1);
            let hidden = batch.is_control()
                || aborted.iter().any(|txn| {
                    batch.is_transactional()
                        && txn.producer_id == batch.header().producer_id
                        && (txn.first_offset..=txn.last_offset).contains(&batch.base_offset())
                });
            if hidden {
                continue;
            }
            let mut inflated = Vec::new();
            if batch.codec() == Codec::None {
                inflated.extend_from_slice(batch.payload());
            } else {
                let inflate = Inflate::new(batch.codec(), batch.payload()).unwrap();
                inflate.read_all(1 << 20, &mut inflated).unwrap();
            }
            for record in batch.records_in(&inflated).map(Result::unwrap) {
                if record.offset >= before.0 {
                    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                    found.push((record.offset, owned(record.key), owned(record.value)));
                }
            }
        }
        if bytes.is_empty() {
            return found;
        }
    }
}

fn expected(list: &Value) -> Vec<Record> {
    let record = |r: &Value| (r[0].as_i64().unwrap(), base64(&r[3]), base64(&r[4]));
    list.as_array().unwrap().iter().map(record).collect()
}

fn open(fixture: &mut LogFixture, topic: &str, partition: &str) -> std::sync::Arc<Log> {
    fixture.name = TopicPartition::new(topic, partition.parse().unwrap());
    fixture.dense = false;
    let log = fixture.open();
    log.raise_high_watermark(log.log_end_offset());
    log
}

#[test]
fn a_directory_of_a_clean_shutdown_is_adopted() {
    for clean in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = unpack_kafka("kafka-3.9.1-clean", dir.path());
        if !clean {
            std::fs::remove_file(path.join(".kafka_cleanshutdown")).unwrap();
        }
        let mut fixture = LogFixture::new(&path);
        assert_eq!(fixture.dir.was_clean(), clean);
        assert_eq!(fixture.dir.cluster_id().as_deref(), Some("tnvs0KZmSD6wgcy-KGiG3g"));
        assert!(fixture.dir.partitions().unwrap().iter().all(|found| found.topic_id.is_some()));
        let states = json("kafka-3.9.1-clean.json.xz");
        for (topic, partitions) in states["topics"].as_object().unwrap() {
            for (partition, states) in partitions.as_object().unwrap() {
                let log = open(&mut fixture, topic, partition);
                assert_eq!(log.log_start_offset().0, states["low"].as_i64().unwrap(), "{topic}");
                assert_eq!(log.last_stable_offset().0, states["high"].as_i64().unwrap(), "{topic}");
                let all = states.get("records").or(states.get("read_uncommitted")).unwrap();
                let end = log.log_end_offset();
                assert_eq!(read(&log, end, false), expected(all), "{topic}");
                if let Some(list) = states.get("read_committed") {
                    let upper = log.last_stable_offset();
                    assert_eq!(read(&log, upper, true), expected(list), "{topic}");
                }
                append(&log, &make(&[b"one more"])).unwrap();
                assert_eq!(log.log_end_offset().0, end.0 + 1);
                log.close().unwrap();
            }
        }
    }
}

#[test]
fn a_directory_of_a_killed_broker_has_all_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = unpack_kafka("kafka-3.9.1-killed", dir.path());
    let mut fixture = LogFixture::new(&path);
    assert!(!fixture.dir.was_clean());
    let found = fixture.dir.partitions().unwrap();
    let going: Vec<_> = found.iter().filter(|found| found.kind == DirKind::Delete).collect();
    assert_eq!(going.len(), 1);
    assert_eq!(going[0].name, TopicPartition::new("gone", 0));
    let acked = json("kafka-3.9.1-killed.acked.json.xz");
    let mut seen: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for partition in ["0", "1", "2"] {
        let log = open(&mut fixture, "orders", partition);
        for (offset, _, value) in read(&log, log.log_end_offset(), false) {
            seen.insert(format!("{partition}-{offset}"), value.unwrap());
        }
        assert_eq!(log.producers().len(), 1);
    }
    for (place, value) in acked.as_object().unwrap() {
        assert_eq!(
            seen.get(place).map(Vec::as_slice),
            value.as_str().map(str::as_bytes),
            "{place}"
        );
    }
}

/// All records of a log of older messages, wrappers opened.
fn read_legacy(log: &Log) -> Vec<Record> {
    let upper = log.log_end_offset();
    let mut found: Vec<Record> = Vec::new();
    let mut next = log.log_start_offset();
    while next < upper {
        let slice = log
            .read(LogReadRequest { offset: next, max_bytes: 700, upper, min_one: true })
            .unwrap();
        let bytes = slice.to_vec().unwrap();
        let before = next;
        for message in legacy::iter(&bytes) {
            let Ok(message) = message else { break };
            assert!(message.crc_ok());
            let mut held = Vec::new();
            for record in legacy::records(&message, 1 << 20, &mut held).unwrap() {
                if record.offset >= before.0 {
                    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
                    found.push((record.offset, owned(record.key), owned(record.value)));
                }
            }
            next = Offset(message.offset + 1);
        }
        assert!(next > before);
    }
    found
}

#[test]
fn directories_of_message_sets_are_adopted() {
    for name in ["kafka-0.8.2.2", "kafka-0.10.2.2"] {
        for clean in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let path = unpack_kafka(name, dir.path());
            if !clean {
                std::fs::remove_file(path.join(".kafka_cleanshutdown")).unwrap();
                std::fs::remove_file(path.join("recovery-point-offset-checkpoint")).unwrap();
            }
            let mut fixture = LogFixture::new(&path);
            assert_eq!(fixture.dir.was_clean(), clean);
            let states = json(&format!("{name}.json.xz"));
            for (topic, partitions) in states["topics"].as_object().unwrap() {
                for (partition, states) in partitions.as_object().unwrap() {
                    let log = open(&mut fixture, topic, partition);
                    assert_eq!(log.log_start_offset().0, states["low"].as_i64().unwrap());
                    assert_eq!(log.log_end_offset().0, states["high"].as_i64().unwrap(), "{topic}");
                    let all = expected(&states["records"]);
                    assert_eq!(read_legacy(&log), all, "{name} {topic} {clean}");
                    if name == "kafka-0.10.2.2" {
                        let (offset, time) = (&states["records"][70][0], &states["records"][70][1]);
                        let found = log.offset_for_timestamp(time.as_i64().unwrap()).unwrap();
                        assert!(found.unwrap().offset.0 <= offset.as_i64().unwrap());
                    }
                    append(&log, &make(&[b"of today"])).unwrap();
                    log.close().unwrap();
                    assert_eq!(inspect::verify(&fixture.partition()).unwrap(), []);
                }
            }
        }
    }
}

#[test]
fn verify_finds_nothing_wrong_with_kafka_directories() {
    for name in ["kafka-0.8.2.2", "kafka-0.10.2.2", "kafka-3.9.1-clean"] {
        let scratch = tempfile::tempdir().unwrap();
        let found = inspect::verify_directory(&unpack_kafka(name, scratch.path())).unwrap();
        assert_eq!(found, [], "{name}");
    }
}
