//! A segment of any bytes: opening cuts it to whole batches, and a second opening cuts nothing.
#![no_main]

use std::fs;
use std::sync::Arc;

use krust::clock::ManualClock;
use krust::ids::{Epoch, TopicPartition};
use krust::storage::{DirOptions, Log, LogConfig, LogDir, Open};

fn open(path: &std::path::Path) -> Option<i64> {
    let dir = LogDir::open(path, &DirOptions::default()).expect("a directory of its own");
    let options = Open {
        config: Arc::new(LogConfig::default()),
        topic_id: None,
        leader_epoch: Some(Epoch(0)),
        clean: false,
        dense: false,
        clock: Arc::new(ManualClock::at(1_700_000_000_000)),
        syncer: None,
        checking: None,
    };
    let log = Log::open(&dir, &TopicPartition::new("t", 0), options).ok()?;
    Some(log.log_end_offset().0)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a place");
    let partition = home.path().join("t-0");
    fs::create_dir(&partition).expect("an empty directory");
    fs::write(partition.join("00000000000000000000.log"), bytes).expect("a file");
    if let Some(end) = open(home.path()) {
        assert_eq!(open(home.path()), Some(end));
    }
});
