//! Records of consumer groups are Kafka's byte for byte, and the policy gets them back unchanged.

use std::path::Path;

use krust::broker::{GroupOutcome, GroupRecord};
use krust::ids::TopicId;
use krust::protocol::value::Value;
use krust::record::batch::{self, Batch, BatchBuilder, BatchFields, NewRecord};

use crate::double::{NOW_MS, TestBroker, map, until};
use crate::groups::{
    GROUP, GROUPS, ask, commit, commit_as, committed, create_topics, fixture, offsets,
};
use crate::members::metadata;

/// Kafka 4.3's own bytes of a record of group `g`.
struct Golden {
    kind: i16,
    key: &'static str,
    value: &'static str,
}

/// Written by the classes of `org.apache.kafka.coordinator.group.generated`.
const GOLDEN: [Golden; 10] = [
    Golden { kind: 3, key: "0003000167", value: "0000000000070100081122334455667788" },
    Golden { kind: 3, key: "0003000167", value: "00000000000700" },
    Golden {
        kind: 4,
        key: "0004000167",
        value: "0000020102030405060708090a0b0c0d0e0f100274000000030200000001020272000000",
    },
    Golden {
        kind: 5,
        key: "000500016700016d",
        value: "00000269000263032f6802027404742e2a000013880672616e676501000100",
    },
    Golden {
        kind: 5,
        key: "000500016700016d",
        value: "00000002720263032f68020274000000138800010011010000afc8020672616e67650301020000",
    },
    Golden { kind: 6, key: "0006000167", value: "0000000000070100080000018bcfe56800" },
    Golden {
        kind: 7,
        key: "000700016700016d",
        value: "0000020102030405060708090a0b0c0d0e0f100300000000000000010000",
    },
    Golden {
        kind: 8,
        key: "000800016700016d",
        value: "0000000000070000000601020102030405060708090a0b0c0d0e0f10020000000001000502000000\
                07020102030405060708090a0b0c0d0e0f1002000000010000",
    },
    Golden {
        kind: 8,
        key: "000800016700016d",
        value: "0000000000070000000600020102030405060708090a0b0c0d0e0f100200000000010001000100",
    },
    Golden {
        kind: 16,
        key: "00100001670003742e2a",
        value: "0000020274000000000000000c0000018bcfe5680000",
    },
];

fn int(value: i64) -> Value {
    Value::Int(value)
}

fn text(value: &str) -> Value {
    Value::Str(value.into())
}

fn list(values: Vec<Value>) -> Value {
    Value::List(values)
}

fn id() -> Value {
    Value::Uuid(TopicId(std::array::from_fn(|at| u8::try_from(at + 1).unwrap())))
}

fn of_member() -> Value {
    map(vec![("member_id", text("m"))])
}

/// The same records as [`GOLDEN`], as the policy writes them.
fn values() -> [(Value, Value); 10] {
    let group = || map(vec![]);
    let topic = |partitions: Vec<i64>, epochs: Option<Value>| {
        let partitions = list(partitions.into_iter().map(int).collect());
        let mut fields = vec![("topic_id", id()), ("partitions", partitions)];
        fields.extend(epochs.map(|epochs| ("assignment_epochs", epochs)));
        list(vec![map(fields)])
    };
    let member = |instance, rack, regex, assignor| {
        vec![
            ("instance_id", instance),
            ("rack_id", rack),
            ("client_id", text("c")),
            ("client_host", text("/h")),
            ("subscribed_topic_names", list(vec![text("t")])),
            ("subscribed_topic_regex", regex),
            ("rebalance_timeout_ms", int(5000)),
            ("server_assignor", assignor),
        ]
    };
    let of_partition = map(vec![("partition", int(1)), ("racks", list(vec![text("r")]))]);
    let of_topic = map(vec![
        ("topic_id", id()),
        ("topic_name", text("t")),
        ("num_partitions", int(3)),
        ("partition_metadata", list(vec![of_partition])),
    ]);
    let protocol = map(vec![("name", text("range")), ("metadata", Value::Bytes(vec![1, 2]))]);
    let classic = map(vec![
        ("session_timeout_ms", int(45000)),
        ("supported_protocols", list(vec![protocol])),
    ]);
    let mut classic_member = member(Value::Null, text("r"), Value::Null, Value::Null);
    classic_member.push(("classic_member_metadata", classic));
    let mut alone = member(text("i"), Value::Null, text("t.*"), text("range"));
    alone.push(("classic_member_metadata", Value::Null));
    let current = |state, assigned, revoked: Option<Value>| {
        let mut fields = vec![
            ("member_epoch", int(7)),
            ("previous_member_epoch", int(6)),
            ("state", int(state)),
            ("assigned_partitions", assigned),
        ];
        fields.extend(revoked.map(|revoked| ("partitions_pending_revocation", revoked)));
        map(fields)
    };
    let epochs = Some(list(vec![int(7)]));
    [
        (group(), map(vec![("epoch", int(7)), ("metadata_hash", int(0x1122_3344_5566_7788))])),
        (group(), map(vec![("epoch", int(7))])),
        (group(), map(vec![("topics", list(vec![of_topic]))])),
        (of_member(), map(alone)),
        (of_member(), map(classic_member)),
        (group(), map(vec![("assignment_epoch", int(7)), ("assignment_timestamp", int(NOW_MS))])),
        (of_member(), map(vec![("topic_partitions", topic(vec![0, 1], None))])),
        (of_member(), current(1, topic(vec![0], epochs), Some(topic(vec![1], None)))),
        (of_member(), current(0, topic(vec![0], Some(Value::Null)), None)),
        (
            map(vec![("regular_expression", text("t.*"))]),
            map(vec![
                ("topics", list(vec![text("t")])),
                ("version", int(12)),
                ("timestamp", int(NOW_MS)),
            ]),
        ),
    ]
}

fn record(kind: i16, key: Value, value: Option<Value>) -> GroupRecord {
    GroupRecord::Consumer { kind, key, value }
}

fn epoch(epoch: i64) -> GroupRecord {
    record(3, map(vec![]), Some(map(vec![("epoch", int(epoch))])))
}

fn write(fixture: &TestBroker, group_id: &str, records: Vec<GroupRecord>) {
    let records = records.into_iter().map(|record| (group_id.to_owned(), record)).collect();
    let decided = GroupOutcome { records, ..GroupOutcome::default() };
    assert!(fixture.broker.apply_group_outcome(decided).unwrap().is_empty());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Keys and values of a batch, in hex.
fn records(batch: &Batch<'_>) -> Vec<(String, Option<String>)> {
    let one = |record: krust::record::batch::Record<'_>| {
        (hex(record.key.unwrap()), record.value.map(hex))
    };
    batch.records().map(|record| one(record.unwrap())).collect()
}

/// The policy's event when groups are loaded: the classic groups with their values, and the
/// records.
fn loaded(fixture: &TestBroker) -> (Vec<(Value, Value)>, Vec<Value>) {
    let (mut groups, mut records) = (Vec::new(), Vec::new());
    for event in fixture.events() {
        assert_eq!((event.api, event.ticket.0), ("GroupsLoaded", 0));
        let part = |name| match event.request.field(name) {
            Some(Value::List(part)) => part.clone(),
            other => panic!("{other:?}"),
        };
        let field = |group: &Value, name| group.field(name).unwrap().clone();
        let named = part("groups");
        groups.extend(named.iter().map(|it| (field(it, "group_id"), field(it, "value"))));
        records.extend(part("records"));
    }
    (groups, records)
}

fn restarted(fixture: TestBroker) -> TestBroker {
    let mut fixture = fixture.again();
    create_topics(&mut fixture);
    fixture
}

#[test]
fn each_kind_is_written_as_kafka_writes_it() {
    for (golden, (key, value)) in GOLDEN.iter().zip(values()) {
        let fixture = fixture();
        write(&fixture, "g", vec![record(golden.kind, key.clone(), Some(value))]);
        write(&fixture, "g", vec![record(golden.kind, key, None)]);
        let log = fixture.log(GROUPS, 3);
        let batches: Vec<_> = batch::iter(&log).map(Result::unwrap).collect();
        let (key, value) = (golden.key.to_owned(), golden.value.to_owned());
        assert_eq!(records(&batches[0]), [(key.clone(), Some(value))]);
        assert_eq!(records(&batches[1]), [(key, None)]);
        assert_eq!(batches[0].header().base_sequence, 0);
    }
}

#[test]
fn live_records_are_replayed_in_the_order_of_the_log() {
    let fixture = fixture();
    let all = GOLDEN.iter().zip(values()).map(|(it, (key, value))| (it.kind, key, value));
    let all: Vec<_> = all.collect();
    for (kind, key, value) in &all {
        write(&fixture, "g", vec![record(*kind, key.clone(), Some(value.clone()))]);
    }
    write(&fixture, "g", vec![record(16, all[9].1.clone(), None)]);
    write(&fixture, GROUP.0, vec![epoch(1), epoch(2)]);
    write(&fixture, "gone", vec![epoch(1)]);
    write(&fixture, "gone", vec![record(3, map(vec![]), None)]);
    let fixture = restarted(fixture);
    let (groups, found) = loaded(&fixture);
    assert_eq!(groups, []);
    let mut wanted = Vec::new();
    for at in [1, 2, 4, 5, 6, 8] {
        let (kind, key, _) = &all[at];
        wanted.push((text("g"), int((*kind).into()), key.clone()));
    }
    wanted.push((text(GROUP.0), int(3), map(vec![])));
    let mut keys = Vec::new();
    for record in &found {
        let Value::List(parts) = record else { panic!("{record:?}") };
        keys.push((parts[0].clone(), parts[1].clone(), parts[2].clone()));
        // A value that was read is written as it was.
        if parts[0] == text("g") {
            let (Value::Int(kind), key, value) = (&parts[1], &parts[2], &parts[3]) else {
                panic!("{record:?}")
            };
            let kind = i16::try_from(*kind).unwrap();
            write(&fixture, "x", vec![record_of(kind, key, value)]);
        }
    }
    keys.sort_by_key(|(group, ..)| *group == text(GROUP.0));
    assert_eq!(keys, wanted);
    let partition = 20;
    let log = fixture.log(GROUPS, partition);
    let written: Vec<_> = batch::iter(&log).flat_map(|batch| records(&batch.unwrap())).collect();
    let wanted = [1, 2, 4, 5, 6, 8].map(|at| GOLDEN[at].value.to_owned());
    assert_eq!(written.into_iter().map(|(_, value)| value.unwrap()).collect::<Vec<_>>(), wanted);
}

fn record_of(kind: i16, key: &Value, value: &Value) -> GroupRecord {
    record(kind, key.clone(), Some(value.clone()))
}

/// What Kafka 4.3 wrote of group `billing`: a static member with a rack, one with a regular
/// expression and an assignor, a classic one, and a committed offset.
fn kafkas() -> Vec<u8> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    std::fs::read(data.join("consumer-group-4.3.0.log")).unwrap()
}

/// A batch without what the log puts into it: base offset and leader epoch.
fn as_made(batch: &Batch<'_>) -> Vec<u8> {
    let mut bytes = batch.bytes().to_vec();
    bytes[..8].fill(0);
    bytes[12..16].fill(0);
    bytes
}

#[test]
fn a_group_of_kafkas_is_read_and_written_byte_for_byte() {
    let fixture = fixture();
    let image = fixture.broker.image();
    let partition = image.topic(GROUPS).unwrap().partition(GROUP.1).unwrap();
    let log = &partition.local.as_ref().unwrap().log;
    let bytes = kafkas();
    let golden: Vec<_> = batch::iter(&bytes).map(Result::unwrap).collect();
    for batch in &golden {
        log.append_as_leader(batch.bytes()).unwrap();
    }
    drop(image);
    let mut fixture = restarted(fixture);
    let mut conn = fixture.connect();
    let (_, rows) = ask(&mut fixture, &mut conn, (9, GROUP.0, None));
    assert_eq!(rows, [("gold".into(), 0, 7, -1, "meta".into(), 0)]);
    let (groups, found) = loaded(&fixture);
    assert_eq!((groups.len(), found.len()), (0, 12), "{found:#?}");
    // The batch that let the classic member in is all still alive, and in one piece.
    let wanted = golden.iter().find(|batch| batch.header().record_count == 7).unwrap();
    let at = |key: &str| records(wanted).iter().position(|(other, _)| *other == key);
    let again = self::fixture();
    let mut written = vec![None; 7];
    for record in &found {
        let Value::List(parts) = record else { panic!("{record:?}") };
        let Value::Int(kind) = parts[1] else { panic!("{record:?}") };
        let record = record_of(i16::try_from(kind).unwrap(), &parts[2], &parts[3]);
        write(&again, "x", vec![record.clone()]);
        let log = again.log(GROUPS, 20);
        let last = batch::iter(&log).last().unwrap().unwrap();
        // The same key as Kafka's but for the group's name, which is longer there.
        let (key, value) = records(&last).remove(0);
        let key = format!("{}0007{}{}", &key[..4], hex(GROUP.0.as_bytes()), &key[10..]);
        if let Some(at) = at(&key)
            && records(wanted)[at].1 == value
        {
            written[at] = Some(record);
        }
    }
    let written: Vec<_> = written.into_iter().map(Option::unwrap).collect();
    let fixture = self::fixture();
    fixture.clock.advance(wanted.header().base_timestamp - NOW_MS);
    write(&fixture, GROUP.0, written);
    let log = fixture.log(GROUPS, GROUP.1);
    let ours = batch::iter(&log).next().unwrap().unwrap();
    assert_eq!(as_made(&ours), as_made(wanted));
}

#[test]
fn a_change_of_protocol_is_one_batch() {
    let fixture = fixture();
    let [.., (key, value)] = values();
    write(&fixture, GROUP.0, vec![GroupRecord::Metadata(Some(metadata()))]);
    let (tombstone, drop) = (GroupRecord::Metadata(None), GroupRecord::DropOffsets);
    let pattern = record(16, key.clone(), Some(value));
    write(&fixture, GROUP.0, vec![tombstone, epoch(8), pattern, drop]);
    let log = fixture.log(GROUPS, GROUP.1);
    let batches: Vec<_> = batch::iter(&log).map(Result::unwrap).collect();
    assert_eq!((batches.len(), batches[1].header().record_count), (2, 3));

    let fixture = restarted(fixture);
    let (groups, found) = loaded(&fixture);
    assert_eq!((groups.len(), found.len()), (0, 2));
    let back = vec![
        record(3, map(vec![]), None),
        record(16, key, None),
        GroupRecord::Metadata(Some(metadata())),
    ];
    write(&fixture, GROUP.0, back);
    let fixture = restarted(fixture);
    assert_eq!(loaded(&fixture), (vec![(text(GROUP.0), metadata())], vec![]));
}

#[test]
fn a_group_is_loading_until_the_policy_has_replayed_it() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    assert_eq!(committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 3, -1, None)])), [0]);
    write(&fixture, GROUP.0, vec![epoch(2)]);
    let mut fixture = restarted(fixture);
    let mut conn = fixture.connect();
    let request = commit_as(9, (GROUP.0, "m", 2), &[(0, 4, -1, None)]);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [14]);
    let (_, rows) = ask(&mut fixture, &mut conn, (9, GROUP.0, None));
    assert_eq!(offsets(&rows), [(0, 3)], "who is no member may look");
}

#[test]
fn only_the_group_that_the_policy_lost_is_replayed() {
    let fixture = fixture();
    write(&fixture, GROUP.0, vec![epoch(1), epoch(2)]);
    write(&fixture, "g", vec![epoch(5)]);
    for nonsense in [
        record(3, map(vec![]), Some(map(vec![("epoch", text("two"))]))),
        record(3, map(vec![("no such", int(1))]), None),
        record(2, map(vec![]), None),
        record(9, map(vec![]), None),
    ] {
        assert!(fixture.broker.append_group_records(GROUP.0, &[epoch(3), nonsense]).is_err());
        let mut last = (Vec::new(), Vec::new());
        until("it is not read", || {
            last = loaded(&fixture);
            !last.1.is_empty()
        });
        let value = map(vec![("epoch", int(2)), ("metadata_hash", int(0))]);
        let wanted = Value::List(vec![text(GROUP.0), int(3), map(vec![]), value]);
        assert_eq!(last, (vec![(text(GROUP.0), Value::Null)], vec![wanted]));
    }
}

#[test]
fn unreadable_records_are_skipped() {
    let fixture = fixture();
    let mut builder = BatchBuilder::new();
    let value = Some(&[0, 0, 0, 0, 0, 7, 0][..]);
    for (key, value) in [
        (&[0, 3, 0, 7, b'b'][..], value),
        (&[0, 5, 0, 1, b'b'], value),
        (&[0, 3, 0, 1, b'b'], Some(&[0, 9, 1][..])),
        (&[0, 6, 0, 1, b'b'], Some(&[0, 0, 1])),
        (&[0, 11, 0, 1, b'b'], value),
        (&[0, 17, 0, 1, b'b'], value),
        (&[0x7f, 0xff], value),
        (&[0, 3, 0, 1, b'c'], value),
    ] {
        builder.add(&NewRecord { timestamp: NOW_MS, key: Some(key), value, headers: &[] });
    }
    let image = fixture.broker.image();
    let partition = image.topic(GROUPS).unwrap().partition(GROUP.1).unwrap();
    let bytes = builder.to_bytes(&BatchFields::default()).unwrap();
    partition.local.as_ref().unwrap().log.append_as_leader(&bytes).unwrap();
    drop(image);
    let fixture = restarted(fixture);
    let (groups, found) = loaded(&fixture);
    assert_eq!((groups.len(), found.len()), (0, 1), "{found:?}");
}

/// Bytes with one thing wrong: cut anywhere, any byte changed.
fn damaged(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = (0..bytes.len()).map(|at| bytes[..at].to_vec()).collect();
    for at in 0..bytes.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] = byte;
            all.push(changed);
        }
    }
    all
}

#[test]
fn damaged_records_harm_no_other_group() {
    let fixture = fixture();
    let image = fixture.broker.image();
    let partition = image.topic(GROUPS).unwrap().partition(GROUP.1).unwrap();
    let log = &partition.local.as_ref().unwrap().log;
    let (bytes, mut count) = (kafkas(), 0);
    for golden in batch::iter(&bytes).map(Result::unwrap) {
        for record in golden.records().map(Result::unwrap) {
            let (key, value) = (record.key.unwrap(), record.value.unwrap());
            let keys = damaged(key).into_iter().map(|key| (key, value.to_vec()));
            let values = damaged(value).into_iter().map(|value| (key.to_vec(), value));
            let mut builder = BatchBuilder::new();
            for (key, value) in keys.chain(values) {
                let (key, value) = (Some(&*key), Some(&*value));
                builder.add(&NewRecord { timestamp: NOW_MS, key, value, headers: &[] });
                count += 1;
            }
            let bytes = builder.to_bytes(&BatchFields::default()).unwrap();
            log.append_as_leader(&bytes).unwrap();
        }
    }
    assert!(count > 10_000, "{count}");
    drop(image);
    write(&fixture, "g", vec![epoch(5)]);
    let mut fixture = restarted(fixture);
    let (_, found) = loaded(&fixture);
    let healthy = |record: &&Value| matches!(record, Value::List(parts) if parts[0] == text("g"));
    assert_eq!(found.iter().filter(healthy).count(), 1);
    let mut conn = fixture.connect();
    let request = commit(8, "another", &[(0, 3, -1, None)]);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [0]);
}
