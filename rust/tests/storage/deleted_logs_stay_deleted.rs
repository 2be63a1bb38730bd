//! A deleted log is renamed at once and removed later. It does not come back after a crash, and a
//! later log of its name inherits nothing of it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use krust::clock::Clock;
use krust::ids::TopicPartition;
use krust::storage::recording::{Crash, RecordingDisk};
use krust::storage::{DeletedLog, Deletions, Intervals, LogScheduler};

use crate::support::{LogFixture, append, batch, delete, expected, fill, read_all, scratch};

#[test]
fn a_deleted_log_stays_deleted_after_a_power_failure() {
    let root = scratch();
    let disk = Arc::new(RecordingDisk::new(root.path()).unwrap());
    let fixture = LogFixture::on(&root.path().join("data"), Arc::clone(&disk) as _);
    let log = fixture.open();
    fill(&log, 3);
    log.flush().unwrap();
    delete(&log);
    let image = scratch();
    disk.crash(disk.ops(), Crash::Chosen { mask: 0 }, image.path()).unwrap();
    assert!(!image.path().join("data/t-0").exists());
}

#[test]
fn a_thousand_deletions_sync_the_directory_and_the_checkpoints_once() {
    let root = scratch();
    let disk = Arc::new(RecordingDisk::new(root.path()).unwrap());
    let fixture = LogFixture::on(&root.path().join("data"), Arc::clone(&disk) as _);
    let name = |number| TopicPartition::new("t", number);
    let logs: Vec<_> = (0..1000).map(|number| fixture.open_named(&name(number))).collect();
    logs.iter().for_each(|log| fill(log, 1));
    fixture.dir.checkpoint().unwrap();
    let before = disk.syncs();
    let mut deletions = Deletions::default();
    logs.iter().for_each(|log| log.delete(&mut deletions).unwrap());
    let (deleted, outcome) = deletions.sync();
    outcome.unwrap();
    assert_eq!(deleted.len(), 1000);
    assert!(disk.syncs() - before <= 10, "{} syncs", disk.syncs() - before);
    deleted.iter().for_each(DeletedLog::remove);
    let left = std::fs::read_dir(root.path().join("data")).unwrap();
    let dirs = left.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir());
    assert_eq!(dirs.count(), 0);
}

#[test]
fn a_log_of_the_same_name_may_begin_before_the_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let old = fixture.open();
    fill(&old, 5);
    fixture.dir.checkpoint().unwrap();
    let mut deletions = Deletions::default();
    old.delete(&mut deletions).unwrap();
    let (deleted, outcome) = deletions.sync();
    outcome.unwrap();
    let new = fixture.open_with(false);
    fill(&new, 2);
    deleted.iter().for_each(DeletedLog::remove);
    assert_eq!(read_all(&new), expected(0..2));
    assert!(append(&old, &batch(&[b"x"])).is_err());
    drop((new, old, deleted, fixture));
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    assert!(log.damage().is_none());
    assert_eq!(read_all(&log), expected(0..2));
}

#[test]
fn a_job_of_the_log_scheduler_ends_early_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let clock = Arc::new(fixture.clock.clone()) as Arc<dyn Clock>;
    let dirs = vec![Arc::clone(&fixture.dir)];
    let scheduler = LogScheduler::start(dirs, Intervals::default(), clock, Vec::new()).unwrap();
    let (begun, begins) = channel();
    scheduler.submit(Box::new(move |scheduler| {
        begun.send(()).unwrap();
        while !scheduler.is_stopping() {
            std::thread::yield_now();
        }
    }));
    let (ran, runs) = channel();
    scheduler.submit(Box::new(move |_| ran.send(()).unwrap()));
    begins.recv_timeout(Duration::from_secs(60)).unwrap();
    scheduler.stop();
    assert!(runs.recv().is_err(), "a job that had not begun is dropped");
}
