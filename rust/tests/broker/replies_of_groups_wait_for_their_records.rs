//! The policy's decisions on groups are written first, then they take effect, then the replies are
//! sent.

use krust::broker::image::{PartitionState, TopicDelta, TopicSettings};
use krust::broker::{Flow, GroupOutcome, GroupRecord, GroupState, MetadataDelta};
use krust::ids::{Epoch, TopicId};
use krust::protocol::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Conn, Frame, TestBroker, frame, map};
use crate::groups::{GROUP, GROUPS, codes, commit, fixture, groups_topic};
use crate::members::{
    GENERATION, MEMBER, beat, heartbeat, join, joined, member, metadata, replies, row, welcome,
};

/// A second group, and its partition.
const OTHER: (&str, usize) = ("orders", 31);

/// Says who is in sync with each partition of the topic of groups.
fn in_sync(fixture: &mut TestBroker, isr: &[i32]) {
    but_the_other(fixture, isr, (0, isr));
}

/// The same, and who leads and is in sync with the partition of [`OTHER`].
fn but_the_other(fixture: &mut TestBroker, isr: &[i32], other: (i32, &[i32])) {
    change(fixture, isr, other, 1);
}

/// The same, with `min.insync.replicas`.
fn change(
    fixture: &mut TestBroker,
    isr: &[i32],
    (leader, others): (i32, &[i32]),
    min_insync_replicas: i32,
) {
    let before =
        fixture.broker.image().topic(GROUPS).map(|topic| topic.partitions[0].state.clone());
    let partition_epoch = before.map_or(0, |state| state.partition_epoch + 1);
    let state = |leader, isr: &[i32]| PartitionState {
        leader,
        leader_epoch: Epoch(0),
        isr: isr.to_vec(),
        replicas: vec![leader, leader + 1],
        partition_epoch,
    };
    let mut partitions = vec![state(0, isr); 50];
    partitions[OTHER.1] = state(leader, others);
    let topic = TopicDelta {
        id: TopicId([9; 16]),
        internal: true,
        settings: TopicSettings {
            log: groups_topic().config,
            min_insync_replicas,
            ..TopicSettings::default()
        },
        partitions: (0..).zip(partitions).collect(),
    };
    fixture.apply(MetadataDelta {
        topics: vec![(GROUPS.into(), Some(topic))],
        ..MetadataDelta::default()
    });
}

fn decided(ticket: krust::broker::Ticket) -> GroupOutcome {
    GroupOutcome {
        records: vec![(GROUP.0.into(), GroupRecord::Metadata(Some(metadata())))],
        snapshots: vec![(GROUP.0.into(), Some(row(GroupState::Stable, vec![member(MEMBER)])))],
        replies: replies(ticket, welcome(), &[GROUP.0]),
    }
}

#[test]
fn a_reply_waits_until_its_records_are_committed() {
    for version in 0..=9 {
        let mut fixture = fixture();
        in_sync(&mut fixture, &[0, 1]);
        let (mut conn, mut other) = (fixture.connect(), fixture.connect());
        let request = join(version, GROUP.0, "");
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        assert_eq!(conn.flow, Flow::Hold);
        let event = fixture.events().remove(0);
        assert_eq!((event.api, event.version), ("JoinGroup", version));
        assert!(fixture.broker.apply_group_outcome(decided(event.ticket)).unwrap().is_empty());
        fixture.turn(&mut [&mut conn, &mut other]);
        assert!(conn.is_waiting(), "no other replica has them");
        let good = heartbeat(4, MEMBER, GENERATION);
        assert_eq!(beat(&mut fixture, &mut other, &good), 0, "the snapshot holds before the reply");

        let describe = join(version, GROUP.0, "stranger");
        fixture.event(&mut other, std::slice::from_ref(&describe.bytes));
        let event = fixture.events().remove(0);
        let read_only = GroupOutcome {
            replies: replies(event.ticket, welcome(), &[GROUP.0]),
            ..GroupOutcome::default()
        };
        assert!(fixture.broker.apply_group_outcome(read_only).unwrap().is_empty());
        fixture.turn(&mut [&mut conn, &mut other]);
        assert!(other.is_waiting(), "a reply waits for the records it was made from");

        in_sync(&mut fixture, &[0]);
        fixture.turn(&mut [&mut conn, &mut other]);
        let wanted = (0, GENERATION, MEMBER.to_owned(), MEMBER.to_owned(), 0);
        assert_eq!(joined(version, &conn.reply(&request)), wanted);
        assert_eq!(joined(version, &other.reply(&describe)), wanted);
        assert_eq!((conn.flow, other.flow), (Flow::Go, Flow::Go));
    }
}

#[test]
fn a_commit_waits_no_longer_than_its_timeout() {
    let mut fixture = fixture();
    in_sync(&mut fixture, &[0, 1]);
    let mut conn = fixture.connect();
    for version in 1..=10 {
        let request = commit(version, GROUP.0, &[(0, 1, -1, None)]);
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        fixture.clock.advance(4999);
        fixture.turn(&mut [&mut conn]);
        assert!(conn.is_waiting(), "offsets.commit.timeout.ms is 5000");
        fixture.clock.advance(1);
        fixture.turn(&mut [&mut conn]);
        assert_eq!(codes(version, &conn.reply(&request)), [15]);
    }
}

#[test]
fn commits_are_refused_while_too_few_replicas_are_in_sync() {
    let mut fixture = fixture();
    change(&mut fixture, &[0, 1], (0, &[0, 1]), 2);
    let mut conn = fixture.connect();
    let request = commit(8, GROUP.0, &[(0, 1, -1, None)]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert!(conn.is_waiting());
    change(&mut fixture, &[0], (0, &[0]), 2);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(codes(8, &conn.reply(&request)), [15], "the set shrank under it");
    let end = |fixture: &TestBroker| fixture.log(GROUPS, GROUP.1).len();
    let before = end(&fixture);
    assert_eq!(codes(8, &fixture.ask(&mut conn, &request)), [15]);
    assert_eq!(end(&fixture), before, "nothing was appended");
}

#[test]
fn replies_do_not_leave_where_the_append_failed() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let request = join(9, GROUP.0, "");
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let ticket = fixture.events().remove(0).ticket;
    for partition in fixture.broker.partitions() {
        partition.log.dir().take_offline(&"a test wants it");
    }
    fixture.breaks();
    assert_eq!(fixture.broker.apply_group_outcome(decided(ticket)).unwrap(), [GROUP.0]);
    fixture.turn(&mut [&mut conn]);
    assert!(conn.is_waiting() && conn.sent.is_empty());
    assert_eq!(fixture.broker.session_due_ms(), None, "no snapshot is published");

    let refused = map(vec![("error_code", Value::Int(15))]);
    let refusal =
        GroupOutcome { replies: replies(ticket, refused, &[]), ..GroupOutcome::default() };
    assert!(fixture.broker.apply_group_outcome(refusal).unwrap().is_empty());
    fixture.turn(&mut [&mut conn]);
    assert_eq!(joined(9, &conn.reply(&request)).0, 15);
}

#[test]
fn nothing_is_done_where_one_reply_is_malformed() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[join(9, GROUP.0, "").bytes]);
    let ticket = fixture.events().remove(0).ticket;
    let mut wrong = decided(ticket);
    wrong.replies.extend(replies(ticket, map(vec![("members", Value::Int(1))]), &[GROUP.0]));
    let error = fixture.broker.apply_group_outcome(wrong).unwrap_err().to_string();
    assert_eq!(error, "replies.1: members: expected a list, found an integer");
    assert_eq!(fixture.broker.session_due_ms(), None);
    assert!(fixture.log(GROUPS, GROUP.1).is_empty());
    assert!(fixture.broker.apply_group_outcome(decided(ticket)).unwrap().is_empty());
    fixture.turn(&mut [&mut conn]);
    assert!(!conn.is_waiting());
}

#[test]
fn replies_to_closed_connections_are_dropped() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[join(9, GROUP.0, "").bytes]);
    let ticket = fixture.events().remove(0).ticket;
    fixture.close(conn);
    assert!(fixture.broker.apply_group_outcome(decided(ticket)).unwrap().is_empty());
    fixture.turn(&mut []);
    assert!(!fixture.log(GROUPS, GROUP.1).is_empty());
}

/// A client that deletes both groups, and what the policy says to that.
fn deleting(fixture: &mut TestBroker) -> (Conn, Frame, GroupOutcome) {
    let mut conn = fixture.connect();
    let request = DeleteGroupsRequest { groups_names: vec![GROUP.0, OTHER.0] };
    let request = frame(42, 2, |w, v| request.encode(w, v));
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let ticket = fixture.events().remove(0).ticket;
    let gone = |group: &str| (group.to_owned(), GroupRecord::Metadata(None));
    let decided = GroupOutcome {
        records: vec![gone(GROUP.0), gone(OTHER.0)],
        replies: replies(ticket, deleted(0), &[GROUP.0, OTHER.0]),
        ..GroupOutcome::default()
    };
    (conn, request, decided)
}

/// An answer: the first group is gone, and what became of the other.
fn deleted(code: i64) -> Value {
    let result = |group: &str, code| {
        map(vec![("group_id", Value::Str(group.into())), ("error_code", Value::Int(code))])
    };
    map(vec![("results", Value::List(vec![result(GROUP.0, 0), result(OTHER.0, code)]))])
}

fn answered_errors(conn: &mut Conn, request: &Frame) -> Vec<i16> {
    let reply = conn.reply(request);
    let answer = DeleteGroupsResponse::decode(&mut Reader::new(&reply), 2).unwrap();
    answer.results.iter().map(|one| one.error_code).collect()
}

#[test]
fn a_reply_of_several_groups_waits_for_all_of_them() {
    for (first, other) in [(&[0][..], &[0, 1][..]), (&[0, 1], &[0])] {
        let mut fixture = fixture();
        in_sync(&mut fixture, &[0, 1]);
        let (mut conn, request, decided) = deleting(&mut fixture);
        assert!(fixture.broker.apply_group_outcome(decided).unwrap().is_empty());
        but_the_other(&mut fixture, first, (0, other));
        fixture.turn(&mut [&mut conn]);
        assert!(conn.is_waiting(), "one of them is not committed");
        in_sync(&mut fixture, &[0]);
        fixture.turn(&mut [&mut conn]);
        assert_eq!(answered_errors(&mut conn, &request), [0, 0]);
    }
}

#[test]
fn a_reply_of_several_groups_stays_open_where_an_append_failed() {
    let mut fixture = fixture();
    in_sync(&mut fixture, &[0, 1]);
    let (mut conn, request, decided) = deleting(&mut fixture);
    let (ticket, ..) = decided.replies[0];
    but_the_other(&mut fixture, &[0, 1], (1, &[1]));
    assert_eq!(fixture.broker.apply_group_outcome(decided).unwrap(), [OTHER.0]);
    fixture.turn(&mut [&mut conn]);
    assert!(conn.is_waiting());
    let refusal = GroupOutcome {
        replies: replies(ticket, deleted(15), &[GROUP.0]),
        ..GroupOutcome::default()
    };
    assert!(fixture.broker.apply_group_outcome(refusal).unwrap().is_empty());
    fixture.turn(&mut [&mut conn]);
    assert!(conn.is_waiting(), "the first group's record is not committed");
    but_the_other(&mut fixture, &[0], (1, &[1]));
    fixture.turn(&mut [&mut conn]);
    assert_eq!(answered_errors(&mut conn, &request), [0, 15]);
}

#[test]
fn a_reply_of_several_groups_never_leaves_where_a_log_is_lost() {
    let mut fixture = fixture();
    in_sync(&mut fixture, &[0, 1]);
    let (mut conn, _, decided) = deleting(&mut fixture);
    assert!(fixture.broker.apply_group_outcome(decided).unwrap().is_empty());
    but_the_other(&mut fixture, &[0], (0, &[0, 1]));
    fixture
        .apply(MetadataDelta { topics: vec![(GROUPS.into(), None)], ..MetadataDelta::default() });
    fixture.turn(&mut [&mut conn]);
    assert!(conn.sent.is_empty());
    assert_eq!(conn.flow, Flow::Close);
}
