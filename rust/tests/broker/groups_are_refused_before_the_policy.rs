//! Requests that Kafka refuses without reading the group do not reach the policy.

use krust::broker::{Flow, GroupOutcome};
use krust::protocol::consumer_group_describe::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse,
};
use krust::protocol::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};
use krust::protocol::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
use krust::protocol::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse};
use krust::protocol::leave_group::{LeaveGroupRequest, LeaveGroupResponse};
use krust::protocol::list_groups::{ListGroupsRequest, ListGroupsResponse};
use krust::protocol::list_offsets::ListOffsetsRequest;
use krust::protocol::sync_group::{SyncGroupRequest, SyncGroupResponse};
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Conn, TestBroker, frame, map};
use crate::groups::{GROUP, GROUPS, fixture, groups_topic, wait_until_loaded};
use crate::members::{MEMBER, heartbeat, join, joined, replies, store, welcome, while_read};

/// The codes of JoinGroup, SyncGroup, LeaveGroup, DescribeGroups, DeleteGroups at each version.
fn codes(fixture: &mut TestBroker, conn: &mut Conn, group_id: &'static str) -> Vec<i16> {
    let mut codes = Vec::new();
    for version in 0..=9 {
        let reply = fixture.ask(conn, &join(version, group_id, MEMBER));
        let (code, generation, leader, member_id, members) = joined(version, &reply);
        assert_eq!((generation, &*leader, &*member_id, members), (-1, "", MEMBER, 0));
        codes.push(code);
    }
    for version in 0..=5 {
        let sync = SyncGroupRequest { group_id, ..Default::default() };
        let reply = fixture.ask(conn, &frame(14, version, |w, v| sync.encode(w, v)));
        let answer = SyncGroupResponse::decode(&mut Reader::new(&reply), version).unwrap();
        codes.push(answer.error_code);
        let leave = LeaveGroupRequest { group_id, ..Default::default() };
        let reply = fixture.ask(conn, &frame(13, version, |w, v| leave.encode(w, v)));
        let answer = LeaveGroupResponse::decode(&mut Reader::new(&reply), version).unwrap();
        codes.push(answer.error_code);
    }
    codes
}

fn codes_of_many(fixture: &mut TestBroker, conn: &mut Conn) -> Vec<i16> {
    let mut codes = Vec::new();
    for version in 0..=6 {
        let describe = DescribeGroupsRequest { groups: vec![GROUP.0], ..Default::default() };
        let reply = fixture.ask(conn, &frame(15, version, |w, v| describe.encode(w, v)));
        let answer = DescribeGroupsResponse::decode(&mut Reader::new(&reply), version).unwrap();
        assert_eq!(answer.groups[0].group_id, GROUP.0);
        codes.push(answer.groups[0].error_code);
    }
    for version in 0..=2 {
        let delete = DeleteGroupsRequest { groups_names: vec![GROUP.0] };
        let reply = fixture.ask(conn, &frame(42, version, |w, v| delete.encode(w, v)));
        let answer = DeleteGroupsResponse::decode(&mut Reader::new(&reply), version).unwrap();
        codes.push(answer.results[0].error_code);
    }
    for version in 0..=1 {
        let describe =
            ConsumerGroupDescribeRequest { group_ids: vec![GROUP.0], ..Default::default() };
        let reply = fixture.ask(conn, &frame(69, version, |w, v| describe.encode(w, v)));
        let mut reader = Reader::new(&reply);
        let answer = ConsumerGroupDescribeResponse::decode(&mut reader, version).unwrap();
        assert_eq!(answer.groups[0].group_id, GROUP.0);
        codes.push(answer.groups[0].error_code);
    }
    codes
}

/// The code of a consumer group's member that says it is alive, at each version.
fn of_consumers(fixture: &mut TestBroker, conn: &mut Conn, group_id: &'static str) -> [i16; 2] {
    [0, 1].map(|version| {
        let beat = ConsumerGroupHeartbeatRequest {
            group_id,
            member_id: MEMBER,
            member_epoch: 1,
            ..Default::default()
        };
        let reply = fixture.ask(conn, &frame(68, version, |w, v| beat.encode(w, v)));
        let mut reader = Reader::new(&reply);
        let answer = ConsumerGroupHeartbeatResponse::decode(&mut reader, version).unwrap();
        assert_eq!((answer.member_id, answer.assignment), (None, None));
        answer.error_code
    })
}

fn all(codes: &[i16], code: i16) -> bool {
    codes.iter().all(|other| *other == code)
}

#[test]
fn groups_without_a_name_or_a_coordinator_are_refused() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    assert!(all(&codes(&mut fixture, &mut conn, ""), 24));
    assert!(all(&codes(&mut fixture, &mut conn, GROUP.0), 16));
    assert_eq!(of_consumers(&mut fixture, &mut conn, ""), [42, 42]);
    assert_eq!(of_consumers(&mut fixture, &mut conn, GROUP.0), [16, 16]);
    assert!(all(&codes_of_many(&mut fixture, &mut conn), 16));
    assert!(fixture.events().is_empty());
}

#[test]
fn groups_are_refused_while_they_are_loaded() {
    let (mut fixture, mut conn) = while_read(|fixture, conn| {
        assert!(all(&codes(fixture, conn, GROUP.0), 14));
        assert_eq!(of_consumers(fixture, conn, GROUP.0), [14, 14]);
        assert!(all(&codes_of_many(fixture, conn), 14));
        for version in 0..=5 {
            let list = frame(16, version, |w, v| ListGroupsRequest::default().encode(w, v));
            let reply = fixture.ask(conn, &list);
            let answer = ListGroupsResponse::decode(&mut Reader::new(&reply), version).unwrap();
            assert_eq!((answer.error_code, answer.groups.len()), (14, 0));
        }
        assert!(fixture.events().is_empty());
    });
    assert_eq!(fixture.events().remove(0).api, "GroupsLoaded");
    fixture.event(&mut conn, &[join(9, GROUP.0, MEMBER).bytes]);
    assert_eq!(fixture.events().remove(0).api, "JoinGroup");
}

#[test]
fn the_policy_answers_for_the_other_groups() {
    let delete = DeleteGroupsRequest { groups_names: vec![GROUP.0, "ready"] };
    let delete = frame(42, 2, |w, v| delete.encode(w, v));
    let mut events = Vec::new();
    let (mut fixture, mut conn) = while_read(|fixture, conn| {
        fixture.event(conn, std::slice::from_ref(&delete.bytes));
        events = fixture.events();
    });
    let asked = events.remove(0);
    assert_eq!(asked.api, "DeleteGroups");
    let ready = Value::List(vec![Value::Str("ready".into())]);
    assert_eq!(asked.request.field("groups_names"), Some(&ready));
    let result =
        map(vec![("group_id", Value::Str("ready".into())), ("error_code", Value::Int(69))]);
    let response = map(vec![("results", Value::List(vec![result]))]);
    let answer =
        GroupOutcome { replies: replies(asked.ticket, response, &[]), ..GroupOutcome::default() };
    assert!(fixture.broker.apply_group_outcome(answer).unwrap().is_empty());
    fixture.turn(&mut [&mut conn]);
    let reply = conn.reply(&delete);
    let answer = DeleteGroupsResponse::decode(&mut Reader::new(&reply), 2).unwrap();
    let codes: Vec<_> = answer.results.iter().map(|one| (one.group_id, one.error_code)).collect();
    assert_eq!(codes, [("ready", 69), (GROUP.0, 14)]);
}

#[test]
fn requests_behind_a_join_are_handled_after_it() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let (first, second) = (join(5, GROUP.0, ""), heartbeat(4, MEMBER, 7));
    fixture.event(&mut conn, &[first.bytes.clone(), second.bytes.clone()]);
    assert_eq!(conn.flow, Flow::Hold);
    let ticket = fixture.events().remove(0).ticket;
    let row = crate::members::row(
        krust::broker::GroupState::Stable,
        vec![crate::members::member(MEMBER)],
    );
    let answer = GroupOutcome {
        snapshots: vec![(GROUP.0.into(), Some(row))],
        replies: replies(ticket, welcome(), &[GROUP.0]),
        ..GroupOutcome::default()
    };
    assert!(fixture.broker.apply_group_outcome(answer).unwrap().is_empty());
    fixture.turn(&mut [&mut conn]);
    assert_eq!(joined(5, &conn.reply(&first)).0, 0);
    assert_eq!(&conn.reply(&second)[..], [0, 0, 0, 0, 0, 0, 0], "throttle, code, no tags");
}

#[test]
fn at_the_start_requests_on_groups_wait_until_groups_are_read() {
    let first = fixture();
    store(&first);
    let mut fixture = first.again();
    let policy = fixture.policy.clone();
    let reading = policy.loading.lock().unwrap();
    fixture.topic(GROUPS, groups_topic());
    let (mut conn, mut other) = (fixture.connect(), fixture.connect());
    let list = frame(16, 5, |w, v| ListGroupsRequest::default().encode(w, v));
    fixture.event(&mut conn, std::slice::from_ref(&list.bytes));
    assert!(conn.sent.is_empty() && conn.muted_ms > 0 && fixture.events().is_empty());
    let offsets = ListOffsetsRequest::default();
    let offsets = frame(2, 5, |w, v| offsets.encode(w, v));
    assert!(!fixture.ask(&mut other, &offsets).is_empty(), "what is not on groups is answered");
    drop(reading);
    wait_until_loaded(&fixture);
    fixture.clock.advance(i64::from(conn.muted_ms));
    fixture.turn(&mut [&mut conn]);
    let apis: Vec<_> = fixture.events().iter().map(|event| event.api).collect();
    assert_eq!(apis, ["GroupsLoaded", "ListGroups"]);
}
