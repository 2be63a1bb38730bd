//! A Fetch that finds too few bytes waits, and is answered when records arrive or its time is up.

use krust::broker::Flow;

use crate::double::{Made, TestBroker};
use crate::records::{Fetch, TOPIC, batch, fetched, produce, put, values};

const POLL: Fetch = Fetch {
    version: 12,
    offset: 0,
    max_wait_ms: 500,
    min_bytes: 1,
    max_bytes: 1 << 20,
    partition_max_bytes: 1 << 20,
    session: (0, -1),
};

#[test]
fn a_produce_of_another_connection_wakes_a_fetch() {
    for version in [0, 4, 12, 18] {
        let mut fixture = TestBroker::new();
        fixture.topic(TOPIC, Made { partitions: 3, ..Made::default() });
        let (mut reader, mut writer) = (fixture.connect(), fixture.connect());
        let poll = Fetch { version, ..POLL }.of(&[0, 1, 2]);
        fixture.event(&mut reader, std::slice::from_ref(&poll.bytes));
        assert_eq!(reader.flow, Flow::Hold);
        fixture.turn(&mut [&mut reader]);
        assert!(reader.sent.is_empty());

        put(&mut fixture, &mut writer, (9, 1, &batch(&["a"])));
        fixture.turn(&mut [&mut reader]);
        let reply = reader.reply(&poll);
        let (_, _, partitions) = fetched(version, &reply);
        assert_eq!((partitions[0].2, partitions[0].3.is_empty()), (1, false), "v{version}");
        assert_eq!(reader.flow, Flow::Go);
    }
}

#[test]
fn a_fetch_waits_for_its_minimum_of_bytes() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let (mut reader, mut writer) = (fixture.connect(), fixture.connect());
    let size = batch(&["a"]).len() as i32;
    let poll = Fetch { min_bytes: 2 * size, ..POLL }.of(&[0]);
    fixture.event(&mut reader, std::slice::from_ref(&poll.bytes));
    put(&mut fixture, &mut writer, (9, 1, &batch(&["a"])));
    fixture.turn(&mut [&mut reader]);
    fixture.turn(&mut [&mut reader]);
    assert!(reader.sent.is_empty());
    put(&mut fixture, &mut writer, (9, 1, &batch(&["b"])));
    fixture.turn(&mut [&mut reader]);
    let reply = reader.reply(&poll);
    assert_eq!(values(&fetched(12, &reply).2[0].3).len(), 2);
}

#[test]
fn a_fetch_is_answered_when_its_time_is_up() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut reader = fixture.connect();
    let poll = POLL.of(&[0]);
    fixture.event(&mut reader, std::slice::from_ref(&poll.bytes));
    fixture.turn(&mut [&mut reader]);
    fixture.clock.advance(499);
    fixture.turn(&mut [&mut reader]);
    assert!(reader.sent.is_empty());
    fixture.clock.advance(1);
    fixture.turn(&mut [&mut reader]);
    assert_eq!(fetched(12, &reader.reply(&poll)).2, [(0, 0, 0, Vec::new())]);
}

#[test]
fn a_fetch_is_answered_at_once_on_an_error_and_when_the_topic_is_deleted() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut reader = fixture.connect();
    let beyond = Fetch { offset: 5, ..POLL }.of(&[0]);
    let reply = fixture.ask(&mut reader, &beyond);
    assert_eq!(fetched(12, &reply).2[0].1, 1);
    let poll = POLL.of(&[0]);
    fixture.event(&mut reader, std::slice::from_ref(&poll.bytes));
    fixture.turn(&mut [&mut reader]);
    fixture.apply(krust::broker::MetadataDelta {
        topics: vec![(TOPIC.into(), None)],
        ..Default::default()
    });
    fixture.turn(&mut [&mut reader]);
    assert_eq!(fetched(12, &reader.reply(&poll)).2[0].1, 3);
}

#[test]
fn replies_keep_the_order_of_their_connection() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let (poll, write) = (POLL.of(&[0]), produce(9, 1, &batch(&["a"])));
    fixture.event(&mut conn, &[poll.bytes.clone(), write.bytes.clone()]);
    assert!(conn.sent.is_empty(), "the poll comes first");
    fixture.turn_until_idle(&mut conn);
    assert_eq!(values(&fetched(12, &conn.reply(&poll)).2[0].3).len(), 1);
    conn.reply(&write);
}
