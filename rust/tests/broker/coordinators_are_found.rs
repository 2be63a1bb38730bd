//! The first request for a coordinator creates the topic of groups and waits for it.

use krust::broker::{CoordinatorState, Flow};
use krust::protocol::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Frame, TestBroker, frame, map};
use crate::groups::{GROUP, GROUPS, groups_topic};

fn find(version: i16, key: &str, key_type: i8) -> Frame {
    let coordinator_keys = vec![key, "other"];
    let request = FindCoordinatorRequest { key, key_type, coordinator_keys };
    frame(10, version, |writer, version| request.encode(writer, version))
}

/// Error, node and port of the first answer.
fn found(version: i16, reply: &[u8]) -> (i16, i32, i32) {
    let response = FindCoordinatorResponse::decode(&mut Reader::new(reply), version).unwrap();
    match response.coordinators.first() {
        Some(first) => (first.error_code, first.node_id, first.port),
        None => (response.error_code, response.node_id, response.port),
    }
}

#[test]
fn the_first_use_creates_the_topic() {
    for version in 0..=6 {
        let mut fixture = TestBroker::new();
        let mut conn = fixture.connect();
        let request = find(version, GROUP.0, 0);
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        assert_eq!((conn.flow, conn.sent.len()), (Flow::Hold, 0));
        let event = fixture.events().remove(0);
        assert_eq!(event.api, "AutoCreate");
        let names = Value::List(vec![Value::Str(GROUPS.into())]);
        assert_eq!(event.request.field("topics"), Some(&names));
        fixture.topic(GROUPS, groups_topic());
        assert_eq!(
            fixture.broker.coordinator_state(GROUP.0),
            CoordinatorState::Ready,
            "at once: it is new"
        );
        fixture.broker.answer(event.ticket, &map(vec![])).unwrap();
        fixture.turn(&mut [&mut conn]);
        assert_eq!(found(version, &conn.reply(&request)), (0, 0, 9092));
        let reply = fixture.ask(&mut conn, &request);
        assert_eq!(found(version, &reply), (0, 0, 9092));
    }
}

#[test]
fn without_an_offsets_topic_no_coordinator_is_found() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = find(4, GROUP.0, 0);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let event = fixture.events().remove(0);
    fixture.broker.answer(event.ticket, &map(vec![])).unwrap();
    fixture.turn(&mut [&mut conn]);
    assert_eq!(found(4, &conn.reply(&request)), (15, -1, -1));
}

#[test]
fn transactional_ids_and_others_are_refused_without_a_topic() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    for (key_type, wanted) in [(1, (53, -1, -1)), (2, (42, -1, -1)), (9, (42, -1, -1))] {
        let reply = fixture.ask(&mut conn, &find(6, "t", key_type));
        assert_eq!(found(6, &reply), wanted);
    }
    assert!(fixture.events().is_empty());
}
