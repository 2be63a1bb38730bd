//! A restart reads committed offsets from the log, krust's and Kafka's.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use krust::broker::{CoordinatorState, GroupRecord, Settings};
use krust::ids::TopicId;
use krust::protocol::group_metadata_value::GroupMetadataValue;
use krust::protocol::offset_commit_key::OffsetCommitKey;
use krust::protocol::offset_commit_value::OffsetCommitValue;
use krust::protocol::value::Value;
use krust::record::batch::{self, Batch, BatchBuilder, BatchFields, NewRecord};
use krust::record::compression::Codec;
use krust::record::control::EndTransactionMarker;
use krust::wire::Writer;

use crate::double::{Made, NOW_MS, TestBroker, map, until};
use crate::groups::{
    GROUP, GROUPS, ask, commit, commit_as, committed, create_topics, fixture, groups_topic,
    offsets, wait_until_loaded,
};
use crate::records::TOPIC;

fn restarted(fixture: TestBroker) -> TestBroker {
    let mut fixture = fixture.again();
    create_topics(&mut fixture);
    fixture
}

fn metadata(generation: i64) -> Value {
    map(vec![
        ("protocol_type", Value::Str("consumer".into())),
        ("generation", Value::Int(generation)),
        ("protocol", Value::Null),
        ("leader", Value::Null),
        ("current_state_timestamp", Value::Int(NOW_MS)),
        ("members", Value::List(vec![])),
    ])
}

/// Group and value of each group that the policy received, by group.
fn loaded(fixture: &TestBroker) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for event in fixture.events() {
        assert_eq!((event.api, event.ticket.0), ("GroupsLoaded", 0));
        let Some(Value::List(groups)) = event.request.field("groups") else { panic!("{event:?}") };
        for group in groups {
            let Some(Value::Str(name)) = group.field("group_id") else { panic!("{group:?}") };
            found.push((name.clone(), group.field("value").unwrap().clone()));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Appends bytes to the partition of [`GROUP`] as somebody else's broker might have.
fn append(fixture: &TestBroker, bytes: &[u8]) {
    let image = fixture.broker.image();
    let partition = image.topic(GROUPS).unwrap().partition(GROUP.1).unwrap();
    partition.local.as_ref().unwrap().log.append_as_leader(bytes).unwrap();
}

/// A batch of offsets of [`GROUP`].
fn batch_of(offsets: &[(i32, Option<i64>)], change: impl FnOnce(&mut BatchFields)) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (partition, offset) in offsets {
        let (mut key, mut value) = (Writer::new(), Writer::new());
        let partition = *partition;
        OffsetCommitKey { group: GROUP.0, topic: TOPIC, partition }.write(1, &mut key);
        let of = OffsetCommitValue { offset: offset.unwrap_or_default(), ..Default::default() };
        of.write(3, &mut value);
        let value = offset.map(|_| value.buf.as_slice());
        builder.add(&NewRecord { timestamp: NOW_MS, key: Some(&key.buf), value, headers: &[] });
    }
    let mut fields = BatchFields::default();
    change(&mut fields);
    builder.to_bytes(&fields).unwrap()
}

#[test]
fn the_newest_commit_survives_a_restart() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    for offset in 0..50 {
        let wanted = [(0, offset, 7, Some("meta")), (1, offset * 2, -1, None)];
        assert_eq!(committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &wanted)), [0, 0]);
        let other = commit(8, &format!("g{offset}"), &[(2, offset, -1, None)]);
        assert_eq!(committed(&mut fixture, &mut conn, &other), [0]);
    }
    let before = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
    let mut fixture = restarted(fixture);
    let mut conn = fixture.connect();
    assert_eq!(ask(&mut fixture, &mut conn, (8, GROUP.0, None)), before);
    assert_eq!(offsets(&before.1), [(0, 49), (1, 98)]);
    for offset in 0..50 {
        let (_, rows) = ask(&mut fixture, &mut conn, (8, &format!("g{offset}"), None));
        assert_eq!(offsets(&rows), [(2, offset)]);
    }
    assert!(fixture.events().is_empty(), "no group has metadata");
}

#[test]
fn the_policy_gets_its_groups_back_and_dropped_offsets_stay_dropped() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    for group in [GROUP.0, "gone", "kept"] {
        committed(&mut fixture, &mut conn, &commit(8, group, &[(0, 3, -1, None)]));
        let at = fixture.broker.append_group_records(
            group,
            &[GroupRecord::Metadata(Some(metadata(1))), GroupRecord::Metadata(Some(metadata(2)))],
        );
        assert!(at.unwrap().is_committed());
    }
    let gone = [GroupRecord::DropOffsets, GroupRecord::Metadata(None)];
    fixture.broker.append_group_records("gone", &gone).unwrap();
    assert_eq!(ask(&mut fixture, &mut conn, (8, "gone", None)), (0, vec![]));
    assert!(fixture.broker.has_offsets("kept") && !fixture.broker.has_offsets("gone"));

    let mut fixture = restarted(fixture);
    let wanted = [(GROUP.0.to_owned(), metadata(2)), ("kept".to_owned(), metadata(2))];
    assert_eq!(loaded(&fixture), wanted);
    let mut conn = fixture.connect();
    assert_eq!(ask(&mut fixture, &mut conn, (8, "gone", None)), (0, vec![]));
    let (_, rows) = ask(&mut fixture, &mut conn, (8, "kept", None));
    assert_eq!(offsets(&rows), [(0, 3)]);
    let mut groups = fixture.broker.groups_with_offsets();
    groups.sort();
    assert_eq!(groups, [GROUP.0, "kept"]);
    // Until the policy has published the members, no request is refused as a stranger's.
    let request = commit_as(8, (GROUP.0, "m", 2), &[(0, 4, -1, None)]);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [14]);
}

#[test]
fn a_group_that_the_policy_lost_is_read_again() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 3, -1, None)]));
    let records = [GroupRecord::Metadata(Some(metadata(5)))];
    fixture.broker.append_group_records(GROUP.0, &records).unwrap();
    // Not what a group's metadata is: nothing is appended.
    let nonsense = [GroupRecord::Metadata(Some(Value::Int(1)))];
    assert!(fixture.broker.append_group_records(GROUP.0, &nonsense).is_err());
    fixture.broker.reload_groups(&["unheard".to_owned()]);
    let mut found = Vec::new();
    until("not all are loaded", || {
        found.extend(loaded(&fixture));
        found.len() >= 2
    });
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let wanted = [(GROUP.0.to_owned(), metadata(5)), ("unheard".to_owned(), Value::Null)];
    assert_eq!(found, wanted);
    assert_eq!(fixture.broker.coordinator_state(GROUP.0), CoordinatorState::Ready);
    let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(0, 3)]);
}

#[test]
fn compressed_batches_and_tombstones_count() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let fixture = fixture();
        append(
            &fixture,
            &batch_of(&[(0, Some(1)), (1, Some(2)), (2, Some(3))], |it| it.codec = codec),
        );
        append(&fixture, &batch_of(&[(1, None), (2, Some(4))], |it| it.codec = codec));
        let mut fixture = restarted(fixture);
        let mut conn = fixture.connect();
        let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
        assert_eq!(offsets(&rows), [(0, 1), (2, 4)]);
    }
}

#[test]
fn a_log_larger_than_one_read_is_replayed_whole() {
    let fixture = fixture();
    for first in (0..100_000).step_by(10_000) {
        let offsets: Vec<_> = (first..first + 10_000).map(|at| (at, Some(1))).collect();
        append(&fixture, &batch_of(&offsets, |_| {}));
    }
    assert!(fixture.log(GROUPS, GROUP.1).len() > 5 << 20);
    let mut fixture = restarted(fixture);
    let mut conn = fixture.connect();
    let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
    assert_eq!(rows.len(), 100_000);
}

#[test]
fn only_commits_of_committed_transactions_count() {
    let fixture = fixture();
    for (producer, commit) in [(1, Some(true)), (2, Some(false)), (3, None)] {
        let partition = i32::try_from(producer).unwrap() - 1;
        append(
            &fixture,
            &batch_of(&[(partition, Some(producer))], |fields| {
                fields.producer_id = producer;
                (fields.producer_epoch, fields.base_sequence) = (0, 0);
                fields.transactional = true;
            }),
        );
        if let Some(commit) = commit {
            let (producer_id, producer_epoch, coordinator_epoch) = (producer, 0, 0);
            let marker =
                EndTransactionMarker { producer_id, producer_epoch, coordinator_epoch, commit };
            append(&fixture, &marker.to_batch(NOW_MS).unwrap());
        }
    }
    let mut fixture = restarted(fixture);
    let mut conn = fixture.connect();
    let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(0, 1)]);
}

#[test]
fn unknown_records_are_skipped() {
    let fixture = fixture();
    let mut builder = BatchBuilder::new();
    for key in [&[0, 3, 0, 1, b'g'][..], &[0, 16], &[0, 99, 1], &[0, 1, 0], &[9], &[]] {
        let value = Some(&[0, 0][..]);
        builder.add(&NewRecord { timestamp: NOW_MS, key: Some(key), value, headers: &[] });
    }
    append(&fixture, &builder.to_bytes(&BatchFields::default()).unwrap());
    append(&fixture, &batch_of(&[(0, Some(1))], |_| {}));
    let mut fixture = restarted(fixture);
    let mut conn = fixture.connect();
    let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(0, 1)]);
}

/// A fixture on what Kafka 3.9.1 left behind.
fn kafkas() -> TestBroker {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kafka-dirs");
    let archive = data.join("kafka-3.9.1-clean.tar.xz");
    let mut tar = Command::new("tar");
    tar.arg("xf").arg(archive).arg("--strip-components=1").arg("-C").arg(dir.path());
    assert!(tar.status().unwrap().success());
    let mut fixture = TestBroker::at(dir, Settings::default());
    let found = fixture.broker.load().unwrap();
    let id = found.iter().find(|it| *it.found.name.topic == *GROUPS).unwrap().found.topic_id;
    fixture.topic_of(GROUPS, id.unwrap_or(TopicId::ZERO), groups_topic());
    wait_until_loaded(&fixture);
    fixture
}

#[test]
fn groups_that_kafka_wrote_are_replayed() {
    let mut fixture = kafkas();
    let mut conn = fixture.connect();
    for group in ["billing", "orders"] {
        let (error, rows) = ask(&mut fixture, &mut conn, (8, group, None));
        assert_eq!((error, rows.len()), (0, 2));
        for (row, partition) in rows.iter().zip(0..) {
            let wanted = ("codec-none".to_owned(), partition, 240, 0, String::new(), 0);
            assert_eq!(*row, wanted, "{group}");
        }
    }
    let (_, rows) = ask(&mut fixture, &mut conn, (8, "x", None));
    assert_eq!(rows.len(), 15, "{rows:?}");
    let groups = loaded(&fixture);
    let names: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["billing", "orders"]);
    for (_, value) in &groups {
        assert_eq!(value.field("generation"), Some(&Value::Int(2)));
        assert_eq!(value.field("members"), Some(&Value::List(vec![])));
        assert_eq!(value.field("protocol"), Some(&Value::Null));
    }
}

/// A batch without what the log puts into it: base offset and leader epoch.
fn as_made(batch: &Batch<'_>) -> Vec<u8> {
    let mut bytes = batch.bytes().to_vec();
    bytes[..8].fill(0);
    bytes[12..16].fill(0);
    bytes
}

fn batches(bytes: &[u8]) -> Vec<Batch<'_>> {
    batch::iter(bytes).collect::<Result<_, _>>().unwrap()
}

#[test]
fn group_records_equal_kafkas_byte_for_byte() {
    let kafkas = kafkas();
    // Each batch of metadata, at the time that Kafka wrote it.
    for (group, partition) in [("billing", 9), ("orders", 31)] {
        let log = kafkas.log(GROUPS, partition);
        let golden = batches(&log);
        for index in [0, golden.len() - 1] {
            let record = golden[index].records().next().unwrap().unwrap();
            let value = GroupMetadataValue::read(record.value.unwrap()).unwrap().unwrap();
            let fixture = fixture();
            fixture.clock.advance(record.timestamp - NOW_MS);
            let records = [GroupRecord::Metadata(Some(value.to_value(3)))];
            fixture.broker.append_group_records(group, &records).unwrap();
            let written = fixture.log(GROUPS, partition);
            assert_eq!(as_made(&batches(&written)[0]), as_made(&golden[index]), "{group} {index}");
        }
    }
    // A simple consumer's commit, of which Kafka took one time for record and value.
    let log = kafkas.log(GROUPS, 20);
    let golden = batches(&log)[6];
    let record = golden.records().next().unwrap().unwrap();
    let value = OffsetCommitValue::read(record.value.unwrap()).unwrap().unwrap();
    assert_eq!(value.commit_timestamp, record.timestamp);
    let mut fixture = TestBroker::new();
    fixture.clock.advance(record.timestamp - NOW_MS);
    fixture.topic(TOPIC, Made::default());
    fixture.topic(GROUPS, groups_topic());
    let mut conn = fixture.connect();
    let request = commit_to("codec-none", &mut fixture);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [0]);
    let written = fixture.log(GROUPS, 20);
    assert_eq!(as_made(&batches(&written)[0]), as_made(&golden));
}

/// The commit of group `x` that Kafka's log has, of another topic than [`TOPIC`].
fn commit_to(topic: &'static str, fixture: &mut TestBroker) -> crate::double::Frame {
    use krust::protocol::offset_commit::{
        OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    };
    fixture.topic(topic, Made { partitions: 2, id: 2, ..Made::default() });
    let partition = OffsetCommitRequestPartition {
        committed_offset: 240,
        committed_leader_epoch: 0,
        ..Default::default()
    };
    let topic =
        OffsetCommitRequestTopic { name: topic, partitions: vec![partition], ..Default::default() };
    let request = OffsetCommitRequest { group_id: "x", topics: vec![topic], ..Default::default() };
    crate::double::frame(8, 8, |writer, version| request.encode(writer, version))
}

#[test]
#[ignore = "a measurement: cargo test --release -- --ignored a_million --nocapture"]
fn a_million_offsets_are_read_in_three_seconds() {
    let fixture = fixture();
    let image = fixture.broker.image();
    let topic = image.topic(GROUPS).unwrap();
    for number in 0..1000 {
        let group = format!("group-{number}");
        let partition = topic.partition(number % 50).unwrap();
        let mut builder = BatchBuilder::new();
        for partition in 0..1000 {
            let (mut key, mut value) = (Writer::new(), Writer::new());
            let metadata = "0123456789";
            OffsetCommitKey { group: &group, topic: TOPIC, partition }.write(1, &mut key);
            OffsetCommitValue { metadata, ..Default::default() }.write(3, &mut value);
            let (key, value) = (Some(key.buf.as_slice()), Some(value.buf.as_slice()));
            builder.add(&NewRecord { timestamp: NOW_MS, key, value, headers: &[] });
        }
        let bytes = builder.to_bytes(&BatchFields::default()).unwrap();
        partition.local.as_ref().unwrap().log.append_as_leader(&bytes).unwrap();
    }
    drop((image.clone(), topic));
    let mut fixture = fixture.again();
    let start = Instant::now();
    create_topics(&mut fixture);
    while fixture.broker.groups_loading() {
        std::thread::yield_now();
    }
    let elapsed = start.elapsed();
    assert_eq!(fixture.broker.groups_with_offsets().len(), 1000);
    println!("1,000,000 offsets in {elapsed:?}");
    assert!(elapsed.as_secs() < 3);
}
