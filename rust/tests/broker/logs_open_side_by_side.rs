//! Several threads open the logs at a start. The result is the same as with one thread, whatever
//! fails meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use krust::broker::image::{PartitionState, TopicDelta, TopicSettings};
use krust::broker::{ApplyError, Broker, LogManager, MetadataDelta, Settings};
use krust::clock::ManualClock;
use krust::ids::{Epoch, TopicId, TopicPartition};
use krust::record::batch::{self, Batch, BatchBuilder, BatchFields, NewRecord, ValidationRules};
use krust::storage::files::{Disk, RealDisk};
use krust::storage::recording::{Crash, RecordingDisk};
use krust::storage::{
    DirOptions, Log, LogConfig, LogDir, NewBatch, Open, OpeningProgress, StorageError,
};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::double::{Decisions, NOW_MS};

/// Enough of them that threads are worth it, however small they are.
const LOGS: i32 = 140;
const DIRS: [&str; 2] = ["a", "b"];
const TOPIC: TopicId = TopicId([7; 16]);

/// What is found of each log.
type LogStates = BTreeMap<TopicPartition, String>;

/// Calls something before a file is opened.
struct Hooked(Box<dyn Fn(&Path) + Send + Sync>);

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Disk for Hooked {
    fn open(&self, path: &Path) -> io::Result<File> {
        (self.0)(path);
        RealDisk.open(path)
    }
}

fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn append(log: &Log, number: i32, epoch: i32) {
    log.set_leader_epoch(Epoch(epoch));
    let mut builder = BatchBuilder::new();
    for n in 0..3 + number % 5 {
        let value = vec![b'a' + u8::try_from(n).unwrap(); 40 + number.unsigned_abs() as usize];
        builder.add(&NewRecord { timestamp: NOW_MS, value: Some(&value), ..NewRecord::default() });
    }
    let producer_id = if number % 2 == 0 { i64::from(number) } else { -1 };
    let fields = BatchFields {
        producer_id,
        producer_epoch: 0,
        base_sequence: epoch * (3 + number % 5),
        ..BatchFields::default()
    };
    let bytes = builder.to_bytes(&fields).unwrap();
    let batch = Batch::parse(&bytes).unwrap();
    let states = batch::check(&batch, &ValidationRules::default()).unwrap();
    log.commit(log.stage(&NewBatch::new(&batch, &states, NOW_MS)).unwrap().staged).unwrap();
}

/// Logs of every kind, in directories that were not shut down in order.
fn planted() -> TempDir {
    let home = scratch();
    for (index, name) in (0..).zip(DIRS) {
        let dir = LogDir::open(&home.path().join(name), &DirOptions::default()).unwrap();
        let mut logs = Vec::new();
        for number in (0..LOGS).filter(|number| number % 2 == index) {
            let open = Open {
                config: Arc::new(LogConfig { segment_bytes: 2000, ..LogConfig::default() }),
                topic_id: Some(TOPIC),
                leader_epoch: Some(Epoch(0)),
                clean: true,
                dense: true,
                clock: Arc::new(ManualClock::at(NOW_MS)),
                syncer: None,
                checking: None,
            };
            let log = Log::open(&dir, &TopicPartition::new("t", number), open).unwrap();
            (0..4).for_each(|epoch| append(&log, number, epoch));
            log.flush().unwrap();
            logs.push((number, log));
        }
        dir.checkpoint().unwrap();
        for (number, log) in &logs {
            append(log, *number, 4);
        }
    }
    (0..LOGS).for_each(|number| harm(home.path(), number));
    home
}

fn partition(home: &Path, number: i32) -> PathBuf {
    home.join(DIRS[number.unsigned_abs() as usize % 2]).join(format!("t-{number}"))
}

fn segments(partition: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(partition).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths.filter(|it| it.extension().is_some_and(|e| e == "log")).collect();
    found.sort();
    found
}

/// What a crash or worse may leave of a log.
fn harm(home: &Path, number: i32) {
    let path = partition(home, number);
    let segments = segments(&path);
    let last = OpenOptions::new().write(true).open(segments.last().unwrap()).unwrap();
    let size = last.metadata().unwrap().len();
    match number / 2 % 7 {
        0 => last.set_len(size - 9).unwrap(),
        1 => last.set_len(size + 4096).unwrap(),
        2 => last.write_all_at(&[0xA5; 300], size).unwrap(),
        3 => fs::remove_file(segments[0].with_extension("index")).unwrap_or_default(),
        4 => fs::write(path.join("leader-epoch-checkpoint"), "torn").unwrap(),
        5 if segments.len() == 1 => last.write_all_at(&[0xA5; 9], 70).unwrap(),
        _ => {}
    }
}

fn copied(from: &Path) -> TempDir {
    let to = scratch();
    for (path, bytes) in files(from) {
        let path = to.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    to
}

fn files(home: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn add(home: &Path, path: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(home, &path, found);
            } else if path.file_name().unwrap() != ".lock" {
                found.insert(path.strip_prefix(home).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    add(home, home, &mut found);
    found
}

fn broker(home: &Path, threads: usize, disk: Arc<dyn Disk>) -> Arc<Broker> {
    let options = DirOptions { disk, ..DirOptions::default() };
    let open = |name| LogDir::open(&home.join(name), &options).unwrap();
    let settings = Settings { recovery_threads_per_dir: threads, ..Settings::default() };
    let (store, clock) = (LogManager::new(DIRS.map(open).into()), ManualClock::at(NOW_MS));
    let broker = Broker::new(settings, store, Arc::<Decisions>::default(), Arc::new(clock));
    broker.load().unwrap();
    broker
}

/// The first delta: all logs are opened.
fn opened(broker: &Broker) -> Vec<ApplyError> {
    let state = PartitionState {
        leader: 0,
        leader_epoch: Epoch(5),
        isr: vec![0],
        replicas: vec![0],
        partition_epoch: 0,
    };
    let topic = TopicDelta {
        id: TOPIC,
        internal: false,
        settings: TopicSettings::default(),
        partitions: (0..LOGS).map(|number| (number, state.clone())).collect(),
    };
    let topics = vec![("t".into(), Some(topic))];
    broker.apply(MetadataDelta { version: 1, topics, ..MetadataDelta::default() })
}

fn log_states(broker: &Broker) -> LogStates {
    let state = |log: &Log| {
        format!(
            "{:?} {} bytes, {:?}, {:?}, {:?}, in {:?}",
            (log.log_start_offset(), log.log_end_offset()),
            log.size(),
            log.damage().map(ToString::to_string),
            log.epochs(),
            log.producers(),
            log.dir().path().file_name()
        )
    };
    broker.partitions().iter().map(|it| (it.name.clone(), state(&it.log))).collect()
}

/// What one thread finds, and what lies on the disk afterwards.
fn reference(home: &Path) -> (LogStates, BTreeMap<PathBuf, Vec<u8>>) {
    let copy = copied(home);
    let broker = broker(copy.path(), 1, Arc::new(RealDisk));
    assert!(opened(&broker).is_empty());
    let states = log_states(&broker);
    drop(broker);
    assert_eq!(states.len(), LOGS.unsigned_abs() as usize);
    assert!(states.values().any(|it| it.contains("is damaged")));
    (states, files(copy.path()))
}

#[test]
fn many_threads_open_logs_as_one_does() {
    let home = planted();
    let wanted = reference(home.path());
    for threads in [2, 8] {
        let copy = copied(home.path());
        let broker = broker(copy.path(), threads, Arc::new(RealDisk));
        assert!(opened(&broker).is_empty());
        let found = log_states(&broker);
        drop(broker);
        assert_eq!((found, files(copy.path())), wanted, "{threads} threads");
    }
}

#[test]
fn the_progress_numbers_are_true() {
    let home = planted();
    let all: usize = files(home.path())
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|kind| kind == "log"))
        .map(|(_, bytes)| bytes.len())
        .sum();
    let broker = broker(home.path(), 4, Arc::new(RealDisk));
    assert_eq!(broker.progress().snapshot(), OpeningProgress::default());
    assert!(opened(&broker).is_empty());
    let OpeningProgress { logs, opened, to_check, checked } = broker.progress().snapshot();
    assert_eq!((logs, opened), (140, 140));
    assert_eq!(to_check, checked);
    // All but the segments below the recovery points.
    assert!(to_check > all as u64 / 3 && to_check < all as u64, "{to_check} of {all}");
}

#[test]
fn a_directory_that_was_shut_down_in_order_has_nothing_to_check() {
    let home = planted();
    for is_clean in [false, true] {
        let broker = broker(home.path(), 2, Arc::new(RealDisk));
        assert!(opened(&broker).is_empty());
        assert_eq!(broker.progress().snapshot().to_check == 0, is_clean);
        broker.close().unwrap();
        for log in broker.partitions().iter().map(|it| &it.log).filter(|it| it.damage().is_none()) {
            let path = log.dir().path().join(log.name().to_string());
            let snapshot = path.join(format!("{:020}.snapshot", log.log_end_offset().0));
            assert!(snapshot.exists(), "the next start reads all headers of {}", log.name());
        }
    }
}

#[test]
fn a_log_that_cannot_be_opened_harms_no_other() {
    let home = planted();
    let (mut wanted, _) = reference(home.path());
    let bad = TopicPartition::new("t", 77);
    let newest = segments(&partition(home.path(), 77)).pop().unwrap();
    fs::remove_file(&newest).unwrap();
    fs::create_dir(&newest).unwrap();
    let broker = broker(home.path(), 8, Arc::new(RealDisk));
    let failures = opened(&broker);
    assert_eq!(failures.iter().map(|it| &it.partition).collect::<Vec<_>>(), [&bad]);
    wanted.remove(&bad);
    assert_eq!(log_states(&broker), wanted);
}

#[test]
fn a_panic_while_a_log_opens_ends_the_start() {
    let home = planted();
    let (wanted, _) = reference(home.path());
    let hook = |path: &Path| assert!(!path.to_string_lossy().contains("/t-77/"), "planted");
    let hurt = broker(home.path(), 8, Arc::new(Hooked(Box::new(hook))));
    let outcome = catch_unwind(AssertUnwindSafe(|| opened(&hurt)));
    assert!(outcome.unwrap_err().downcast_ref::<&str>().is_some_and(|it| it.contains("planted")));
    drop(hurt);
    let broker = broker(home.path(), 8, Arc::new(RealDisk));
    assert!(opened(&broker).is_empty());
    assert_eq!(log_states(&broker), wanted);
}

#[test]
fn an_interrupted_start_is_repeated_by_the_next() {
    let home = planted();
    let (wanted, _) = reference(home.path());
    let watched = Arc::new(OnceLock::new());
    let hook = {
        let (watched, seen) = (Arc::clone(&watched), Mutex::new(BTreeSet::new()));
        move |path: &Path| {
            let parts = path.iter().filter_map(OsStr::to_str);
            let log = parts.rev().find(|part| part.starts_with("t-")).map(str::to_owned);
            // The other threads wait for the lock: they open no further log meanwhile.
            let mut seen = seen.lock();
            if log.is_some_and(|log| seen.insert(log)) && seen.len() == 20 {
                let broker: &Arc<Broker> = watched.get().unwrap();
                broker.progress().give_up();
            }
        }
    };
    let left = broker(home.path(), 4, Arc::new(Hooked(Box::new(hook))));
    watched.set(Arc::clone(&left)).unwrap_or_default();
    let failures = opened(&left);
    assert!(failures.iter().all(|it| matches!(it.error, StorageError::Closed(_))));
    assert_eq!(left.partitions().len() + failures.len(), LOGS.unsigned_abs() as usize);
    // Those that were seen, and one a thread that had begun and not come to a file.
    assert!((20..=28).contains(&left.partitions().len()), "{}", left.partitions().len());
    assert_eq!(left.progress().snapshot().opened, 140);
    left.close().unwrap();
    let broker = broker(home.path(), 4, Arc::new(RealDisk));
    assert!(opened(&broker).is_empty());
    assert_eq!(log_states(&broker), wanted);
}

#[test]
fn a_crash_while_logs_open_loses_nothing() {
    let home = planted();
    let (wanted, _) = reference(home.path());
    let disk = Arc::new(RecordingDisk::new(&home.path().canonicalize().unwrap()).unwrap());
    let recorded = broker(home.path(), 8, Arc::clone(&disk) as _);
    assert!(opened(&recorded).is_empty());
    drop(recorded);
    let step = (disk.ops() / 12).max(1);
    for (seed, ops) in (0..).zip((0..=disk.ops()).step_by(step)) {
        for crash in [Crash::Kill { torn: 7 }, Crash::PowerCut { seed }] {
            let image = scratch();
            disk.crash(ops, crash, image.path()).unwrap();
            let broker = broker(image.path(), 8, Arc::new(RealDisk));
            assert!(opened(&broker).is_empty());
            assert_eq!(log_states(&broker), wanted, "{crash:?} after {ops} changes");
        }
    }
}
