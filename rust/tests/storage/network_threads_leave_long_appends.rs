//! A thread that serves many connections appends without making a file, without a sync, and without
//! waiting for who does: it leaves such an append, and nothing of it is staged.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use krust::ids::{Offset, TopicPartition};
use krust::record::batch::{self, Batch, ValidationRules};
use krust::storage::files::{Disk, RealDisk};
use krust::storage::{Appended, Descriptors, DirOptions, Log, NewBatch};

use crate::support::{LogFixture, NOW_MS, append, batch as batch_of, batch_of as of_producer};
use crate::support::{read_all, snapshot};

fn stage_at_once(log: &Log, bytes: &[u8]) -> Option<Appended> {
    let batch = Batch::parse(bytes).unwrap();
    let validated = batch::check(&batch, &ValidationRules::default()).unwrap();
    log.stage_at_once(&NewBatch::new(&batch, &validated, NOW_MS)).unwrap()
}

/// Appends at once; false where that is left to another thread.
fn append_at_once(log: &Log, bytes: &[u8]) -> bool {
    let staged = stage_at_once(log, bytes);
    staged.inspect(|appended| log.commit(appended.staged).unwrap()).is_some()
}

/// Segments with room for two of these batches.
fn two_a_segment(path: &Path) -> (LogFixture, Vec<u8>) {
    let bytes = batch_of(&[b"x"]);
    let mut fixture = LogFixture::new(path);
    fixture.config.segment_bytes = 2 * bytes.len() as u64;
    (fixture, bytes)
}

#[test]
fn an_append_that_needs_a_segment_is_left_and_changes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (fixture, bytes) = two_a_segment(dir.path());
    let log = fixture.open();
    for offset in [0, 2, 4] {
        let before = snapshot(dir.path());
        assert!(!append_at_once(&log, &bytes), "offset {offset}");
        assert_eq!(snapshot(dir.path()), before);
        assert_eq!(log.log_end_offset(), Offset(offset));
        append(&log, &bytes).unwrap();
        assert!(append_at_once(&log, &bytes));
    }
    assert_eq!(read_all(&log).len(), 6);
}

#[test]
fn an_append_that_needs_a_segment_is_left_also_behind_batches_that_are_staged() {
    let dir = tempfile::tempdir().unwrap();
    let (fixture, bytes) = two_a_segment(dir.path());
    let log = fixture.open();
    append(&log, &bytes).unwrap();
    let staged = stage_at_once(&log, &bytes).unwrap().staged;
    assert!(stage_at_once(&log, &bytes).is_none());
    append(&log, &bytes).unwrap();
    log.commit(staged).unwrap();
    assert_eq!(log.log_end_offset(), Offset(3));
}

#[test]
fn the_first_append_after_an_opening_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    append(&fixture.open(), &batch_of(&[b"x"])).unwrap();
    for clean in [false, true] {
        let log = fixture.open_with(clean);
        assert!(!append_at_once(&log, &batch_of(&[b"y"])), "clean: {clean}");
        append(&log, &batch_of(&[b"y"])).unwrap();
        assert!(append_at_once(&log, &batch_of(&[b"y"])), "clean: {clean}");
    }
}

#[test]
fn a_repeated_batch_is_answered_at_once_where_the_segment_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    let bytes = of_producer(7, 0, &[b"x"]);
    fixture.config.segment_bytes = bytes.len() as u64;
    let log = fixture.open();
    append(&log, &bytes).unwrap();
    let repeated = stage_at_once(&log, &bytes).unwrap();
    assert!(repeated.duplicate && repeated.base_offset == Offset(0));
    assert!(stage_at_once(&log, &of_producer(7, 1, &[b"x"])).is_none());
}

#[test]
fn an_append_that_must_sync_another_file_first_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let options = DirOptions { descriptors: Descriptors::new(1), ..DirOptions::default() };
    let fixture = LogFixture::with(dir.path(), &options);
    let [one, other] = [0, 1].map(|number| fixture.open_named(&TopicPartition::new("t", number)));
    append(&one, &batch_of(&[b"x"])).unwrap();
    append(&other, &batch_of(&[b"x"])).unwrap();
    let syncs = fixture.dir.syncs().count;
    assert!(!append_at_once(&one, &batch_of(&[b"y"])));
    assert_eq!(fixture.dir.syncs().count, syncs);
    append(&one, &batch_of(&[b"y"])).unwrap();
    assert!(append_at_once(&one, &batch_of(&[b"y"])));
}

/// A disk that says when a segment is made, and makes it when it is allowed to.
#[derive(Debug)]
struct SlowToMake(Mutex<(Sender<()>, Receiver<()>)>);

impl Disk for SlowToMake {
    fn create(&self, path: &Path) -> io::Result<File> {
        if path.extension().is_some_and(|kind| kind == "log") {
            let channels = self.0.lock().unwrap();
            channels.0.send(()).unwrap();
            channels.1.recv().unwrap();
        }
        RealDisk.create(path)
    }
}

#[test]
fn an_append_beside_a_roll_of_another_thread_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let ((began, begun), (go_on, allowed)) = (channel(), channel());
    let bytes = batch_of(&[b"x"]);
    let mut fixture =
        LogFixture::on(dir.path(), Arc::new(SlowToMake(Mutex::new((began, allowed)))));
    fixture.config.segment_bytes = bytes.len() as u64;
    let log = fixture.open();
    go_on.send(()).unwrap();
    append(&log, &bytes).unwrap();
    begun.recv().unwrap();
    let rolling = {
        let (log, bytes) = (Arc::clone(&log), bytes.clone());
        std::thread::spawn(move || append(&log, &bytes).unwrap().base_offset)
    };
    begun.recv().unwrap();
    assert!(stage_at_once(&log, &bytes).is_none());
    go_on.send(()).unwrap();
    assert_eq!(rolling.join().unwrap(), Offset(1));
    assert_eq!(read_all(&log).len(), 2);
}
