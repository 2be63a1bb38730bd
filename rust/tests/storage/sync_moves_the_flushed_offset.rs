//! The sync thread makes logs durable when the settings ask for it, and says so.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use krust::ids::{Offset, TopicPartition};
use krust::storage::files::Disk;
use krust::storage::recording::RecordingDisk;
use krust::storage::{Log, LogConfig, Syncer};

use crate::support::{LogFixture, append, batch, read_all, stage};

/// For how long a test waits for the sync thread, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A syncer, and where it says that it synced a log.
fn syncer() -> (Arc<Syncer>, mpsc::Receiver<TopicPartition>) {
    let (sender, receiver) = mpsc::channel();
    let tell = move |name: &TopicPartition| sender.send(name.clone()).unwrap();
    (Syncer::start(Box::new(tell)).unwrap(), receiver)
}

/// A log that is synced when the third record has come that no sync covers.
fn synced_at_three(
    fixture: &mut LogFixture,
) -> (Arc<Log>, Arc<Syncer>, mpsc::Receiver<TopicPartition>) {
    fixture.config.flush_messages = 3;
    let (syncer, receiver) = syncer();
    (fixture.open_synced(&fixture.name, &syncer), syncer, receiver)
}

/// The next sync is the one that covers all below `end`.
fn hear_of_a_sync(receiver: &mpsc::Receiver<TopicPartition>, log: &Log, end: i64) {
    receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(log.flushed_offset(), Offset(end));
}

#[test]
fn in_flush_mode_ack_the_high_watermark_waits_for_the_sync() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let mut fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    fixture.config.ack_flush = true;
    let (syncer, receiver) = syncer();
    let log = fixture.open_synced(&fixture.name, &syncer);
    let appended = stage(&log, &batch(&[b"x"])).unwrap();
    assert_eq!(log.raise_high_watermark(Offset(1)), Offset(0));
    log.commit(appended.staged).unwrap();
    while log.flushed_offset() < Offset(1) {
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), fixture.name);
    }
    assert_eq!(log.raise_high_watermark(Offset(1)), Offset(1));
    assert!(disk.syncs() >= 3, "data, directory, and the directory above");
    syncer.stop();
}

#[test]
fn in_flush_mode_ack_nobody_sees_what_is_not_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.ack_flush = true;
    let log = fixture.open();
    append(&log, &batch(&[b"x"])).unwrap();
    assert_eq!(log.raise_high_watermark(log.log_end_offset()), Offset(0));
    log.flush().unwrap();
    assert_eq!(log.raise_high_watermark(log.log_end_offset()), Offset(1));
}

#[test]
fn flush_messages_and_flush_ms_ask_for_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    let (log, syncer, receiver) = synced_at_three(&mut fixture);
    append(&log, &batch(&[b"x", b"y"])).unwrap();
    assert!(receiver.try_recv().is_err());
    append(&log, &batch(&[b"z"])).unwrap();
    hear_of_a_sync(&receiver, &log, 3);
    let config = krust::storage::LogConfig { flush_ms: 5, ..fixture.config.clone() };
    log.reconfigure(Arc::new(config));
    append(&log, &batch(&[b"x"])).unwrap();
    while log.flushed_offset() < Offset(4) {
        receiver.recv_timeout(PATIENCE).unwrap();
    }
    syncer.stop();
}

#[test]
fn flush_messages_counts_records_that_were_staged_when_a_sync_began() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    let (log, syncer, receiver) = synced_at_three(&mut fixture);
    let staged = stage(&log, &batch(&[b"x", b"y"])).unwrap().staged;
    assert_eq!(log.flush().unwrap(), Offset(0));
    log.commit(staged).unwrap();
    append(&log, &batch(&[b"z"])).unwrap();
    hear_of_a_sync(&receiver, &log, 3);
    syncer.stop();
}

#[test]
fn flush_messages_counts_records_that_a_recovery_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    append(&fixture.open(), &batch(&[b"x", b"y"])).unwrap();
    let (log, syncer, receiver) = synced_at_three(&mut fixture);
    assert_eq!(log.flushed_offset(), Offset(0));
    append(&log, &batch(&[b"z"])).unwrap();
    hear_of_a_sync(&receiver, &log, 3);
    syncer.stop();
}

#[test]
fn flush_messages_counts_records_that_a_cut_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    let (log, syncer, receiver) = synced_at_three(&mut fixture);
    for value in [b"x", b"y", b"z"] {
        append(&log, &batch(&[value])).unwrap();
    }
    receiver.recv_timeout(PATIENCE).unwrap();
    log.truncate_to(Offset(1)).unwrap();
    append(&log, &batch(&[b"y", b"z", b"w"])).unwrap();
    hear_of_a_sync(&receiver, &log, 4);
    syncer.stop();
}

#[test]
fn recovered_records_are_synced_without_an_append() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    append(&fixture.open(), &batch(&[b"in the page cache"])).unwrap();
    fixture.config.flush_messages = 1;
    let (syncer, receiver) = syncer();
    let log = fixture.open_synced(&fixture.name, &syncer);
    receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(log.flushed_offset(), Offset(1));
    syncer.stop();
}

#[test]
fn stricter_flush_settings_apply_without_an_append() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    let (syncer, receiver) = syncer();
    let log = fixture.open_synced(&fixture.name, &syncer);
    append(&log, &batch(&[b"x"])).unwrap();
    fixture.config.ack_flush = true;
    log.reconfigure(Arc::new(fixture.config.clone()));
    receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(log.flushed_offset(), Offset(1));
    syncer.stop();
}

#[test]
fn an_idle_event_costs_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let log = fixture.open();
    append(&log, &batch(&[b"first"])).unwrap();
    let before = disk.writes();
    let mut last = None;
    for _ in 0..100 {
        last = Some(stage(&log, &batch(&[b"x"])).unwrap().staged);
    }
    log.commit(last.unwrap()).unwrap();
    assert_eq!(disk.writes(), before + 1);
    assert_eq!(log.log_end_offset(), Offset(101));
    assert_eq!(disk.syncs(), 0, "nobody asked for a sync");
}

/// A disk that counts the files that were truncated, or whose reserve was given back.
#[derive(Debug, Default)]
struct CountsCuts(AtomicUsize);

impl Disk for CountsCuts {
    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        if file.metadata()?.len() > 0 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        file.set_len(len)
    }
}

#[test]
fn a_roll_leaves_reserved_disk_to_the_flush_that_follows_to_a_close_or_to_recovery() {
    use std::os::unix::fs::MetadataExt;
    type End = fn(&Log);
    let ends: [(&str, End, usize); 3] = [
        ("flush", |log| assert_eq!(log.flush().unwrap(), log.log_end_offset()), 1),
        ("close", |log| log.close().unwrap(), 2),
        ("crash", |_| {}, 0),
    ];
    for (name, end, cuts) in ends {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(CountsCuts::default());
        let mut fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
        (fixture.config.preallocate, fixture.config.flush_messages) = (true, 1);
        let (syncer, receiver) = syncer();
        let log = fixture.open_synced(&fixture.name, &syncer);
        append(&log, &batch(&[b"x"])).unwrap();
        receiver.recv_timeout(PATIENCE).unwrap();
        syncer.stop();
        let small = LogConfig { segment_bytes: 100, ..fixture.config.clone() };
        log.reconfigure(Arc::new(small));
        append(&log, &batch(&[b"x"])).unwrap();
        assert_eq!(log.segment_summaries().unwrap().len(), 2);
        assert_eq!(disk.0.load(Ordering::SeqCst), 0, "{name}: the roll gave it back");
        end(&log);
        assert_eq!(disk.0.load(Ordering::SeqCst), cuts, "{name}");
        drop(log);
        let log = fixture.open_with(false);
        let reserved = std::fs::metadata(fixture.file(0, "log")).unwrap().blocks() * 512;
        assert!(reserved < 1 << 20, "{name}: {reserved}");
        assert_eq!(read_all(&log).len(), 2);
    }
}

#[test]
fn disk_reserved_ahead_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.preallocate = true;
    let (syncer, receiver) = syncer();
    let log = fixture.open_synced(&fixture.name, &syncer);
    append(&log, &batch(&[b"x"])).unwrap();
    fixture.config.flush_messages = 1;
    log.reconfigure(Arc::new(fixture.config.clone()));
    append(&log, &batch(&[b"x"])).unwrap();
    receiver.recv_timeout(PATIENCE).unwrap();
    syncer.stop();
    let states = || std::fs::metadata(fixture.file(0, "log")).unwrap();
    let len = states().len();
    if states().blocks() * 512 < 1 << 20 {
        println!("this file system reserves nothing");
    }
    assert_eq!(len, log.size());
    drop(log);
    let log = fixture.open_with(false);
    assert!(states().blocks() * 512 < 1 << 20, "recovery gives it back");
    log.close().unwrap();
    assert_eq!(states().len(), len);
}
