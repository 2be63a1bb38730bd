//! Offsets are removed when they expire, and the policy learns of groups that have none left.

use krust::broker::{Event, GroupKind, GroupRecord, GroupSnapshot, GroupState};
use krust::protocol::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use krust::protocol::value::Value;
use krust::record::batch;
use krust::storage::LogConfig;

use crate::double::{Conn, Frame, Made, NOW_MS, TestBroker, frame};
use crate::groups::{
    GROUP, GROUPS, ask, commit, committed, create_topics, fixture, groups_topic, offsets,
    wait_until_loaded,
};
use crate::members::{member, publish_row, row, store};
use crate::records::TOPIC;

const WEEK_MS: i64 = 7 * 24 * 3_600_000;

fn named(events: &[Event]) -> Vec<(&str, Option<&Value>)> {
    events.iter().map(|event| (event.api, event.request.field("group_id"))).collect()
}

fn with_retention(retention_time_ms: i64) -> Frame {
    let partition = OffsetCommitRequestPartition { committed_offset: 7, ..Default::default() };
    let topic =
        OffsetCommitRequestTopic { name: TOPIC, partitions: vec![partition], ..Default::default() };
    let group_id = GROUP.0;
    let topics = vec![topic];
    let request = OffsetCommitRequest { group_id, retention_time_ms, topics, ..Default::default() };
    frame(8, 2, |writer, version| request.encode(writer, version))
}

#[test]
fn a_simple_consumers_offset_lives_from_its_commit() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    fixture.clock.advance(WEEK_MS - 1);
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(1, 2, -1, None)]));
    fixture.broker.expire_offsets();
    let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(0, 1), (1, 2)]);
    fixture.clock.advance(1);
    fixture.broker.expire_offsets();
    let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(1, 2)]);
    assert!(fixture.events().is_empty());

    fixture.clock.advance(WEEK_MS);
    fixture.broker.expire_offsets();
    assert_eq!(ask(&mut fixture, &mut conn, (8, GROUP.0, None)), (0, vec![]));
    let group = Value::Str(GROUP.0.into());
    assert_eq!(named(&fixture.events()), [("OffsetsExpired", Some(&group))]);
    let mut again = fixture.again();
    create_topics(&mut again);
    let mut conn = again.connect();
    assert_eq!(ask(&mut again, &mut conn, (8, GROUP.0, None)), (0, vec![]), "tombstones were kept");
}

#[test]
fn an_old_client_sets_the_retention_of_its_commit() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &with_retention(1000));
    let mut fixture = restarted(fixture);
    let mut conn = fixture.connect();
    for (wait_ms, expected) in [(999, 1), (1, 0)] {
        fixture.clock.advance(wait_ms);
        fixture.broker.expire_offsets();
        let (_, rows) = ask(&mut fixture, &mut conn, (8, GROUP.0, None));
        assert_eq!(rows.len(), expected);
    }
}

/// The offsets of [`GROUP`] that a round leaves, after so much time.
fn left(fixture: &mut TestBroker, conn: &mut Conn, wait_ms: i64) -> Vec<(i32, i64)> {
    fixture.clock.advance(wait_ms);
    fixture.broker.expire_offsets();
    let (_, rows) = ask(fixture, conn, (8, GROUP.0, None));
    offsets(&rows)
}

#[test]
fn an_empty_groups_offset_lives_from_its_last_member_or_its_commit() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    store(&fixture);
    publish_row(&fixture, Some(row(GroupState::Stable, vec![member("m")])));
    assert_eq!(left(&mut fixture, &mut conn, 2 * WEEK_MS), [(0, 1)], "who subscribes is not known");
    let since_ms = NOW_MS + 2 * WEEK_MS;
    publish_row(&fixture, Some(GroupSnapshot { since_ms, ..row(GroupState::Empty, vec![]) }));
    assert_eq!(left(&mut fixture, &mut conn, WEEK_MS - 1), [(0, 1)]);
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(1, 2, -1, None)]));
    assert!(fixture.events().is_empty());
    assert_eq!(left(&mut fixture, &mut conn, 1), [(1, 2)]);
    assert!(fixture.events().is_empty(), "it has an offset left");
    assert_eq!(left(&mut fixture, &mut conn, WEEK_MS), []);
    let group = Value::Str(GROUP.0.into());
    assert_eq!(named(&fixture.events()), [("OffsetsExpired", Some(&group))]);
}

#[test]
fn an_empty_group_that_never_committed_is_named_at_once() {
    let fixture = fixture();
    store(&fixture);
    publish_row(&fixture, Some(row(GroupState::Empty, vec![])));
    fixture.broker.expire_offsets();
    let group = Value::Str(GROUP.0.into());
    assert_eq!(named(&fixture.events()), [("OffsetsExpired", Some(&group))]);
}

#[test]
fn a_stable_group_loses_offsets_of_topics_it_does_not_subscribe_to() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    let stable = |topics: &[&str]| GroupSnapshot {
        subscribed: Some(topics.iter().map(ToString::to_string).collect()),
        ..row(GroupState::Stable, vec![member("m")])
    };
    publish_row(&fixture, Some(stable(&[TOPIC])));
    assert_eq!(left(&mut fixture, &mut conn, 2 * WEEK_MS), [(0, 1)]);
    let moving = GroupSnapshot { state: GroupState::PreparingRebalance, ..stable(&["another"]) };
    publish_row(&fixture, Some(moving));
    assert_eq!(left(&mut fixture, &mut conn, 0), [(0, 1)], "a rebalance may bring it back");
    publish_row(&fixture, Some(stable(&["another"])));
    assert_eq!(left(&mut fixture, &mut conn, 0), []);
    assert!(fixture.events().is_empty(), "a group with members stays");
}

#[test]
fn a_consumer_groups_offsets_live_from_their_commits_in_each_state() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let kind = GroupKind::Consumer { heartbeat_interval_ms: 5000 };
    let group = |state, topics: &[&str]| GroupSnapshot {
        kind,
        subscribed: Some(topics.iter().map(ToString::to_string).collect()),
        ..row(state, vec![])
    };
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    publish_row(&fixture, Some(group(GroupState::Reconciling, &[TOPIC])));
    assert_eq!(left(&mut fixture, &mut conn, WEEK_MS), [(0, 1)], "somebody subscribes");
    publish_row(&fixture, Some(group(GroupState::Assigning, &["another"])));
    assert_eq!(left(&mut fixture, &mut conn, 0), []);

    publish_row(&fixture, Some(group(GroupState::Empty, &[])));
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    fixture.events();
    assert_eq!(left(&mut fixture, &mut conn, WEEK_MS - 1), [(0, 1)]);
    let since_ms = NOW_MS + 2 * WEEK_MS;
    publish_row(&fixture, Some(GroupSnapshot { since_ms, ..group(GroupState::Empty, &[]) }));
    assert_eq!(left(&mut fixture, &mut conn, 1), [], "when the last member left does not count");
    assert_eq!(named(&fixture.events()).len(), 1);
}

#[test]
fn tombstones_that_one_batch_cannot_hold_take_several() {
    let create_topics = |fixture: &mut TestBroker| {
        fixture.topic(TOPIC, Made { partitions: 100, ..Made::default() });
        let made = groups_topic();
        let config = LogConfig { max_message_bytes: 1000, ..made.config };
        fixture.topic(GROUPS, Made { config, ..made });
        wait_until_loaded(fixture);
    };
    let mut fixture = TestBroker::new();
    create_topics(&mut fixture);
    let mut conn = fixture.connect();
    for drop in [|fixture: &TestBroker| fixture.broker.expire_offsets(), drop_offsets] {
        let before = fixture.log(GROUPS, GROUP.1).len();
        for first in (0..100).step_by(5) {
            let wanted: Vec<_> = (first..first + 5).map(|at| (at, 1, -1, None)).collect();
            committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &wanted));
        }
        fixture.clock.advance(WEEK_MS);
        drop(&fixture);
        assert_eq!(ask(&mut fixture, &mut conn, (8, GROUP.0, None)), (0, vec![]));
        let log = fixture.log(GROUPS, GROUP.1);
        let batches: Vec<_> = batch::iter(&log[before..]).map(Result::unwrap).collect();
        assert!(batches.len() > 21 && batches.iter().all(|batch| batch.size() <= 1000));
    }
    let mut again = fixture.again();
    create_topics(&mut again);
    let mut conn = again.connect();
    assert_eq!(ask(&mut again, &mut conn, (8, GROUP.0, None)), (0, vec![]));
}

#[test]
fn more_offsets_than_a_slice_holds_expire_in_one_round_and_their_group_is_named_once() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions: 1_300, ..Made::default() });
    fixture.topic(GROUPS, Made { partitions: 1, ..groups_topic() });
    wait_until_loaded(&fixture);
    let mut conn = fixture.connect();
    let all: Vec<_> = (0..1_300).map(|partition| (partition, 1, -1, None)).collect();
    committed(&mut fixture, &mut conn, &commit(8, "other", &all));
    fixture.clock.advance(WEEK_MS);
    committed(&mut fixture, &mut conn, &commit(8, GROUP.0, &all));
    fixture.clock.advance(WEEK_MS - 1);
    fixture.broker.expire_offsets();
    let other = Value::Str("other".into());
    assert_eq!(named(&fixture.events()), [("OffsetsExpired", Some(&other))]);
    assert_eq!(ask(&mut fixture, &mut conn, (8, "other", None)).1.len(), 0);
    assert_eq!(ask(&mut fixture, &mut conn, (8, GROUP.0, None)).1.len(), 1_300);
    let deleted =
        krust::broker::MetadataDelta { topics: vec![(TOPIC.into(), None)], ..Default::default() };
    fixture.apply(deleted);
    assert_eq!(ask(&mut fixture, &mut conn, (8, GROUP.0, None)).1.len(), 0);
}

fn drop_offsets(fixture: &TestBroker) {
    fixture.broker.append_group_records(GROUP.0, &[GroupRecord::DropOffsets]).unwrap();
}

fn restarted(fixture: TestBroker) -> TestBroker {
    let mut fixture = fixture.again();
    create_topics(&mut fixture);
    fixture
}
