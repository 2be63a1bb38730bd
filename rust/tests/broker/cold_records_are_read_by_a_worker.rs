//! Records that are on the disk only are read by a worker: no network thread waits for the disk.

use krust::storage::cold::without_waiting;
use krust::storage::{Log, LogReadRequest};

use crate::double::{Made, TestBroker};
use crate::records::{Fetch, TOPIC, batch, fetched, produce, produced, values};

const VERSION: i16 = 11;

/// Drops the log's pages from the page cache. False where this file system keeps them.
fn evict(log: &Log) -> bool {
    log.flush().unwrap();
    let upper = log.log_end_offset();
    let read =
        LogReadRequest { offset: log.log_start_offset(), max_bytes: 1 << 30, upper, min_one: true };
    let slice = log.read(read).unwrap();
    for range in &slice.ranges {
        let advice = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(&*range.file, 0, None, advice).unwrap();
    }
    !slice.ranges.iter().all(krust::storage::files::FileRange::is_cached)
}

fn fixture() -> (TestBroker, std::sync::Arc<Log>) {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    let text = "x".repeat(40_000);
    for offset in 0..8 {
        let request = produce(9, 1, &batch(&[&text]));
        let reply = fixture.ask(&mut conn, &request);
        assert_eq!(produced(9, &reply), (0, offset));
    }
    let image = fixture.broker.image();
    let partition = image.topic(TOPIC).and_then(|topic| topic.partition(0)).unwrap();
    let log = std::sync::Arc::clone(&partition.local.as_ref().unwrap().log);
    (fixture, log)
}

/// The records of a reply to a fetch.
fn records(reply: &[u8]) -> Vec<(i64, String)> {
    let (error, _, partitions) = fetched(VERSION, reply);
    assert_eq!((error, partitions[0].1), (0, 0));
    values(&partitions[0].3)
}

#[test]
fn a_cold_fetch_is_answered_by_a_worker_and_a_warm_one_at_once() {
    let (mut fixture, log) = fixture();
    let mut conn = fixture.connect();
    let request = Fetch { version: VERSION, offset: 3, ..Fetch::default() }.of(&[0]);
    if !evict(&log) {
        return;
    }
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert!(conn.is_waiting(), "a network thread waited for the disk");
    fixture.turn_until_sent(&mut conn);
    let cold = records(&conn.reply(&request));
    let warm = records(&fixture.ask(&mut conn, &request));
    assert_eq!(cold.len(), 5);
    assert_eq!(cold, warm);
}

#[test]
fn a_read_that_may_not_wait_fails_and_the_directory_stays_online() {
    let (_fixture, log) = fixture();
    if !evict(&log) {
        return;
    }
    let upper = log.log_end_offset();
    let read =
        LogReadRequest { offset: krust::ids::Offset(3), max_bytes: 1 << 20, upper, min_one: true };
    let error = without_waiting(|| log.read(read)).unwrap_err();
    assert!(matches!(&error, krust::storage::ReadError::Storage(error) if error.would_wait()));
    assert!(!log.is_offline());
    assert_eq!(log.read(read).unwrap().base_offset, Some(read.offset));
}
