//! Offsets go when their time is up, and the policy hears of groups that have none left.

use krust::broker::{Event, FenceRow, FenceState, GroupKind, GroupRecord};
use krust::protocol::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use krust::protocol::value::Value;
use krust::record::batch;
use krust::storage::LogConfig;

use crate::double::{Conn, Frame, House, Made, NOW_MS, frame};
use crate::groups::{
    GROUP, GROUPS, ask, commit, committed, furnish, groups_topic, house, offsets, wait_until_loaded,
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
    let mut house = house();
    let mut conn = house.connect();
    committed(&mut house, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    house.clock.advance(WEEK_MS - 1);
    committed(&mut house, &mut conn, &commit(8, GROUP.0, &[(1, 2, -1, None)]));
    house.broker.expire_offsets();
    let (_, rows) = ask(&mut house, &mut conn, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(0, 1), (1, 2)]);
    house.clock.advance(1);
    house.broker.expire_offsets();
    let (_, rows) = ask(&mut house, &mut conn, (8, GROUP.0, None));
    assert_eq!(offsets(&rows), [(1, 2)]);
    assert!(house.events().is_empty());

    house.clock.advance(WEEK_MS);
    house.broker.expire_offsets();
    assert_eq!(ask(&mut house, &mut conn, (8, GROUP.0, None)), (0, vec![]));
    let group = Value::Str(GROUP.0.into());
    assert_eq!(named(&house.events()), [("OffsetsExpired", Some(&group))]);
    let mut again = house.again();
    furnish(&mut again);
    let mut conn = again.connect();
    assert_eq!(ask(&mut again, &mut conn, (8, GROUP.0, None)), (0, vec![]), "tombstones were kept");
}

#[test]
fn an_old_client_says_itself_how_long() {
    let mut house = house();
    let mut conn = house.connect();
    committed(&mut house, &mut conn, &with_retention(1000));
    let mut house = restarted(house);
    let mut conn = house.connect();
    for (wait_ms, expected) in [(999, 1), (1, 0)] {
        house.clock.advance(wait_ms);
        house.broker.expire_offsets();
        let (_, rows) = ask(&mut house, &mut conn, (8, GROUP.0, None));
        assert_eq!(rows.len(), expected);
    }
}

/// The offsets of [`GROUP`] that a round leaves, after so much time.
fn left(house: &mut House, conn: &mut Conn, wait_ms: i64) -> Vec<(i32, i64)> {
    house.clock.advance(wait_ms);
    house.broker.expire_offsets();
    let (_, rows) = ask(house, conn, (8, GROUP.0, None));
    offsets(&rows)
}

#[test]
fn an_empty_groups_offset_lives_from_its_last_member_or_its_commit() {
    let mut house = house();
    let mut conn = house.connect();
    committed(&mut house, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    store(&house);
    publish_row(&house, Some(row(FenceState::Stable, vec![member("m")])));
    assert_eq!(left(&mut house, &mut conn, 2 * WEEK_MS), [(0, 1)], "who subscribes is not known");
    let since_ms = NOW_MS + 2 * WEEK_MS;
    publish_row(&house, Some(FenceRow { since_ms, ..row(FenceState::Empty, vec![]) }));
    assert_eq!(left(&mut house, &mut conn, WEEK_MS - 1), [(0, 1)]);
    committed(&mut house, &mut conn, &commit(8, GROUP.0, &[(1, 2, -1, None)]));
    assert!(house.events().is_empty());
    assert_eq!(left(&mut house, &mut conn, 1), [(1, 2)]);
    assert!(house.events().is_empty(), "it has an offset left");
    assert_eq!(left(&mut house, &mut conn, WEEK_MS), []);
    let group = Value::Str(GROUP.0.into());
    assert_eq!(named(&house.events()), [("OffsetsExpired", Some(&group))]);
}

#[test]
fn an_empty_group_that_never_committed_is_named_at_once() {
    let house = house();
    store(&house);
    publish_row(&house, Some(row(FenceState::Empty, vec![])));
    house.broker.expire_offsets();
    let group = Value::Str(GROUP.0.into());
    assert_eq!(named(&house.events()), [("OffsetsExpired", Some(&group))]);
}

#[test]
fn of_a_stable_group_only_topics_go_that_nobody_subscribes_to() {
    let mut house = house();
    let mut conn = house.connect();
    committed(&mut house, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    let stable = |topics: &[&str]| FenceRow {
        subscribed: Some(topics.iter().map(ToString::to_string).collect()),
        ..row(FenceState::Stable, vec![member("m")])
    };
    publish_row(&house, Some(stable(&[TOPIC])));
    assert_eq!(left(&mut house, &mut conn, 2 * WEEK_MS), [(0, 1)]);
    let moving = FenceRow { state: FenceState::PreparingRebalance, ..stable(&["another"]) };
    publish_row(&house, Some(moving));
    assert_eq!(left(&mut house, &mut conn, 0), [(0, 1)], "a rebalance may bring it back");
    publish_row(&house, Some(stable(&["another"])));
    assert_eq!(left(&mut house, &mut conn, 0), []);
    assert!(house.events().is_empty(), "a group with members stays");
}

#[test]
fn a_consumer_groups_offsets_live_from_their_commits_in_each_state() {
    let mut house = house();
    let mut conn = house.connect();
    let kind = GroupKind::Consumer { heartbeat_interval_ms: 5000 };
    let group = |state, topics: &[&str]| FenceRow {
        kind,
        subscribed: Some(topics.iter().map(ToString::to_string).collect()),
        ..row(state, vec![])
    };
    committed(&mut house, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    publish_row(&house, Some(group(FenceState::Reconciling, &[TOPIC])));
    assert_eq!(left(&mut house, &mut conn, WEEK_MS), [(0, 1)], "somebody subscribes");
    publish_row(&house, Some(group(FenceState::Assigning, &["another"])));
    assert_eq!(left(&mut house, &mut conn, 0), []);

    publish_row(&house, Some(group(FenceState::Empty, &[])));
    committed(&mut house, &mut conn, &commit(8, GROUP.0, &[(0, 1, -1, None)]));
    house.events();
    assert_eq!(left(&mut house, &mut conn, WEEK_MS - 1), [(0, 1)]);
    let since_ms = NOW_MS + 2 * WEEK_MS;
    publish_row(&house, Some(FenceRow { since_ms, ..group(FenceState::Empty, &[]) }));
    assert_eq!(left(&mut house, &mut conn, 1), [], "when the last member left does not count");
    assert_eq!(named(&house.events()).len(), 1);
}

#[test]
fn tombstones_that_one_batch_cannot_hold_take_several() {
    let furnish = |house: &mut House| {
        house.topic(TOPIC, Made { partitions: 100, ..Made::default() });
        let made = groups_topic();
        let config = LogConfig { max_message_bytes: 1000, ..made.config };
        house.topic(GROUPS, Made { config, ..made });
        wait_until_loaded(house);
    };
    let mut house = House::new();
    furnish(&mut house);
    let mut conn = house.connect();
    for drop in [|house: &House| house.broker.expire_offsets(), drop_offsets] {
        let before = house.log(GROUPS, GROUP.1).len();
        for first in (0..100).step_by(5) {
            let wanted: Vec<_> = (first..first + 5).map(|at| (at, 1, -1, None)).collect();
            committed(&mut house, &mut conn, &commit(8, GROUP.0, &wanted));
        }
        house.clock.advance(WEEK_MS);
        drop(&house);
        assert_eq!(ask(&mut house, &mut conn, (8, GROUP.0, None)), (0, vec![]));
        let log = house.log(GROUPS, GROUP.1);
        let batches: Vec<_> = batch::iter(&log[before..]).map(Result::unwrap).collect();
        assert!(batches.len() > 21 && batches.iter().all(|batch| batch.size() <= 1000));
    }
    let mut again = house.again();
    furnish(&mut again);
    let mut conn = again.connect();
    assert_eq!(ask(&mut again, &mut conn, (8, GROUP.0, None)), (0, vec![]));
}

fn drop_offsets(house: &House) {
    house.broker.append_group_records(GROUP.0, &[GroupRecord::DropOffsets]).unwrap();
}

fn restarted(house: House) -> House {
    let mut house = house.again();
    furnish(&mut house);
    house
}
