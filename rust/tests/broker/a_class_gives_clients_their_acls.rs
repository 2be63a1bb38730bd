//! With a user's class as the authorizer, the first request of a client waits for the class's
//! answer. Later ones read it, and what does not come in time allows nothing.

use std::sync::Arc;
use std::time::Duration;

use krust::broker::acls::{AclBinding, AclTable, Operation, ResourceType};
use krust::broker::{AskTimes, Flow};
use krust::protocol::api_versions;
use krust::protocol::metadata::{self, MetadataRequest, MetadataRequestTopic, MetadataResponse};
use krust::wire::Reader;

use crate::double::{Conn, Frame, Made, TestBroker, frame, raw};
use crate::records::{Fetch, TOPIC, batch, fetched, produce, produced, put};

use Operation::{Describe, Read, Write};

const TOPIC_DENIED: i16 = 29;
const TIMES: AskTimes = AskTimes { cache_ms: 500, timeout_ms: 1000 };
const WAIT_MS: i64 = 3000;

/// A broker that asks a class, and one topic.
fn fixture(super_users: &[&str]) -> TestBroker {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let users = super_users.iter().map(|user| (*user).to_owned()).collect();
    fixture.broker.set_authorizer_class(users, false, TIMES);
    fixture
}

/// The class answers all questions of now; with these operations on the topic.
fn answer(fixture: &TestBroker, allowed: &[Operation]) -> usize {
    let questions = fixture.broker.acl_questions(Duration::ZERO).unwrap();
    for (number, client) in &questions {
        assert_eq!((&*client.user, &*client.host), ("ANONYMOUS", "127.0.0.1"));
        assert_eq!(&*client.listener, "PLAINTEXT");
        let bindings = allowed.iter().map(|operation| AclBinding {
            resource_type: ResourceType::Topic,
            is_prefixed: false,
            name: TOPIC.into(),
            principal: "User:*".into(),
            host: "*".into(),
            operation: *operation,
            is_allow: true,
        });
        let table = AclTable::new(&bindings.collect::<Vec<_>>());
        fixture.broker.answer_acls(*number, Ok(table));
    }
    questions.len()
}

/// The class fails for all clients of now.
fn fail(fixture: &TestBroker) -> usize {
    let questions = fixture.broker.acl_questions(Duration::ZERO).unwrap();
    questions.iter().for_each(|(number, _)| fixture.broker.answer_acls(*number, Err(500)));
    questions.len()
}

fn describe() -> Frame {
    let topic = MetadataRequestTopic { name: Some(TOPIC), ..Default::default() };
    frame(metadata::KEY, 9, |writer, version| {
        MetadataRequest { topics: Some(vec![topic]), ..Default::default() }.encode(writer, version);
    })
}

/// The error of the topic in a reply that was sent.
fn described(conn: &mut Conn) -> i16 {
    let reply = conn.reply(&describe());
    MetadataResponse::decode(&mut Reader::new(&reply), 9).unwrap().topics[0].error_code
}

fn ask(fixture: &mut TestBroker, conn: &mut Conn) {
    fixture.event(conn, &[describe().bytes]);
}

#[test]
fn the_first_request_of_a_client_waits_for_the_class_and_later_ones_do_not() {
    let mut fixture = fixture(&[]);
    let (mut conn, mut other) = (fixture.connect(), fixture.connect());
    ask(&mut fixture, &mut conn);
    ask(&mut fixture, &mut other);
    assert_eq!((conn.flow, conn.is_waiting(), conn.sent.len()), (Flow::Hold, true, 0));
    fixture.turn(&mut [&mut conn, &mut other]);
    assert!(conn.is_waiting() && other.is_waiting());
    assert_eq!(answer(&fixture, &[Describe]), 1, "both are one client");
    fixture.turn(&mut [&mut conn, &mut other]);
    assert_eq!((described(&mut conn), described(&mut other)), (0, 0));
    ask(&mut fixture, &mut conn);
    assert_eq!(described(&mut conn), 0);
}

#[test]
fn requests_that_were_sent_together_keep_their_order_while_they_wait() {
    let mut fixture = fixture(&[]);
    let mut conn = fixture.connect();
    let (write, versions) = (produce(9, 1, &batch(&["a"])), raw(api_versions::KEY, 0, &[]));
    let frames =
        [versions.bytes.clone(), write.bytes.clone(), describe().bytes, write.bytes.clone()];
    fixture.event(&mut conn, &frames);
    conn.reply(&versions);
    assert!(conn.sent.is_empty());
    answer(&fixture, &[Write, Read]);
    for _ in 0..frames.len() {
        fixture.turn_until_idle(&mut conn);
    }
    assert_eq!(produced(9, &conn.reply(&write)), (0, 0));
    assert_eq!(described(&mut conn), 0);
    assert_eq!(produced(9, &conn.reply(&write)), (0, 1));
}

#[test]
fn without_an_answer_in_time_nothing_is_allowed_until_one_comes() {
    let mut fixture = fixture(&[]);
    let mut conn = fixture.connect();
    ask(&mut fixture, &mut conn);
    fixture.clock.advance(WAIT_MS - 1);
    fixture.turn(&mut [&mut conn]);
    assert!(conn.is_waiting());
    fixture.clock.advance(1);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(described(&mut conn), TOPIC_DENIED);
    ask(&mut fixture, &mut conn);
    assert_eq!(described(&mut conn), TOPIC_DENIED, "the next one does not wait again at once");
    answer(&fixture, &[Describe]);
    ask(&mut fixture, &mut conn);
    assert_eq!(described(&mut conn), 0);
}

#[test]
fn a_class_that_fails_allows_nothing_until_it_answers_again() {
    let mut fixture = fixture(&[]);
    let mut conn = fixture.connect();
    ask(&mut fixture, &mut conn);
    assert_eq!(fail(&fixture), 1);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(described(&mut conn), TOPIC_DENIED);
    assert_eq!(fail(&fixture), 0, "it rests first");
    fixture.clock.advance(500);
    assert_eq!(answer(&fixture, &[Describe]), 1);
    ask(&mut fixture, &mut conn);
    assert_eq!(described(&mut conn), 0);
}

#[test]
fn a_revocation_reaches_open_connections_and_fetches_that_wait() {
    let mut fixture = fixture(&[]);
    let (mut reader, mut writer) = (fixture.connect(), fixture.connect());
    ask(&mut fixture, &mut reader);
    answer(&fixture, &[Read, Write]);
    fixture.turn(&mut [&mut reader]);
    assert_eq!(described(&mut reader), 0);
    let poll = Fetch { max_wait_ms: 60_000, ..Fetch::default() }.of(&[0]);
    fixture.event(&mut reader, std::slice::from_ref(&poll.bytes));
    assert!(reader.is_waiting());
    fixture.clock.advance(500);
    assert_eq!(answer(&fixture, &[Write]), 1);
    put(&mut fixture, &mut writer, (9, 1, &batch(&["a"])));
    fixture.turn(&mut [&mut reader]);
    let (_, _, partitions) = fetched(12, &reader.reply(&poll));
    assert_eq!((partitions[0].1, partitions[0].3.len()), (TOPIC_DENIED, 0));
    assert!(!fixture.log(TOPIC, 0).is_empty(), "there was a record to read");
}

#[test]
fn a_connection_that_closes_while_it_waits_is_no_longer_waited_for() {
    let mut fixture = fixture(&[]);
    let (mut gone, mut stays) = (fixture.connect(), fixture.connect());
    ask(&mut fixture, &mut gone);
    ask(&mut fixture, &mut stays);
    fixture.close(gone);
    answer(&fixture, &[Describe]);
    fixture.turn(&mut [&mut stays]);
    assert_eq!(described(&mut stays), 0);
    fixture.close(stays);
    fixture.clock.advance(500);
    assert_eq!(answer(&fixture, &[]), 0, "nobody is connected");
}

#[test]
fn the_class_is_never_asked_for_super_users_nor_before_a_login() {
    let mut fixture = fixture(&["ANONYMOUS"]);
    let mut conn = fixture.connect();
    ask(&mut fixture, &mut conn);
    assert_eq!(described(&mut conn), 0);
    assert_eq!(answer(&fixture, &[]), 0);

    let mut fixture = self::fixture(&[]);
    let mut conn = fixture.connect();
    let versions = raw(api_versions::KEY, 0, &[]);
    fixture.ask(&mut conn, &versions);
    assert_eq!(answer(&fixture, &[]), 0);
}

#[test]
fn the_end_of_the_questions_is_heard_by_who_waits_for_them() {
    let fixture = fixture(&[]);
    let broker = Arc::clone(&fixture.broker);
    let waits = std::thread::spawn(move || broker.acl_questions(Duration::from_secs(600)));
    fixture.broker.end_acl_questions();
    assert!(waits.join().unwrap().is_none());
}
