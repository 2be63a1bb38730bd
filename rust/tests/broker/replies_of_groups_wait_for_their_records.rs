//! What the policy decides of groups is written, then holds, then is told: in that order.

use krust::broker::image::{PartitionState, TopicDelta, TopicSettings};
use krust::broker::{Decided, Delta, FenceState, Flow, GroupRecord};
use krust::ids::{Epoch, TopicId};
use krust::protocol::value::Value;

use crate::double::{House, map};
use crate::groups::{GROUP, GROUPS, codes, commit, groups_topic, house};
use crate::members::{
    GENERATION, MEMBER, beat, heartbeat, join, joined, member, metadata, replies, row, welcome,
};

/// Says who is in sync with each partition of the topic of groups.
fn in_sync(house: &mut House, isr: &[i32]) {
    let state = PartitionState {
        leader: 0,
        leader_epoch: Epoch(0),
        isr: isr.to_vec(),
        replicas: vec![0, 1],
    };
    let topic = TopicDelta {
        id: TopicId([9; 16]),
        internal: true,
        settings: TopicSettings { log: groups_topic().config, min_insync_replicas: 1 },
        partitions: vec![state; 50],
    };
    house.apply(Delta { topics: vec![(GROUPS.into(), Some(topic))], ..Delta::default() });
}

fn decided(ticket: krust::broker::Ticket) -> Decided {
    Decided {
        records: vec![(GROUP.0.into(), GroupRecord::Metadata(Some(metadata())))],
        fences: vec![(GROUP.0.into(), Some(row(FenceState::Stable, vec![member(MEMBER)])))],
        replies: replies(ticket, welcome(), GROUP.0),
    }
}

#[test]
fn until_these_are_committed() {
    for version in 0..=9 {
        let mut house = house();
        in_sync(&mut house, &[0, 1]);
        let (mut conn, mut other) = (house.connect(), house.connect());
        let request = join(version, GROUP.0, "");
        house.event(&mut conn, std::slice::from_ref(&request.bytes));
        assert_eq!(conn.flow, Flow::Hold);
        let event = house.events().remove(0);
        assert_eq!((event.api, event.version), ("JoinGroup", version));
        assert!(house.broker.coordinate(decided(event.ticket)).unwrap().is_empty());
        house.turn(&mut [&mut conn, &mut other]);
        assert!(conn.is_waiting(), "no other replica has them");
        let good = heartbeat(4, MEMBER, GENERATION);
        assert_eq!(beat(&mut house, &mut other, &good), 0, "the fence holds before the reply");

        let describe = join(version, GROUP.0, "stranger");
        house.event(&mut other, std::slice::from_ref(&describe.bytes));
        let event = house.events().remove(0);
        let read_only =
            Decided { replies: replies(event.ticket, welcome(), GROUP.0), ..Decided::default() };
        assert!(house.broker.coordinate(read_only).unwrap().is_empty());
        house.turn(&mut [&mut conn, &mut other]);
        assert!(other.is_waiting(), "a reply waits for the records it was made from");

        in_sync(&mut house, &[0]);
        house.turn(&mut [&mut conn, &mut other]);
        let wanted = (0, GENERATION, MEMBER.to_owned(), MEMBER.to_owned(), 0);
        assert_eq!(joined(version, &conn.reply(&request)), wanted);
        assert_eq!(joined(version, &other.reply(&describe)), wanted);
        assert_eq!((conn.flow, other.flow), (Flow::Go, Flow::Go));
    }
}

#[test]
fn and_a_commit_no_longer_than_it_may_take() {
    let mut house = house();
    in_sync(&mut house, &[0, 1]);
    let mut conn = house.connect();
    for version in 1..=10 {
        let request = commit(version, GROUP.0, &[(0, 1, -1, None)]);
        house.event(&mut conn, std::slice::from_ref(&request.bytes));
        house.clock.advance(4999);
        house.turn(&mut [&mut conn]);
        assert!(conn.is_waiting(), "offsets.commit.timeout.ms is 5000");
        house.clock.advance(1);
        house.turn(&mut [&mut conn]);
        assert_eq!(codes(version, &conn.reply(&request)), [15]);
    }
}

#[test]
fn and_do_not_leave_where_the_append_failed() {
    let mut house = house();
    let mut conn = house.connect();
    let request = join(9, GROUP.0, "");
    house.event(&mut conn, std::slice::from_ref(&request.bytes));
    let ticket = house.events().remove(0).ticket;
    for partition in house.broker.partitions() {
        partition.log.dir().take_offline(&"a test wants it");
    }
    house.breaks();
    assert_eq!(house.broker.coordinate(decided(ticket)).unwrap(), [GROUP.0]);
    house.turn(&mut [&mut conn]);
    assert!(conn.is_waiting() && conn.sent.is_empty());
    assert_eq!(house.broker.session_due_ms(), None, "no fence holds");

    let refused = map(vec![("error_code", Value::Int(15))]);
    let refusal = Decided { replies: replies(ticket, refused, ""), ..Decided::default() };
    assert!(house.broker.coordinate(refusal).unwrap().is_empty());
    house.turn(&mut [&mut conn]);
    assert_eq!(joined(9, &conn.reply(&request)).0, 15);
}

#[test]
fn and_nothing_is_done_where_one_is_no_reply() {
    let mut house = house();
    let mut conn = house.connect();
    house.event(&mut conn, &[join(9, GROUP.0, "").bytes]);
    let ticket = house.events().remove(0).ticket;
    let mut wrong = decided(ticket);
    wrong.replies.extend(replies(ticket, map(vec![("members", Value::Int(1))]), GROUP.0));
    let error = house.broker.coordinate(wrong).unwrap_err().to_string();
    assert_eq!(error, "replies.1: members: expected a list, found an integer");
    assert_eq!(house.broker.session_due_ms(), None);
    assert!(house.log(GROUPS, GROUP.1).is_empty());
    assert!(house.broker.coordinate(decided(ticket)).unwrap().is_empty());
    house.turn(&mut [&mut conn]);
    assert!(!conn.is_waiting());
}

#[test]
fn and_who_is_gone_is_not_missed() {
    let mut house = house();
    let mut conn = house.connect();
    house.event(&mut conn, &[join(9, GROUP.0, "").bytes]);
    let ticket = house.events().remove(0).ticket;
    house.close(conn);
    assert!(house.broker.coordinate(decided(ticket)).unwrap().is_empty());
    house.turn(&mut []);
    assert!(!house.log(GROUPS, GROUP.1).is_empty());
}
