//! A client that exceeds its quota is answered at once with a throttle time, and its connection is
//! not read meanwhile.

use krust::broker::quotas::{EntityName, QuotaEntity, QuotaLimits};
use krust::broker::{Flow, MetadataDelta, Service};
use krust::protocol::fetch::FetchResponse;
use krust::protocol::metadata::{MetadataRequest, MetadataResponse};
use krust::protocol::produce::ProduceResponse;
use krust::protocol::value::Value;
use krust::wire::Reader;

use crate::double::{Conn, Frame, Made, TestBroker, frame, map, of_client, raw};
use crate::records::{Fetch, TOPIC, batch, fetched, produce, values};

/// The rate of these tests, in bytes a second. Ten seconds' worth may come at once.
const RATE: f64 = 1000.0;
const AT_ONCE: usize = 10_000;

fn limits(change: impl FnOnce(&mut QuotaLimits)) -> QuotaLimits {
    let mut limits = QuotaLimits::default();
    change(&mut limits);
    limits
}

fn named(name: &str) -> Option<EntityName> {
    Some(EntityName::Is(name.into()))
}

fn of_clients() -> QuotaEntity {
    QuotaEntity { client_id: Some(EntityName::Default), ..QuotaEntity::default() }
}

fn fixture(rows: Vec<(QuotaEntity, QuotaLimits)>) -> TestBroker {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    fixture.apply(MetadataDelta { quotas: Some(rows), ..MetadataDelta::default() });
    fixture
}

fn producers(rate: f64) -> QuotaLimits {
    limits(|it| it.producer_byte_rate = Some(rate))
}

fn consumers(rate: f64) -> QuotaLimits {
    limits(|it| it.consumer_byte_rate = Some(rate))
}

/// A Produce of as many bytes as may come at once, and these on top.
fn large(version: i16, acks: i16, on_top: usize) -> Frame {
    let size = |value: usize| produce(version, acks, &batch(&[&"x".repeat(value)])).bytes.len();
    let frame_bytes = size(AT_ONCE) - AT_ONCE;
    let frame = produce(version, acks, &batch(&[&"x".repeat(AT_ONCE + on_top - frame_bytes)]));
    assert_eq!(frame.bytes.len(), AT_ONCE + on_top);
    frame
}

fn throttle_of(request: &Frame, reply: &[u8]) -> i32 {
    ProduceResponse::decode(&mut Reader::new(reply), request.version).unwrap().throttle_time_ms
}

fn put(fixture: &mut TestBroker, conn: &mut Conn, request: &Frame) -> i32 {
    let reply = fixture.ask(conn, request);
    throttle_of(request, &reply)
}

#[test]
fn bytes_beyond_the_rate_are_answered_at_once_and_paid_for_afterwards() {
    for version in 0..=13 {
        let mut fixture = fixture(vec![(of_clients(), producers(RATE))]);
        let mut conn = fixture.connect();
        let request = large(version, 1, 250);
        let next = produce(version, 1, &batch(&["next"]));
        fixture.event(&mut conn, &[request.bytes.clone(), next.bytes.clone()]);
        assert_eq!(conn.muted_ms, 250, "{version}");
        fixture.turn_until_sent(&mut conn);
        let reply = conn.reply(&request);
        let throttle_ms = throttle_of(&request, &reply);
        assert_eq!(throttle_ms, if version == 0 { 0 } else { 250 }, "{version}");
        fixture.clock.advance(249);
        fixture.turn(&mut [&mut conn]);
        assert!(conn.sent.is_empty(), "what came with it waits");
        fixture.clock.advance(1);
        fixture.turn(&mut [&mut conn]);
        conn.reply(&next);
    }
}

#[test]
fn requests_within_the_rate_are_not_throttled() {
    let mut fixture = fixture(vec![(of_clients(), producers(RATE))]);
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, &large(9, 1, 0)), 0);
    assert_eq!(conn.muted_ms, 0);
    let mut other = fixture.connect();
    let request = of_client(large(9, 1, 1000), "");
    assert_eq!(put(&mut fixture, &mut other, &request), 0, "who has no name has no client's quota");
}

#[test]
fn without_acknowledgements_the_connection_is_muted_all_the_same() {
    let mut fixture = fixture(vec![(of_clients(), producers(RATE))]);
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[large(9, 0, 777).bytes]);
    assert_eq!(conn.muted_ms, 777);
    fixture.turn_until_idle(&mut conn);
    assert_eq!((conn.sent.len(), conn.flow), (0, Flow::Go));
}

#[test]
fn an_acknowledgement_that_waits_for_the_disk_bears_the_throttle_time() {
    let mut fixture = fixture(vec![(of_clients(), producers(RATE))]);
    let mut made = Made::default();
    made.config.ack_flush = true;
    made.config.flush_messages = 1;
    fixture.topic(TOPIC, made);
    let mut conn = fixture.connect();
    let request = large(9, -1, 500);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert_eq!(conn.muted_ms, 500);
    fixture.turn_until_sent(&mut conn);
    let reply = conn.reply(&request);
    assert_eq!(throttle_of(&request, &reply), 500);
}

#[test]
fn a_users_clients_share_its_rate_and_client_ids_have_their_own() {
    let user = QuotaEntity { user: named("ANONYMOUS"), ..QuotaEntity::default() };
    for (entity, shared) in [(user, true), (of_clients(), false)] {
        let mut fixture = fixture(vec![(entity, producers(RATE))]);
        let (mut one, mut two) = (fixture.connect(), fixture.connect());
        assert_eq!(put(&mut fixture, &mut one, &large(9, 1, 0)), 0);
        let other = of_client(large(9, 1, 0), "rest");
        let throttle_ms = put(&mut fixture, &mut two, &other);
        assert_eq!(throttle_ms > 0, shared, "{throttle_ms}");
        let same = put(&mut fixture, &mut two, &large(9, 1, 0));
        assert!(same > 0, "another connection of one client draws from the same bucket");
    }
}

#[test]
fn another_table_holds_from_the_next_request_on_and_forgets_nothing() {
    let mut fixture = fixture(vec![(of_clients(), producers(RATE))]);
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, &large(9, 1, 1000)), 1000);
    let small = produce(9, 1, &batch(&["a"]));
    let rows = vec![(of_clients(), producers(100.0 * RATE))];
    fixture.apply(MetadataDelta { quotas: Some(rows), ..MetadataDelta::default() });
    assert_eq!(put(&mut fixture, &mut conn, &small), 0);
    let rows = vec![(of_clients(), producers(RATE))];
    fixture.apply(MetadataDelta { quotas: Some(rows), ..MetadataDelta::default() });
    assert!(put(&mut fixture, &mut conn, &small) > 1000);
    fixture.apply(MetadataDelta { quotas: Some(Vec::new()), ..MetadataDelta::default() });
    assert_eq!(put(&mut fixture, &mut conn, &small), 0);
    fixture.apply(MetadataDelta::default());
    assert_eq!(put(&mut fixture, &mut conn, &small), 0);
}

/// A fixture with these many batches of 1000 bytes and more.
fn filled(rows: Vec<(QuotaEntity, QuotaLimits)>, batches: usize) -> TestBroker {
    let mut fixture = fixture(rows);
    let mut conn = fixture.connect();
    for _ in 0..batches {
        fixture.ask(&mut conn, &produce(9, 1, &batch(&[&"x".repeat(1000)])));
    }
    fixture
}

fn read(fixture: &mut TestBroker, conn: &mut Conn, fetch: Fetch) -> (i32, usize, i32) {
    let reply = fixture.ask(conn, &fetch.of(&[0]));
    throttled_fetch(fetch.version, &reply)
}

/// Throttle time, how many records, and the session.
fn throttled_fetch(version: i16, reply: &[u8]) -> (i32, usize, i32) {
    let response = FetchResponse::decode(&mut Reader::new(reply), version).unwrap();
    let throttle_time_ms = response.throttle_time_ms;
    let (error, session, partitions) = fetched(version, reply);
    assert_eq!(error, 0);
    let records = partitions.iter().map(|partition| values(&partition.3).len()).sum();
    (throttle_time_ms, records, session)
}

#[test]
fn a_consumer_over_its_rate_gets_no_records_until_its_throttle_time_is_over() {
    for version in [1, 4, 7, 12, 18] {
        let mut fixture = filled(vec![(of_clients(), consumers(RATE))], 6);
        let mut conn = fixture.connect();
        let fetch = Fetch { version, ..Fetch::default() };
        let reply = fixture.ask_a_worker(&mut conn, &fetch.of(&[0]));
        let first = FetchResponse::decode(&mut Reader::new(&reply), version).unwrap();
        assert_eq!((first.throttle_time_ms, conn.muted_ms), (0, 0));
        let reply = fixture.ask_a_worker(&mut conn, &fetch.of(&[0]));
        let empty = FetchResponse::decode(&mut Reader::new(&reply), version).unwrap();
        let wait_ms = empty.throttle_time_ms;
        assert!(wait_ms > 0 && empty.responses.is_empty(), "{version}: {wait_ms}");
        assert_eq!((conn.muted_ms, empty.session_id), (wait_ms, 0));
        fixture.ask_a_worker(&mut conn, &fetch.of(&[0]));
        assert_eq!(conn.muted_ms, wait_ms, "what was not sent does not count");
        fixture.clock.advance(11_000);
        let reply = fixture.ask_a_worker(&mut conn, &fetch.of(&[0]));
        let again = FetchResponse::decode(&mut Reader::new(&reply), version).unwrap();
        assert_eq!((again.throttle_time_ms, again.responses.len()), (0, 1));
    }
}

#[test]
fn an_answer_is_no_larger_than_the_quota_ever_allows() {
    let mut fixture = filled(vec![(of_clients(), consumers(RATE))], 20);
    let mut conn = fixture.connect();
    let (wait_ms, records, _) = read(&mut fixture, &mut conn, Fetch::default());
    assert!(records == 9 && wait_ms < 100, "ten seconds' worth and a header: {records} {wait_ms}");
}

#[test]
fn a_batch_larger_than_the_quota_is_sent_and_charged() {
    let mut fixture = filled(vec![(of_clients(), consumers(RATE / 100.0))], 2);
    let mut conn = fixture.connect();
    let (wait_ms, records, _) = read(&mut fixture, &mut conn, Fetch::default());
    assert!(wait_ms > 90_000, "{wait_ms}");
    assert_eq!((records, conn.muted_ms), (1, wait_ms));
    let (_, records, _) = read(&mut fixture, &mut conn, Fetch::default());
    assert_eq!(records, 0);
}

#[test]
fn a_throttled_session_continues_and_none_begins_with_an_empty_response() {
    let mut fixture = filled(vec![(of_clients(), consumers(RATE))], 6);
    let mut conn = fixture.connect();
    let begin = Fetch { session: (0, 0), ..Fetch::default() };
    let (_, records, id) = read(&mut fixture, &mut conn, begin);
    assert_eq!(records, 6);
    let next = |epoch| Fetch { session: (id, epoch), ..Fetch::default() };
    let (wait_ms, records, session) = read(&mut fixture, &mut conn, next(1));
    assert!(wait_ms > 0 && records == 0 && session == id);
    let (wait_ms, _, session) = read(&mut fixture, &mut conn, begin);
    assert!(wait_ms > 0 && session == 0);
    fixture.clock.advance(11_000);
    let (wait_ms, records, session) = read(&mut fixture, &mut conn, next(2));
    assert_eq!((wait_ms, records, session), (0, 6, id));
}

#[test]
fn a_long_poll_is_charged_when_it_is_answered() {
    let mut fixture = filled(vec![(of_clients(), consumers(RATE))], 6);
    let mut conn = fixture.connect();
    assert_eq!(read(&mut fixture, &mut conn, Fetch::default()).1, 6);
    let poll = Fetch { offset: 6, max_wait_ms: 500, ..Fetch::default() }.of(&[0]);
    fixture.event(&mut conn, std::slice::from_ref(&poll.bytes));
    assert!(conn.is_waiting() && conn.muted_ms == 0);
    let mut writer = fixture.connect();
    let records = batch(&[&"x".repeat(6000)]);
    fixture.ask(&mut writer, &of_client(produce(9, 1, &records), "writer"));
    fixture.turn(&mut [&mut conn]);
    let reply = conn.reply(&poll);
    let (wait_ms, records, _) = throttled_fetch(12, &reply);
    assert!(wait_ms > 0 && records == 0);
    assert_eq!(conn.muted_ms, wait_ms);
}

fn metadata(version: i16) -> Frame {
    let request = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
    frame(3, version, |writer, version| request.encode(writer, version))
}

#[test]
fn time_of_requests_is_limited_in_every_api() {
    let rows = vec![(of_clients(), limits(|it| it.request_percentage = Some(10.0)))];
    let mut fixture = fixture(rows);
    let mut conn = fixture.connect();
    // Each request takes half a second, once handled and once finished. Ten seconds' worth are two
    // of them: what those before a request took limits it.
    fixture.clock.step(250_000_000);
    for _ in 0..3 {
        fixture.ask(&mut conn, &metadata(12));
        assert_eq!(conn.muted_ms, 0);
    }
    fixture.ask(&mut conn, &metadata(12));
    assert!(conn.muted_ms > 0);
    let reply = fixture.ask(&mut conn, &metadata(12));
    let response = MetadataResponse::decode(&mut Reader::new(&reply), 12).unwrap();
    assert_eq!(response.throttle_time_ms, 1000, "never more than a window");
    assert_eq!(conn.muted_ms, 1000);
    fixture.ask(&mut conn, &metadata(0));
    assert_eq!(conn.muted_ms, 1000, "a client without a throttle time waits as well");
    for version in 0..=4 {
        fixture
            .ask(&mut conn, &raw(18, version, if version < 3 { &[] } else { b"\x02k\x021\x00" }));
        assert_eq!(conn.muted_ms, 1000, "ApiVersions {version}");
    }
    assert_eq!(put(&mut fixture, &mut conn, &produce(9, 1, &batch(&["a"]))), 1000);
    let (wait_ms, records, _) = read(&mut fixture, &mut conn, Fetch::default());
    assert_eq!((wait_ms, records, conn.muted_ms), (1000, 0, 1000));
    fixture.event(&mut conn, &[produce(9, 0, &batch(&["a"])).bytes]);
    assert_eq!(conn.muted_ms, 0, "but not where nothing is answered");
    let mut other = fixture.connect();
    fixture.ask(&mut other, &of_client(metadata(12), "other"));
    assert_eq!(other.muted_ms, 0);
}

#[test]
fn requests_that_the_policy_throttles_mute_their_connection() {
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    let request = raw(19, 5, &[1, 0, 0, 0, 100, 0, 0]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    let ticket = fixture.events().remove(0).ticket;
    let topics = Value::List(Vec::new());
    let answer = map(vec![("throttle_time_ms", Value::Int(321)), ("topics", topics)]);
    fixture.broker.answer(ticket, &answer).unwrap();
    fixture.turn(&mut [&mut conn]);
    assert_eq!(conn.reply(&request)[..4], 321i32.to_be_bytes());
    assert_eq!(conn.muted_ms, 321);
}

#[test]
fn connections_beyond_the_rate_of_their_address_are_closed() {
    let entity = QuotaEntity { ip: named("10.0.0.1"), ..QuotaEntity::default() };
    let mut fixture = fixture(vec![(entity, limits(|it| it.connection_creation_rate = Some(2.0)))]);
    let (here, there) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let came = |fixture: &mut TestBroker, ip| {
        fixture.broker.connection_throttle_ms(&mut fixture.thread, ip)
    };
    assert!((0..20).all(|_| came(&mut fixture, here).is_none()));
    assert_eq!(came(&mut fixture, here), Some(500));
    assert_eq!(came(&mut fixture, here), Some(500), "who is turned away does not count");
    assert!((0..100).all(|_| came(&mut fixture, there).is_none()));
    fixture.clock.advance(500);
    assert_eq!(came(&mut fixture, here), None);
    fixture.apply(MetadataDelta { quotas: Some(Vec::new()), ..MetadataDelta::default() });
    assert!((0..100).all(|_| came(&mut fixture, here).is_none()));
}
