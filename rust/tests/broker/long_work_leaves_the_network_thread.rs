//! Workers do what takes long: they check large compressed batches, convert records for old
//! consumers and make segments. The network thread does little, and the order of replies stays.

use std::sync::Arc;

use krust::broker::{Flow, Settings};
use krust::record::batch::{Batch, HEADER_SIZE, Header};
use krust::record::compression::Codec;
use krust::record::convert::{LegacyTarget, to_legacy};
use krust::storage::{Log, LogConfig};

use crate::double::{Conn, Made, TestBroker};
use crate::records::{
    Fetch, TOPIC, batch, batch_with, fetched, get, produce, produce_to, produced, produced_to, put,
    values,
};

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
/// More than a network thread inflates for one request.
const INFLATED: usize = 6 << 20;
/// What it may do for one in all, in bytes.
const HERE: u64 = 3 << 20;

fn fixture(partitions: i32) -> (TestBroker, Conn) {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made { partitions, ..Made::default() });
    let conn = fixture.connect();
    (fixture, conn)
}

/// A batch of one record that inflates to [`INFLATED`] bytes.
fn large(codec: Codec) -> Vec<u8> {
    batch_with(&[&"x".repeat(INFLATED)], codec, |_| {})
}

/// A batch of as much that does not compress well, and so is large itself.
fn large_and_wide(codec: Codec) -> Vec<u8> {
    let mut state = 1_u32;
    let text: String = (0..INFLATED / 8)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + (state >> 28) as u8)
        })
        .collect();
    batch_with(&[&text], codec, |_| {})
}

#[test]
fn a_large_compressed_batch_is_checked_by_a_worker() {
    let (mut fixture, mut conn) = fixture(1);
    for (number, codec) in (0..).zip(CODECS) {
        for (offset, records) in [(0, large(codec)), (1, large_and_wide(codec))] {
            fixture.broker.work().take_longest();
            let request = produce(9, 1, &records);
            fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
            assert!(conn.is_waiting(), "{codec:?}");
            let work = fixture.broker.work().take_longest();
            assert!(work < request.bytes.len() as u64 + HERE, "{codec:?}: {work}");
            fixture.turn_until_sent(&mut conn);
            let reply = conn.reply(&request);
            assert_eq!(produced(9, &reply), (0, 2 * number + offset), "{codec:?}");
        }
    }
    assert_eq!(fixture.broker.memory().usage().used, 0);
}

#[test]
fn a_garbled_batch_is_refused_by_a_worker() {
    let (mut fixture, mut conn) = fixture(1);
    let good = large_and_wide(Codec::Lz4);
    let header = Header::read(&good).unwrap();
    let records: Vec<u8> = good[HEADER_SIZE..].iter().map(|byte| byte ^ 0x55).collect();
    let bad = [&header.seal(&records)[..], &records].concat();
    let reply = fixture.ask_a_worker(&mut conn, &produce(9, 1, &bad));
    assert_eq!(produced(9, &reply), (87, -1));
    let unanswered = produce(9, 0, &bad);
    fixture.event(&mut conn, std::slice::from_ref(&unanswered.bytes));
    crate::double::until("the connection stays", || {
        fixture.turn(&mut [&mut conn]);
        conn.flow == Flow::Close
    });
}

#[test]
fn a_batch_waits_until_there_is_memory_for_its_copy() {
    let (mut fixture, mut conn) = fixture(1);
    let pool = fixture.broker.memory().clone();
    let all = pool.lease(pool.usage().limit).unwrap();
    let request = produce(9, 1, &large(Codec::Lz4));
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert!(!conn.is_waiting() && conn.sent.is_empty() && conn.muted_ms > 0);
    drop(all);
    fixture.clock.advance(1_000);
    fixture.turn_until_sent(&mut conn);
    assert_eq!(produced(9, &conn.reply(&request)), (0, 0));
}

#[test]
fn batches_around_a_long_one_keep_their_order() {
    let (mut fixture, mut conn) = fixture(1);
    let requests = [batch(&["a"]), large(Codec::Gzip), batch(&["b"])].map(|it| produce(9, 1, &it));
    fixture.event(&mut conn, &requests.clone().map(|it| it.bytes));
    crate::double::until("not all was answered", || {
        fixture.turn(&mut [&mut conn]);
        !conn.is_waiting()
            && fixture.broker.image().topic(TOPIC).is_some_and(|topic| {
                let partition = topic.partition(0).and_then(|it| it.local.as_ref());
                partition.is_some_and(|it| it.log.log_end_offset().0 == 3)
            })
    });
    for (offset, request) in (0..).zip(&requests) {
        assert_eq!(produced(9, &conn.reply(request)), (0, offset));
    }
}

/// A topic whose segments have room for two small batches.
fn small_segments(fixture: &mut TestBroker) -> Conn {
    let segment_bytes = 2 * batch(&["a"]).len() as u64;
    let config = LogConfig { segment_bytes, ..LogConfig::default() };
    fixture.topic(TOPIC, Made { config, ..Made::default() });
    fixture.connect()
}

fn log(fixture: &TestBroker) -> Arc<Log> {
    let image = fixture.broker.image();
    let partition = image.topic(TOPIC).and_then(|topic| topic.partition(0)).unwrap();
    Arc::clone(&partition.local.as_ref().unwrap().log)
}

#[test]
fn a_worker_makes_each_segment_of_a_log() {
    let mut fixture = TestBroker::new();
    let mut conn = small_segments(&mut fixture);
    for offset in 0..8 {
        let request = produce(9, 1, &batch(&["a"]));
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        // The one after a roll waits if the sync that the roll asked for is in the way.
        assert!(conn.is_waiting() || offset % 2 == 1, "offset {offset}");
        fixture.turn_until_idle(&mut conn);
        assert_eq!(produced(9, &conn.reply(&request)), (0, offset));
    }
    assert_eq!(log(&fixture).segment_summaries().unwrap().len(), 4);
    assert_eq!(fixture.broker.memory().usage().used, 0);
}

#[test]
fn a_worker_opens_the_indexes_for_the_first_append_after_a_start() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    let mut fixture = fixture.again();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    for (offset, by_a_worker) in [(1, true), (2, false)] {
        let request = produce(9, 1, &batch(&["b"]));
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        assert_eq!(conn.is_waiting(), by_a_worker, "offset {offset}");
        fixture.turn_until_idle(&mut conn);
        assert_eq!(produced(9, &conn.reply(&request)), (0, offset));
    }
}

#[test]
fn batches_around_a_roll_keep_their_order() {
    let mut fixture = TestBroker::new();
    let mut conn = small_segments(&mut fixture);
    let texts = ["a", "b", "c", "d", "e"];
    let requests = texts.map(|text| produce(9, 1, &batch(&[text])));
    fixture.event(&mut conn, &requests.clone().map(|it| it.bytes));
    for (offset, request) in (0..).zip(&requests) {
        if conn.sent.is_empty() {
            fixture.turn_until_sent(&mut conn);
        }
        assert_eq!(produced(9, &conn.reply(request)), (0, offset));
    }
    let stored = (0..).zip(texts.map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(values(&fixture.log(TOPIC, 0)), stored);
}

#[test]
fn a_set_of_many_batches_of_an_old_producer_is_stored_once_beside_a_roll() {
    let mut fixture = TestBroker::new();
    let mut conn = small_segments(&mut fixture);
    assert_eq!(put(&mut fixture, &mut conn, (9, 1, &batch(&["a"]))), (0, 0));
    let set = [batch(&["b"]), batch(&["c"])].concat();
    assert_eq!(put(&mut fixture, &mut conn, (2, 1, &set)), (0, 1));
    let stored = [(0, "a".to_owned()), (1, "b".to_owned()), (2, "c".to_owned())];
    assert_eq!(values(&fixture.log(TOPIC, 0)), stored);
}

#[test]
fn one_request_of_many_partitions_is_answered_once_and_stored_once() {
    let (mut fixture, mut conn) = fixture(4);
    let (small, large) = (batch(&["a"]), large(Codec::Lz4));
    let request = produce_to(9, -1, &[(0, &small), (1, &large), (2, &small), (9, &small)]);
    let reply = fixture.ask_a_worker(&mut conn, &request);
    assert_eq!(produced_to(9, &reply), [(0, 0), (0, 0), (0, 0), (3, -1)]);
    for partition in [0, 2] {
        assert_eq!(values(&fixture.log(TOPIC, partition)), [(0, "a".to_owned())]);
    }
    assert_eq!(fixture.log(TOPIC, 1).len(), large.len());
}

#[test]
fn a_wrapper_of_an_old_producer_is_converted_by_a_worker() {
    let (mut fixture, mut conn) = fixture(1);
    let (bytes, mut set) = (large(Codec::Gzip), Vec::new());
    let target = LegacyTarget { magic: 1, first_offset: 0 };
    to_legacy(&Batch::parse(&bytes).unwrap(), &target, &mut usize::MAX.clone(), &mut set).unwrap();
    let request = produce(2, 1, &set);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert!(conn.is_waiting());
    fixture.turn_until_sent(&mut conn);
    assert_eq!(produced(2, &conn.reply(&request)), (0, 0));
}

#[test]
fn old_consumers_are_served_by_a_worker_from_memory_that_all_of_them_share() {
    let settings = Settings { converted_memory_bytes: 1 << 20, ..Settings::default() };
    let mut fixture = TestBroker::with(settings);
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let records = batch(&[&"y".repeat(50_000)[..]; 4]);
    for _ in 0..4 {
        fixture.ask(&mut conn, &produce(9, 1, &records));
    }
    let pool = fixture.broker.converted_memory().clone();
    let all = pool.lease(1 << 20).unwrap();
    let fetch = Fetch { version: 2, ..Fetch::default() };
    let request = fetch.of(&[0]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    crate::double::until("nobody asked for memory", || {
        fixture.turn(&mut [&mut conn]);
        pool.usage().refused > 0
    });
    assert!(conn.sent.is_empty() && conn.is_waiting());
    drop(all);
    crate::double::until("no answer", || {
        fixture.clock.advance(20);
        fixture.turn(&mut [&mut conn]);
        !conn.sent.is_empty()
    });
    let (_, _, partitions) = fetched(2, &conn.reply(&request));
    assert!(partitions[0].3.len() >= 64 << 10);
    assert_eq!(pool.usage().used, 0);
    assert!(!get(&mut fixture, &mut conn, fetch).2.is_empty());
    assert!(pool.usage().peak <= 1 << 20);
}
