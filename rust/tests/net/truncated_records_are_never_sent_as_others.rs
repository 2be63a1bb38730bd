//! A reply whose records are cut from the log before they are sent ends early. It never goes on
//! with records that were appended later.

use std::io::Read;
use std::sync::Arc;

use krust::clock::SystemClock;
use krust::ids::{Offset, TopicPartition};
use krust::record::batch::{BatchBuilder, BatchFields, NewRecord};
use krust::storage::{DirOptions, Log, LogConfig, LogDir, LogReadRequest, Open};

use crate::double::{TestServer, framed};

/// More than the kernel takes of a reply that nobody reads.
const BATCHES: i64 = 48;
const BATCH_BYTES: usize = 1 << 20;

fn open(path: &std::path::Path) -> Arc<Log> {
    let dir = LogDir::open(path, &DirOptions::default()).unwrap();
    let options = Open {
        config: Arc::new(LogConfig { max_message_bytes: 2 << 20, ..LogConfig::default() }),
        topic_id: None,
        leader_epoch: None,
        clean: true,
        dense: true,
        clock: Arc::new(SystemClock),
        syncer: None,
        checking: None,
    };
    Log::open(&dir, &TopicPartition::new("t", 0), options).unwrap()
}

fn append(log: &Log, byte: u8) {
    let value = vec![byte; BATCH_BYTES];
    let mut builder = BatchBuilder::new();
    builder.add(&NewRecord { timestamp: 0, key: None, value: Some(&value), headers: &[] });
    log.append_as_leader(&builder.to_bytes(&BatchFields::default()).unwrap()).unwrap();
}

#[test]
fn a_reply_whose_unsent_records_are_cut_ends_with_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    (0..BATCHES).for_each(|_| append(&log, b'o'));
    let read = LogReadRequest {
        offset: Offset(0),
        max_bytes: usize::MAX,
        upper: log.log_end_offset(),
        min_one: true,
    };
    let [range] = log.read(read).unwrap().ranges.try_into().unwrap();
    let old = range.to_vec().unwrap();
    let site = TestServer::start();
    site.double.range.set(range).unwrap();
    let mut client = site.connect();
    std::io::Write::write_all(&mut client.0, &framed(b"r")).unwrap();
    let mut prefix = [0; 4];
    client.0.read_exact(&mut prefix).unwrap();
    assert_eq!(u32::from_be_bytes(prefix) as usize, old.len());
    // The kernel has less than half of the reply, and nobody reads it.
    let end = BATCHES * 3 / 4;
    log.truncate_to(Offset(end)).unwrap();
    (end..BATCHES).for_each(|_| append(&log, b'n'));
    let mut sent = Vec::new();
    let _ended = client.0.read_to_end(&mut sent);
    assert!(sent.len() < old.len(), "the reply was sent whole");
    assert!(old.starts_with(&sent), "other bytes than were promised");
    assert_eq!(log.log_end_offset(), Offset(BATCHES));
}
