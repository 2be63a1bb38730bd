//! Members of groups for the tests: their requests, and the snapshots that a policy publishes.

use krust::broker::{
    GroupKind, GroupOutcome, GroupRecord, GroupSnapshot, GroupState, MemberSnapshot, Ticket,
};
use krust::protocol::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use krust::protocol::join_group::{
    JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember,
};
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Conn, Frame, NOW_MS, TestBroker, frame, map};
use crate::groups::{GROUP, GROUPS, fixture, groups_topic, wait_until_loaded};

/// A member, its static twin, and their generation.
pub const MEMBER: &str = "m-1";
pub const STATIC: (&str, &str) = ("s-1", "instance");
pub const GENERATION: i32 = 7;
/// How long a member may be silent.
pub const SESSION_MS: i64 = 10_000;

pub fn member(member_id: &str) -> MemberSnapshot {
    MemberSnapshot {
        member_id: member_id.into(),
        instance_id: None,
        session_timeout_ms: SESSION_MS,
        timed: true,
        ..MemberSnapshot::default()
    }
}

/// A row with these members.
pub fn row(state: GroupState, members: Vec<MemberSnapshot>) -> GroupSnapshot {
    GroupSnapshot {
        kind: GroupKind::Classic,
        state,
        generation: GENERATION,
        protocol_type: "consumer".into(),
        since_ms: 0,
        subscribed: None,
        members,
    }
}

/// Publishes [`MEMBER`] and [`STATIC`] as members of [`GROUP`].
pub fn publish(fixture: &TestBroker, state: GroupState) {
    let fixed = MemberSnapshot { instance_id: Some(STATIC.1.into()), ..member(STATIC.0) };
    publish_row(fixture, Some(row(state, vec![member(MEMBER), fixed])));
}

pub fn publish_row(fixture: &TestBroker, row: Option<GroupSnapshot>) {
    let decided =
        GroupOutcome { snapshots: vec![(GROUP.0.into(), row)], ..GroupOutcome::default() };
    assert!(fixture.broker.apply_group_outcome(decided).unwrap().is_empty());
}

/// A heartbeat of a member of [`GROUP`].
pub fn heartbeat(version: i16, member_id: &'static str, generation_id: i32) -> Frame {
    let request =
        HeartbeatRequest { group_id: GROUP.0, member_id, generation_id, ..Default::default() };
    frame(12, version, |writer, version| request.encode(writer, version))
}

/// Beats, and gives the code of the answer.
pub fn beat(fixture: &mut TestBroker, conn: &mut Conn, request: &Frame) -> i16 {
    let reply = fixture.ask(conn, request);
    HeartbeatResponse::decode(&mut Reader::new(&reply), request.version).unwrap().error_code
}

/// A join of a group.
pub fn join(version: i16, group_id: &'static str, member_id: &'static str) -> Frame {
    let protocols = vec![JoinGroupRequestProtocol { name: "range", metadata: b"topics" }];
    let request = JoinGroupRequest {
        group_id,
        member_id,
        session_timeout_ms: 10_000,
        protocol_type: "consumer",
        protocols,
        ..Default::default()
    };
    frame(11, version, |writer, version| request.encode(writer, version))
}

/// Error, generation, leader, member id and members of a join's answer.
pub fn joined(version: i16, reply: &[u8]) -> (i16, i32, String, String, usize) {
    let answer = JoinGroupResponse::decode(&mut Reader::new(reply), version).unwrap();
    let members: &[JoinGroupResponseMember<'_>] = &answer.members;
    let (leader, member_id) = (answer.leader.into(), answer.member_id.into());
    (answer.error_code, answer.generation_id, leader, member_id, members.len())
}

/// Metadata of a group as the log keeps it.
pub fn metadata() -> Value {
    map(vec![
        ("protocol_type", Value::Str("consumer".into())),
        ("generation", Value::Int(GENERATION.into())),
        ("protocol", Value::Null),
        ("leader", Value::Null),
        ("current_state_timestamp", Value::Int(NOW_MS)),
        ("members", Value::List(vec![])),
    ])
}

/// Writes [`GROUP`]'s metadata.
pub fn store(fixture: &TestBroker) {
    let records = vec![(GROUP.0.into(), GroupRecord::Metadata(Some(metadata())))];
    let decided = GroupOutcome { records, ..GroupOutcome::default() };
    assert!(fixture.broker.apply_group_outcome(decided).unwrap().is_empty());
}

/// Runs `while_loading` while [`GROUP`] is read from the log and requests no longer wait for it.
/// Returns the fixture after the group was read.
pub fn while_read(meanwhile: impl FnOnce(&mut TestBroker, &mut Conn)) -> (TestBroker, Conn) {
    let fixture = fixture();
    store(&fixture);
    let mut fixture = fixture.again();
    let policy = fixture.policy.clone();
    let reading = policy.loading.lock().unwrap();
    fixture.topic(GROUPS, groups_topic());
    let mut conn = fixture.connect();
    fixture.clock.advance(fixture.broker.settings().group_load_wait_ms);
    meanwhile(&mut fixture, &mut conn);
    drop(reading);
    wait_until_loaded(&fixture);
    (fixture, conn)
}

/// The policy's answer to a join.
pub fn welcome() -> Value {
    map(vec![
        ("error_code", Value::Int(0)),
        ("generation_id", Value::Int(GENERATION.into())),
        ("protocol_name", Value::Str("range".into())),
        ("leader", Value::Str(MEMBER.into())),
        ("member_id", Value::Str(MEMBER.into())),
    ])
}

/// A reply that waits for the logs of groups.
pub fn replies(
    ticket: Ticket,
    response: Value,
    groups: &[&str],
) -> Vec<(Ticket, Value, Vec<String>)> {
    vec![(ticket, response, groups.iter().map(ToString::to_string).collect())]
}

/// The members whose sessions expired, as the policy gets them: `group/member`.
pub fn expired(fixture: &TestBroker) -> Vec<String> {
    let mut found = Vec::new();
    for event in fixture.broker.expire_sessions() {
        assert_eq!((event.api, event.ticket.0), ("SessionExpired", 0));
        let text = |value: &Value| match value {
            Value::Str(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let group_id = text(event.request.field("group_id").unwrap());
        let Some(Value::List(members)) = event.request.field("members") else {
            panic!("{event:?}")
        };
        found.extend(members.iter().map(|member| format!("{group_id}/{}", text(member))));
    }
    found.sort();
    found
}
