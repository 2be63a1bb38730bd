//! Partitions move to another leader and back: waiting requests are answered, and no file is lost.

use std::collections::HashSet;
use std::path::PathBuf;

use krust::broker::image::{BrokerImage, Endpoint, PartitionState, TopicDelta, TopicSettings};
use krust::broker::{CoordinatorState, MetadataDelta, ReplicaRole};
use krust::ids::{Epoch, TopicId, TopicPartition};
use krust::protocol::metadata::{MetadataRequest, MetadataResponse};
use krust::protocol::value::Value;
use krust::storage::LogConfig;
use krust::wire::Reader;

use crate::double::{Made, TestBroker, frame};
use crate::groups::{GROUP, GROUPS, commit, create_topics, groups_topic};
use crate::records::{Fetch, TOPIC, batch, fetched, get, produce, produced};

const NOT_LEADER: i16 = 6;

/// A topic whose partitions are led by these, with these replicas.
fn topic_led_by(id: u8, partitions: &[(i32, i32, &[i32])], config: LogConfig) -> TopicDelta {
    let state = |&(leader, epoch, replicas): &(i32, i32, &[i32])| PartitionState {
        leader,
        leader_epoch: Epoch(epoch),
        isr: replicas.to_vec(),
        replicas: replicas.to_vec(),
        partition_epoch: epoch,
    };
    TopicDelta {
        id: TopicId([id; 16]),
        internal: false,
        settings: TopicSettings { log: config, ..TopicSettings::default() },
        partitions: (0..).zip(partitions.iter().map(state)).collect(),
    }
}

fn change(fixture: &mut TestBroker, name: &str, topic: Option<TopicDelta>, strays: &[(&str, i32)]) {
    let strays: HashSet<_> = strays.iter().map(|it| TopicPartition::new(it.0, it.1)).collect();
    fixture.apply(MetadataDelta {
        topics: vec![(name.into(), topic)],
        strays,
        ..MetadataDelta::default()
    });
}

/// The directories of partitions, by how their names end.
fn kept(fixture: &TestBroker) -> Vec<String> {
    let mut names: Vec<String> = fixture
        .broker
        .load()
        .unwrap()
        .iter()
        .map(|each| (format!("{:?}", each.found.kind), PathBuf::from(&each.found.path)))
        .filter(|(_, path)| path.is_dir())
        .map(|(kind, _)| kind)
        .collect();
    names.sort();
    names
}

#[test]
fn waiting_requests_are_answered_when_the_leader_leaves() {
    let mut fixture = TestBroker::new();
    let mut made = Made::default();
    made.config.ack_flush = true;
    fixture.topic(TOPIC, made.clone());
    let (mut reader, mut writer) = (fixture.connect(), fixture.connect());
    let poll = Fetch { version: 10, max_wait_ms: 60_000, ..Fetch::default() }.of(&[0]);
    fixture.event(&mut reader, std::slice::from_ref(&poll.bytes));
    let write = produce(9, -1, &batch(&["a"]));
    change(&mut fixture, TOPIC, Some(topic_led_by(1, &[(-1, 1, &[0])], made.config.clone())), &[]);
    fixture.turn(&mut [&mut reader, &mut writer]);
    assert_eq!(fetched(10, &reader.reply(&poll)).2[0].1, NOT_LEADER);
    let reply = fixture.ask(&mut writer, &write);
    assert_eq!(produced(9, &reply).0, NOT_LEADER);
    change(&mut fixture, TOPIC, Some(topic_led_by(1, &[(0, 2, &[0])], made.config)), &[]);
    fixture.event(&mut writer, std::slice::from_ref(&write.bytes));
    fixture.turn_until_sent(&mut writer);
    assert_eq!(produced(9, &writer.reply(&write)).0, 0);
    assert_eq!(get(&mut fixture, &mut reader, Fetch::default()).1, 1);
}

#[test]
fn a_replica_that_left_is_deleted_or_kept_as_a_stray() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 3, ..Made::default() });
    let mut conn = fixture.connect();
    fixture.ask(&mut conn, &produce(9, 1, &batch(&["a"])));
    assert_eq!(kept(&fixture), ["Live"]);
    let config = LogConfig::default();
    let away: &[(i32, i32, &[i32])] = &[(1, 1, &[1]), (0, 0, &[0]), (0, 0, &[0])];
    change(&mut fixture, TOPIC, Some(topic_led_by(1, away, config.clone())), &[(TOPIC, 0)]);
    assert_eq!(kept(&fixture), ["Stray"]);
    let back: &[(i32, i32, &[i32])] = &[(0, 2, &[0]), (0, 0, &[0]), (0, 0, &[0])];
    change(&mut fixture, TOPIC, Some(topic_led_by(1, back, config.clone())), &[]);
    fixture.ask(&mut conn, &produce(9, 1, &batch(&["b"])));
    assert_eq!(kept(&fixture), ["Live", "Stray"]);
    change(&mut fixture, TOPIC, Some(topic_led_by(1, away, config)), &[]);
    assert_eq!(kept(&fixture), ["Stray"]);
}

#[test]
fn a_topic_created_again_does_not_take_the_files_of_its_predecessor() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    fixture.ask(&mut conn, &produce(9, 1, &batch(&["a"])));
    drop(conn);
    let mut fixture = fixture.again();
    change(&mut fixture, TOPIC, Some(topic_led_by(2, &[(0, 0, &[0])], LogConfig::default())), &[]);
    let mut conn = fixture.connect();
    assert_eq!(get(&mut fixture, &mut conn, Fetch::default()).1, 0);
    assert_eq!(kept(&fixture), ["Stray"]);
    let mut fixture = fixture.again();
    fixture.topic("other", Made::default());
    change(&mut fixture, "other", None, &[(TOPIC, 0), ("nowhere", 3)]);
    assert_eq!(kept(&fixture), ["Stray"], "what nobody opened, too");
}

#[test]
fn groups_leave_with_their_partition_and_come_back_with_it() {
    let mut fixture = TestBroker::new();
    create_topics(&mut fixture);
    let mut conn = fixture.connect();
    fixture.ask(&mut conn, &commit(2, GROUP.0, &[(0, 5, -1, None)]));
    fixture.broker.reload_groups(&[GROUP.0.to_owned()]);
    let state = |leader: i32| -> Vec<(i32, i32, &'static [i32])> {
        (0..50).map(|at| (if at == GROUP.1 { leader } else { 0 }, 1, [0].as_slice())).collect()
    };
    let config = groups_topic().config;
    change(&mut fixture, GROUPS, Some(topic_led_by(9, &state(-1), config.clone())), &[]);
    assert_eq!(fixture.broker.coordinator_state(GROUP.0), CoordinatorState::NotHere);
    fixture.events();
    fixture.broker.reload_groups(&[GROUP.0.to_owned()]);
    let event = fixture.events().remove(0);
    let named = Value::List(vec![Value::Str(GROUP.0.into())]);
    assert_eq!((event.api, event.request.field("groups")), ("GroupsUnloaded", Some(&named)));
    change(&mut fixture, GROUPS, Some(topic_led_by(9, &state(0), config)), &[]);
    crate::groups::wait_until_loaded(&fixture);
    assert!(fixture.broker.has_offsets(GROUP.0));
}

#[test]
fn brokers_are_listed_by_the_listener_that_asks() {
    let mut fixture = TestBroker::new();
    let broker = |id, listener: &str, port| BrokerImage {
        id,
        rack: None,
        endpoints: vec![Endpoint { listener: listener.into(), host: "far".into(), port }],
    };
    let own = BrokerImage { id: 0, rack: None, endpoints: Vec::new() };
    let brokers = vec![own, broker(1, "PLAINTEXT", 91), broker(2, "OTHER", 92)];
    fixture.apply(MetadataDelta {
        brokers: Some(brokers),
        controller_id: Some(1),
        ..MetadataDelta::default()
    });
    let mut conn = fixture.connect();
    let request = MetadataRequest { topics: None, ..Default::default() };
    let request = frame(3, 8, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(&mut conn, &request);
    let response = MetadataResponse::decode(&mut Reader::new(&reply), 8).unwrap();
    let brokers: Vec<_> = response.brokers.iter().map(|it| (it.node_id, it.port)).collect();
    assert_eq!((response.controller_id, brokers), (1, vec![(0, 9092), (1, 91)]));
}

#[test]
fn a_broker_without_metadata_sends_clients_to_others() {
    let mut fixture = TestBroker::new();
    fixture.apply(MetadataDelta { waits: Some(true), ..MetadataDelta::default() });
    let request = MetadataRequest { topics: None, ..Default::default() };
    let request = frame(3, 8, |writer, version| request.encode(writer, version));
    let mut conn = fixture.connect();
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert_eq!((conn.flow, conn.sent.len()), (krust::broker::Flow::Close, 0));
    fixture.apply(MetadataDelta { waits: Some(false), ..MetadataDelta::default() });
    let mut conn = fixture.connect();
    assert!(!fixture.ask(&mut conn, &request).is_empty());
}

#[test]
fn a_topic_that_was_not_opened_is_deleted() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    fixture.ask(&mut conn, &produce(9, 1, &batch(&["a"])));
    drop(conn);
    let mut fixture = fixture.again();
    assert_eq!(kept(&fixture), ["Live"]);
    change(&mut fixture, "another", None, &[]);
    assert_eq!(kept(&fixture), ["Live"]);
    change(&mut fixture, TOPIC, None, &[]);
    assert!(kept(&fixture).is_empty());
}

#[test]
fn a_delta_changes_the_partitions_it_names_and_no_other() {
    let mut fixture = TestBroker::new();
    let whole = topic_led_by(7, &[(0, 3, &[0]), (0, 3, &[0]), (1, 4, &[1])], LogConfig::default());
    change(&mut fixture, TOPIC, Some(whole.clone()), &[]);
    let before = fixture.broker.image();
    let only = |number: usize, partition| {
        let mut delta = topic_led_by(7, &[partition], LogConfig::default());
        delta.partitions[0].0 = number as i32;
        Some(delta)
    };
    change(&mut fixture, TOPIC, only(1, (1, 5, &[1, 0])), &[]);
    let after = fixture.broker.image();
    let topic = after.topic(TOPIC).unwrap();
    let epochs: Vec<_> = topic.partitions.iter().map(|it| it.state.partition_epoch).collect();
    assert_eq!(epochs, [3, 5, 4]);
    let role = |number| topic.partition(number).unwrap().local.as_ref().map(|it| it.role());
    assert_eq!(role(0), Some(ReplicaRole::SoleLeader));
    assert_eq!(role(1), Some(ReplicaRole::Follower));
    assert_eq!(role(2), None);
    let old = before.topic(TOPIC).unwrap().partition(1).unwrap().local.clone().unwrap();
    assert!(std::sync::Arc::ptr_eq(&old, topic.partition(1).unwrap().local.as_ref().unwrap()));
    change(&mut fixture, TOPIC, only(3, (0, 0, &[0])), &[]);
    change(&mut fixture, TOPIC, only(9, (0, 0, &[0])), &[]);
    assert_eq!(fixture.broker.image().topic(TOPIC).unwrap().partitions.len(), 4, "no gap");
    change(&mut fixture, TOPIC, None, &[]);
    assert_eq!(old.role(), ReplicaRole::Removed);
}

#[test]
fn the_high_watermark_never_falls_while_a_partition_is_led() {
    let mut fixture = TestBroker::new();
    change(&mut fixture, TOPIC, Some(topic_led_by(7, &[(0, 3, &[0])], LogConfig::default())), &[]);
    let mut conn = fixture.connect();
    fixture.ask(&mut conn, &produce(9, 1, &batch(&["a", "b"])));
    let image = fixture.broker.image();
    let log = &image.topic(TOPIC).unwrap().partition(0).unwrap().local.as_ref().unwrap().log;
    assert_eq!(log.high_watermark(), log.log_end_offset());
    assert_eq!(log.raise_high_watermark(log.log_start_offset()), log.log_end_offset());
}
