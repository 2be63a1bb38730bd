//! A panic in a storage thread affects only the log or task that the thread worked on, and a thread
//! never ends silently.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use krust::clock::Clock;
use krust::ids::{Offset, TopicPartition};
use krust::storage::files::{Disk, RealDisk};
use krust::storage::{
    AppendError, Cleaner, CleanerOptions, FutureReplicas, Intervals, Log, LogConfig, LogScheduler,
    ScheduledTask, StorageError, Syncer,
};

use crate::support::{LogFixture, append, batch, expected, fill, keyed, read_all, stage};

/// For how long a test waits for a thread, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// A disk that panics: when it syncs data, or when it makes or renames a file whose path has a
/// word.
#[derive(Debug, Default)]
struct Panics {
    in_sync: AtomicBool,
    over: Mutex<Option<&'static str>>,
}

impl Panics {
    fn look(&self, path: &Path) {
        let over = *self.over.lock().unwrap();
        let path = format!("{}/", path.display());
        let hit = over.is_some_and(|word| path.contains(word));
        assert!(!hit, "planted: {path}");
    }

    fn over(&self, word: &'static str) {
        *self.over.lock().unwrap() = Some(word);
    }
}

impl Disk for Panics {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.look(path);
        RealDisk.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.look(from);
        self.look(to);
        RealDisk.rename(from, to)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        assert!(!self.in_sync.load(Ordering::SeqCst), "planted in a sync");
        file.sync_data()
    }
}

fn fixture(path: &Path) -> (LogFixture, Arc<Panics>) {
    let disk = Arc::new(Panics::default());
    (LogFixture::on(path, Arc::clone(&disk) as _), disk)
}

fn other() -> TopicPartition {
    TopicPartition::new("other", 0)
}

/// Ends a test's threads, also when it fails.
struct Stop<F: FnMut()>(F);

impl<F: FnMut()> Drop for Stop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_panic_of_a_sync_reaches_those_who_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut fixture, disk) = fixture(dir.path());
    fixture.config.ack_flush = true;
    let (tell, reported) = channel();
    let syncer = Syncer::start(Box::new(move |name| tell.send(name.clone()).unwrap())).unwrap();
    let log = fixture.open_synced(&fixture.name, &syncer);
    disk.in_sync.store(true, Ordering::SeqCst);
    let appended = stage(&log, &batch(&[b"x"])).unwrap();
    log.commit(appended.staged).unwrap();
    assert_eq!(reported.recv_timeout(PATIENCE).unwrap(), fixture.name, "the waker is called");
    assert!(log.is_offline());
    assert_eq!(log.flushed_offset(), Offset(0));
    disk.in_sync.store(false, Ordering::SeqCst);
    let refused = append(&log, &batch(&[b"x"]));
    assert!(matches!(refused, Err(AppendError::Storage(StorageError::Offline(_)))));
    assert!(!syncer.has_failed(), "other directories are synced as before");
    syncer.stop();
}

#[test]
fn a_panic_of_the_waker_ends_the_sync_thread() {
    let dir = tempfile::tempdir().unwrap();
    let (mut fixture, _) = fixture(dir.path());
    fixture.config.ack_flush = true;
    let (tell, reported) = channel();
    let waker = move |_: &TopicPartition| {
        tell.send(()).unwrap();
        panic!("planted");
    };
    let syncer = Syncer::start(Box::new(waker)).unwrap();
    let log = fixture.open_synced(&fixture.name, &syncer);
    append(&log, &batch(&[b"x"])).unwrap();
    reported.recv_timeout(PATIENCE).unwrap();
    syncer.stop();
    assert!(syncer.has_failed());
}

/// A log scheduler with tasks every millisecond. The first one panics in its first rounds; each
/// round of the second is reported.
fn log_scheduler(fixture: &LogFixture, panics: usize) -> (Arc<LogScheduler>, Receiver<()>) {
    let (left, (tell, reported)) = (AtomicUsize::new(panics), channel());
    let less = move || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    let bad = ScheduledTask {
        interval_ms: 1,
        run: Box::new(move || assert!(less().is_err(), "planted")),
    };
    let tell = move || tell.send(()).unwrap_or_default();
    let good = ScheduledTask { interval_ms: 1, run: Box::new(tell) };
    let intervals = Intervals { retention_ms: 1, ..Intervals::default() };
    let clock = Arc::new(fixture.clock.clone()) as Arc<dyn Clock>;
    let log_scheduler =
        LogScheduler::start(vec![Arc::clone(&fixture.dir)], intervals, clock, vec![bad, good])
            .unwrap();
    (log_scheduler, reported)
}

#[test]
fn a_task_that_panics_twice_runs_later() {
    let dir = tempfile::tempdir().unwrap();
    let (fixture, _) = fixture(dir.path());
    let (log_scheduler, reported) = log_scheduler(&fixture, 2);
    for _ in 0..20 {
        reported.recv_timeout(PATIENCE).unwrap();
    }
    log_scheduler.stop();
    assert!(!log_scheduler.has_failed());
}

#[test]
fn a_task_that_panics_three_times_in_a_row_ends_the_thread() {
    let dir = tempfile::tempdir().unwrap();
    let (fixture, _) = fixture(dir.path());
    let (log_scheduler, reported) = log_scheduler(&fixture, usize::MAX);
    while reported.recv_timeout(PATIENCE).is_ok() {}
    log_scheduler.stop();
    assert!(log_scheduler.has_failed());
}

#[test]
fn a_panic_of_a_retention_affects_only_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let (mut fixture, disk) = fixture(dir.path());
    fixture.config = LogConfig { segment_bytes: 300, retention_bytes: 600, ..fixture.config };
    let logs = [fixture.open(), fixture.open_named(&other())];
    logs.iter().for_each(|log| fill(log, 30));
    disk.over("t-0/");
    let (log_scheduler, reported) = log_scheduler(&fixture, 0);
    let _stop = Stop(|| log_scheduler.stop());
    while logs[1].log_start_offset() == Offset(0) {
        reported.recv_timeout(PATIENCE).unwrap();
    }
    assert!(!log_scheduler.has_failed());
}

/// A log whose first segment has what is superseded.
fn dirty(log: &Log) {
    for n in 0..20 {
        let value = n.to_string();
        append(log, &keyed(&[("key", Some(&value))])).unwrap();
    }
}

#[test]
fn a_panic_of_a_cleaning_affects_only_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let (mut fixture, disk) = fixture(dir.path());
    fixture.config =
        LogConfig { segment_bytes: 300, compact: true, delete: false, ..fixture.config };
    fixture.dense = false;
    let logs = [fixture.open(), fixture.open_named(&other())];
    logs.iter().for_each(|log| dirty(log));
    let before = [logs[0].size(), logs[1].size()];
    disk.over("t-0/");
    let options = CleanerOptions {
        dedupe_buffer_bytes: 1 << 20,
        io_buffer_bytes: 64 << 10,
        backoff_ms: 1,
        ..CleanerOptions::default()
    };
    let clock = Arc::new(fixture.clock.clone()) as Arc<dyn Clock>;
    let cleaner = Cleaner::start(vec![Arc::clone(&fixture.dir)], options, clock).unwrap();
    let _stop = Stop(|| cleaner.stop());
    while logs[1].size() == before[1] {
        std::thread::yield_now();
    }
    assert_eq!(logs[0].size(), before[0]);
    assert!(!cleaner.has_failed());
    cleaner.stop();
    let again = logs[0].compact(fixture.clock.wall_ms(), &CleanerOptions::default());
    assert!(matches!(again, Ok(None)), "given up: {again:?}");
    assert!(!fixture.dir.is_offline());
}

#[test]
fn a_panic_of_a_segment_swap_takes_its_directory_offline() {
    let dir = tempfile::tempdir().unwrap();
    let (mut fixture, disk) = fixture(dir.path());
    fixture.config = LogConfig { segment_bytes: 300, compact: true, ..fixture.config };
    fixture.dense = false;
    let log = fixture.open();
    dirty(&log);
    disk.over(".swap");
    let outcome = log.compact(fixture.clock.wall_ms(), &CleanerOptions::default());
    assert!(matches!(outcome, Err(StorageError::Meta(_))), "{outcome:?}");
    assert!(fixture.dir.is_offline());
}

/// A log that shall move to another directory of a disk that panics over `word`.
fn moved(word: &'static str) -> (LogFixture, LogFixture, Arc<Log>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (here, disk) = fixture(&dir.path().join("here"));
    let there = LogFixture::on(&dir.path().join("there"), Arc::clone(&disk) as _);
    let log = here.open();
    fill(&log, 10);
    disk.over(word);
    let future_replicas = FutureReplicas::start(Box::new(|_| ())).unwrap();
    future_replicas.ask(&log, &there.dir, None);
    while !future_replicas.moves().is_empty() {
        std::thread::yield_now();
    }
    future_replicas.stop();
    assert!(!future_replicas.has_failed());
    *disk.over.lock().unwrap() = None;
    (here, there, log, dir)
}

#[test]
fn a_panic_of_a_move_ends_the_move() {
    let (here, there, log, _dir) = moved("0.log");
    assert!(Arc::ptr_eq(&log.dir(), &here.dir));
    assert!(!here.dir.is_offline() && !there.dir.is_offline());
    fill(&log, 1);
    assert_eq!(read_all(&log), expected(0..11));
    assert_eq!(there.dir.partitions().unwrap(), [], "the copy is gone");
}

#[test]
fn a_panic_of_a_directory_switch_takes_both_directories_offline() {
    let (here, there, log, _dir) = moved("there/t-0/");
    assert!(here.dir.is_offline() && there.dir.is_offline());
    assert!(append(&log, &batch(&[b"x"])).is_err());
}
