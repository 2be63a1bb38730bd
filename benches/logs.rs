//! Shared by the programs that measure a log: its directory, its appends, flags, CPU time.

use std::path::Path;
use std::sync::Arc;

use krust::clock::SystemClock;
use krust::ids::{Epoch, TopicId, TopicPartition};
use krust::record::batch::{self, Batch, ValidationRules};
use krust::storage::{Descriptors, DirOptions, Log, LogConfig, LogDir, Open};

/// The flags that the program was given, each with its value.
pub fn flags() -> impl Iterator<Item = (String, String)> {
    let mut given = std::env::args().skip(1);
    std::iter::from_fn(move || {
        let flag = given.next()?;
        let value = given.next().expect("a value after each flag");
        Some((flag, value))
    })
}

/// Opens the log of partition 0 of `bench` as a broker would: recovered unless it is clean.
pub fn open(path: &Path, config: LogConfig) -> (Arc<LogDir>, Arc<Log>) {
    let descriptors = Descriptors::new(4096);
    let dir = LogDir::open(path, &DirOptions { descriptors, ..DirOptions::default() }).unwrap();
    let log = open_one(&dir, 0, config);
    (dir, log)
}

/// Opens the log of a partition of `bench` in a directory, as a broker would.
pub fn open_one(dir: &Arc<LogDir>, number: i32, config: LogConfig) -> Arc<Log> {
    let open = Open {
        dense: !config.compact,
        config: Arc::new(config),
        topic_id: Some(TopicId([1; 16])),
        leader_epoch: Some(Epoch(0)),
        clean: dir.was_clean(),
        clock: Arc::new(SystemClock),
        syncer: None,
        checking: None,
    };
    Log::open(dir, &TopicPartition::new("bench", number), open).unwrap()
}

/// Appends a batch as a producer's.
pub fn append(log: &Log, bytes: &[u8], now_ms: i64) {
    let batch = Batch::parse(bytes).unwrap();
    let validated = batch::check(&batch, &ValidationRules::default()).unwrap();
    let staged =
        log.stage(&krust::storage::NewBatch::new(&batch, &validated, now_ms)).unwrap().staged;
    log.commit(staged).unwrap();
}

/// CPU time of the main thread so far, in user and system mode.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}
