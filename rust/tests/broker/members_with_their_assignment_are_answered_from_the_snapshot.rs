//! The heartbeat of a consumer group's member without changes is answered from the snapshot that
//! the policy published last. Its commits and fetches are checked by its epoch.

use krust::broker::{GroupKind, GroupSnapshot, GroupState, MemberRole, MemberSnapshot};
use krust::protocol::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};
use krust::protocol::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup};
use krust::wire::Reader;

use crate::double::{Conn, Frame, TestBroker, frame};
use crate::groups::{GROUP, commit, commit_as, committed, fetched, fixture};
use crate::members::{
    MEMBER, SESSION_MS, STATIC, beat, expired, heartbeat, member, publish_row, row,
};

const EPOCH: i32 = 5;
const INTERVAL_MS: i32 = 3000;
/// A member that uses the classic protocol, and its generation.
const CLASSIC_MEMBER: (&str, i32) = ("classic", 4);

fn consumer(member_id: &str, epoch: i32, has_current_assignment: bool) -> MemberSnapshot {
    MemberSnapshot {
        role: MemberRole::Consumer { epoch, has_current_assignment },
        ..member(member_id)
    }
}

fn group(state: GroupState, members: Vec<MemberSnapshot>) -> Option<GroupSnapshot> {
    let kind = GroupKind::Consumer { heartbeat_interval_ms: INTERVAL_MS };
    Some(GroupSnapshot { kind, generation: 6, ..row(state, members) })
}

/// Publishes [`MEMBER`], [`STATIC`], [`CLASSIC_MEMBER`] and one with a new assignment.
fn publish(fixture: &TestBroker, rejoin: bool) {
    let fixed =
        MemberSnapshot { instance_id: Some(STATIC.1.into()), ..consumer(STATIC.0, 6, true) };
    let role = MemberRole::ClassicMember { generation: CLASSIC_MEMBER.1, rejoin };
    let classic = MemberSnapshot { role, ..member(CLASSIC_MEMBER.0) };
    let members = vec![
        consumer(MEMBER, EPOCH, true),
        fixed,
        classic,
        consumer("notified", EPOCH, false),
        consumer("new", 0, true),
    ];
    publish_row(fixture, group(GroupState::Reconciling, members));
}

fn says(member_id: &'static str, member_epoch: i32) -> ConsumerGroupHeartbeatRequest<'static> {
    ConsumerGroupHeartbeatRequest {
        group_id: GROUP.0,
        member_id,
        member_epoch,
        ..Default::default()
    }
}

fn send(version: i16, request: &ConsumerGroupHeartbeatRequest<'_>) -> Frame {
    frame(68, version, |writer, version| request.encode(writer, version))
}

/// Whether the policy was asked; if not, the answer is the one without an assignment.
fn is_asked(
    fixture: &mut TestBroker,
    version: i16,
    request: &ConsumerGroupHeartbeatRequest<'static>,
) -> bool {
    let mut conn = fixture.connect();
    let request_frame = send(version, request);
    fixture.event(&mut conn, std::slice::from_ref(&request_frame.bytes));
    let events = fixture.events();
    if conn.is_waiting() {
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].api, "ConsumerGroupHeartbeat");
        return true;
    }
    assert!(events.is_empty());
    let reply = conn.reply(&request_frame);
    let answer = ConsumerGroupHeartbeatResponse::decode(&mut Reader::new(&reply), version).unwrap();
    let wanted = ConsumerGroupHeartbeatResponse {
        member_id: Some(request.member_id),
        member_epoch: request.member_epoch,
        heartbeat_interval_ms: INTERVAL_MS,
        ..Default::default()
    };
    assert_eq!(answer, wanted);
    false
}

#[test]
fn an_unchanged_heartbeat_is_answered_without_the_policy() {
    let mut fixture = fixture();
    publish(&fixture, false);
    let instance_id = Some(STATIC.1);
    for version in 0..=1 {
        let mut is_asked = |request| is_asked(&mut fixture, version, &request);
        let rack_id = Some("east");
        assert!(!is_asked(says(MEMBER, EPOCH)));
        assert!(!is_asked(ConsumerGroupHeartbeatRequest { rack_id, ..says(MEMBER, EPOCH) }));
        assert!(!is_asked(ConsumerGroupHeartbeatRequest { instance_id, ..says(STATIC.0, 6) }));
        assert!(!is_asked(says(STATIC.0, 6)), "the name may be left out");
        for (member_id, epoch) in [
            (MEMBER, EPOCH - 1),
            (MEMBER, EPOCH + 1),
            (MEMBER, 0),
            (MEMBER, -1),
            (MEMBER, -2),
            ("new", 0),
            ("notified", EPOCH),
            ("stranger", EPOCH),
            (CLASSIC_MEMBER.0, CLASSIC_MEMBER.1),
        ] {
            assert!(is_asked(says(member_id, epoch)), "{member_id} {epoch}");
        }
        let unchanged = || says(MEMBER, EPOCH);
        for changed in [
            ConsumerGroupHeartbeatRequest { instance_id, ..unchanged() },
            ConsumerGroupHeartbeatRequest { topic_partitions: Some(vec![]), ..unchanged() },
            ConsumerGroupHeartbeatRequest { subscribed_topic_names: Some(vec![]), ..unchanged() },
            ConsumerGroupHeartbeatRequest { server_assignor: Some("range"), ..unchanged() },
            ConsumerGroupHeartbeatRequest { rebalance_timeout_ms: 1, ..unchanged() },
        ] {
            assert!(is_asked(changed.clone()), "{changed:?}");
        }
    }
    let regex = ConsumerGroupHeartbeatRequest {
        subscribed_topic_regex: Some("a.*"),
        ..says(MEMBER, EPOCH)
    };
    assert!(is_asked(&mut fixture, 1, &regex));
    publish_row(&fixture, Some(row(GroupState::Stable, vec![member(MEMBER)])));
    assert!(is_asked(&mut fixture, 1, &says(MEMBER, 7)), "a classic group");
    publish_row(&fixture, None);
    assert!(is_asked(&mut fixture, 1, &says(MEMBER, EPOCH)), "no group");
}

#[test]
fn every_heartbeat_restarts_the_session() {
    let mut fixture = fixture();
    publish(&fixture, false);
    fixture.clock.advance(SESSION_MS - 1);
    assert!(expired(&fixture).is_empty());
    let mut conn = fixture.connect();
    assert!(!is_asked(&mut fixture, 1, &says(MEMBER, EPOCH)));
    assert!(is_asked(&mut fixture, 1, &says("notified", EPOCH)));
    assert_eq!(beat(&mut fixture, &mut conn, &heartbeat(4, CLASSIC_MEMBER.0, CLASSIC_MEMBER.1)), 0);
    let request = commit_as(9, (GROUP.0, STATIC.0, 6), &[(0, 1, -1, None)]);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [0]);
    fixture.clock.advance(1);
    let named = |member_id: &str| format!("{}/{member_id}", GROUP.0);
    assert_eq!(expired(&fixture), [named("new"), named(STATIC.0)], "a commit is none, as in Kafka");
    fixture.clock.advance(SESSION_MS - 1);
    assert_eq!(expired(&fixture), [named(CLASSIC_MEMBER.0), named(MEMBER), named("notified")]);
}

#[test]
fn a_classic_member_that_must_rejoin_gets_rebalance_in_progress() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    for (rejoin, wanted) in [(false, 0), (true, 27)] {
        publish(&fixture, rejoin);
        for version in 0..=4 {
            let mut ask = |request| beat(&mut fixture, &mut conn, &request);
            assert_eq!(ask(heartbeat(version, CLASSIC_MEMBER.0, CLASSIC_MEMBER.1)), wanted);
            assert_eq!(ask(heartbeat(version, CLASSIC_MEMBER.0, CLASSIC_MEMBER.1 + 1)), 22);
            assert_eq!(ask(heartbeat(version, MEMBER, EPOCH)), 25, "it speaks the other protocol");
            assert_eq!(ask(heartbeat(version, "stranger", CLASSIC_MEMBER.1)), 25);
        }
    }
    assert!(fixture.events().is_empty());
}

/// A commit's code.
fn commits(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    (version, member_id, epoch): (i16, &str, i32),
) -> i16 {
    let request = commit_as(version, (GROUP.0, member_id, epoch), &[(0, 1, -1, None)]);
    committed(fixture, conn, &request)[0]
}

#[test]
fn a_commit_is_checked_against_the_members_epoch() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    publish(&fixture, false);
    for version in 9..=10 {
        let mut commits =
            |member_id, epoch| commits(&mut fixture, &mut conn, (version, member_id, epoch));
        assert_eq!(commits(MEMBER, EPOCH), 0);
        assert_eq!(commits(MEMBER, EPOCH - 1), 113);
        assert_eq!(commits(MEMBER, EPOCH + 1), 113);
        assert_eq!(commits(MEMBER, -1), 113);
        assert_eq!(commits("stranger", EPOCH), 25);
        assert_eq!(commits("", -1), 25, "it has members");
        assert_eq!(commits(CLASSIC_MEMBER.0, CLASSIC_MEMBER.1), 0);
        assert_eq!(commits(CLASSIC_MEMBER.0, CLASSIC_MEMBER.1 + 1), 22);
    }
    for version in 1..=8 {
        let mut commits =
            |member_id, epoch| commits(&mut fixture, &mut conn, (version, member_id, epoch));
        assert_eq!(commits(MEMBER, EPOCH), 35, "v{version} has no epochs");
        assert_eq!(commits("stranger", EPOCH), 25);
        assert_eq!(commits(CLASSIC_MEMBER.0, CLASSIC_MEMBER.1), 0);
        assert_eq!(commits(CLASSIC_MEMBER.0, CLASSIC_MEMBER.1 + 1), 22);
    }
    publish_row(&fixture, group(GroupState::Empty, vec![]));
    let request = commit(9, GROUP.0, &[(0, 1, -1, None)]);
    assert_eq!(committed(&mut fixture, &mut conn, &request), [0]);
    assert_eq!(commits(&mut fixture, &mut conn, (9, MEMBER, EPOCH)), 25);
}

#[test]
fn an_offset_fetch_is_checked_against_the_members_epoch() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    publish(&fixture, false);
    assert_eq!(commits(&mut fixture, &mut conn, (9, MEMBER, EPOCH)), 0);
    let mut ask = |version, group_id, member_id, member_epoch| {
        let group = OffsetFetchRequestGroup { group_id, member_id, member_epoch, topics: None };
        let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
        let request = frame(9, version, |writer, version| request.encode(writer, version));
        let reply = fixture.ask(&mut conn, &request);
        let (error, rows) = fetched(version, &reply);
        (error, rows.len())
    };
    for version in 9..=10 {
        assert_eq!(ask(version, GROUP.0, Some(MEMBER), EPOCH), (0, 1));
        assert_eq!(ask(version, GROUP.0, Some(MEMBER), EPOCH - 1), (113, 0));
        assert_eq!(ask(version, GROUP.0, Some(MEMBER), -1), (113, 0));
        assert_eq!(ask(version, GROUP.0, Some("stranger"), EPOCH), (25, 0));
        assert_eq!(ask(version, GROUP.0, Some(""), -1), (25, 0));
        assert_eq!(ask(version, GROUP.0, None, EPOCH), (25, 0));
        assert_eq!(ask(version, GROUP.0, None, -1), (0, 1), "an admin");
        assert_eq!(ask(version, GROUP.0, Some(CLASSIC_MEMBER.0), CLASSIC_MEMBER.1), (0, 1));
        assert_eq!(ask(version, GROUP.0, Some(CLASSIC_MEMBER.0), CLASSIC_MEMBER.1 + 1), (22, 0));
        assert_eq!(ask(version, "other", Some(MEMBER), EPOCH), (0, 0), "no snapshot has it");
    }
    assert_eq!(ask(8, GROUP.0, Some("stranger"), EPOCH), (0, 1), "v8 does not say who asks");
}
