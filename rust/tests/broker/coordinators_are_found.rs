//! The first request for a coordinator creates the topic of groups and waits for it.

use krust::broker::{CoordinatorState, Flow};
use krust::protocol::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Frame, TestBroker, frame, map};
use crate::groups::{GROUP, GROUPS, groups_topic};
use crate::transactions::{TRANSACTIONS, transactions_topic};

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
fn the_first_transactional_id_creates_its_topic() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = find(4, "t", 1);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let event = fixture.events().remove(0);
    let names = Value::List(vec![Value::Str(TRANSACTIONS.into())]);
    assert_eq!((event.api, event.request.field("topics")), ("AutoCreate", Some(&names)));
    fixture.topic(TRANSACTIONS, transactions_topic());
    fixture.broker.answer(event.ticket, &map(vec![])).unwrap();
    fixture.turn(&mut [&mut conn]);
    assert_eq!(found(4, &conn.reply(&request)), (0, 0, 9092));
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
fn other_keys_have_no_coordinator_and_need_no_topic() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    for key_type in [2, 9] {
        let reply = fixture.ask(&mut conn, &find(6, "t", key_type));
        assert_eq!(found(6, &reply), (42, -1, -1));
    }
    assert!(fixture.events().is_empty());
    fixture.topic(TRANSACTIONS, transactions_topic());
    let reply = fixture.ask(&mut conn, &find(6, "", 1));
    assert_eq!(found(6, &reply), (42, -1, -1), "a transactional id is not empty");
}
