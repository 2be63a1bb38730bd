//! Many logs are closed by one sync, then the marker is written. Whatever a crash leaves, the
//! marker exists only beside whole logs, and a disk that fails or hangs gets none.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use krust::ids::TopicPartition;
use krust::storage::files::Disk;
use krust::storage::recording::{Crash, DiskCall, InjectedFault, RecordingDisk};
use krust::storage::{Log, LogDir, close_all};

use crate::support::{LogFixture, expected, fill, read_all, scratch};

/// More than are synced one by one.
const LOGS: i32 = 70;
const MARKER: &str = ".kafka_cleanshutdown";
/// Nobody waits so long.
const PATIENCE: Duration = Duration::from_secs(600);
const EIO: i32 = 5;
const EOPNOTSUPP: i32 = 95;

fn name(number: i32) -> TopicPartition {
    TopicPartition::new("many", number)
}

/// Logs with two records each; those of even number are flushed.
fn written(fixture: &LogFixture) -> Vec<Arc<Log>> {
    let log = |number| {
        let log = fixture.open_named(&name(number));
        fill(&log, 2);
        if number % 2 == 0 {
            log.flush().unwrap();
        }
        log
    };
    (0..LOGS).map(log).collect()
}

fn dirs(fixture: &LogFixture) -> [Arc<LogDir>; 1] {
    [Arc::clone(&fixture.dir)]
}

/// How many calls were recorded from `first` on that `label` describes.
fn count(disk: &RecordingDisk, first: usize, label: &str) -> usize {
    (first..disk.ops()).filter(|op| disk.label(*op).starts_with(label)).count()
}

#[test]
fn many_logs_are_synced_at_once_and_few_one_by_one() {
    let place = scratch();
    let disk = Arc::new(RecordingDisk::new(place.path()).unwrap());
    let fixture = LogFixture::on(place.path(), Arc::clone(&disk) as _);
    let logs = written(&fixture);
    let first = disk.ops();
    close_all(&dirs(&fixture), logs, PATIENCE).unwrap();
    assert_eq!(count(&disk, first, "sync all"), 1);
    // The checkpoints and the marker: a file and its name each.
    assert!(count(&disk, first, "sync") < 16, "{} syncs", count(&disk, first, "sync"));

    let fixture = LogFixture::on(place.path(), Arc::clone(&disk) as _);
    let log = fixture.open_named(&name(0));
    fill(&log, 1);
    let first = disk.ops();
    close_all(&dirs(&fixture), vec![log], PATIENCE).unwrap();
    assert_eq!(count(&disk, first, "sync all"), 0);
}

#[test]
fn a_power_cut_leaves_the_marker_only_beside_whole_logs() {
    let place = scratch();
    let root = place.path().join("data");
    std::fs::create_dir(&root).unwrap();
    let disk = Arc::new(RecordingDisk::new(&root).unwrap());
    let fixture = LogFixture::on(&root, Arc::clone(&disk) as _);
    let logs = written(&fixture);
    let begin = disk.ops();
    close_all(&dirs(&fixture), logs, PATIENCE).unwrap();
    let synced = (begin..disk.ops()).find(|op| disk.label(*op) == "sync all").unwrap();
    let middle = begin + (synced - begin) / 2;
    let after = (synced + 1..=disk.ops()).step_by(2);
    let (mut marked, mut unmarked) = (0, 0);
    for (number, ops) in [begin, middle, synced, disk.ops()].into_iter().chain(after).enumerate() {
        let image = place.path().join(format!("image-{number}"));
        std::fs::create_dir(&image).unwrap();
        let seed = u64::try_from(number).unwrap() * 77 + 3;
        disk.crash(ops, Crash::PowerCut { seed }, &image).unwrap();
        let mut found = LogFixture::new(&image);
        let clean = found.dir.was_clean();
        assert!(ops > synced || !clean, "a marker before all was synced");
        if clean {
            marked += 1
        } else {
            unmarked += 1
        }
        for number in 0..LOGS {
            found.name = name(number);
            let log = found.open_with(clean);
            assert!(log.damage().is_none(), "after {ops}: {:?}", log.damage());
            if number % 2 == 0 || ops > synced {
                assert_eq!(read_all(&log), expected(0..2), "{number} after {ops}");
            }
        }
        std::fs::remove_dir_all(&image).unwrap();
    }
    assert!(marked > 0 && unmarked > 3, "{marked} with a marker, {unmarked} without");
}

#[test]
fn a_failed_file_system_sync_leaves_no_marker() {
    let place = scratch();
    let disk = Arc::new(RecordingDisk::new(place.path()).unwrap());
    let fixture = LogFixture::on(place.path(), Arc::clone(&disk) as _);
    let logs = written(&fixture);
    disk.inject(InjectedFault { call: DiskCall::SyncAll, code: EIO, skip: 0, times: 1 });
    assert!(close_all(&dirs(&fixture), logs, PATIENCE).is_err());
    assert!(fixture.dir.is_offline());
    assert!(!place.path().join(MARKER).exists());
}

#[test]
fn without_a_file_system_sync_each_log_is_synced() {
    let place = scratch();
    let disk = Arc::new(RecordingDisk::new(place.path()).unwrap());
    let fixture = LogFixture::on(place.path(), Arc::clone(&disk) as _);
    let logs = written(&fixture);
    disk.inject(InjectedFault { call: DiskCall::SyncAll, code: EOPNOTSUPP, skip: 0, times: 1 });
    let first = disk.ops();
    close_all(&dirs(&fixture), logs, PATIENCE).unwrap();
    let files = count(&disk, first, "sync 00000000000000000000.log");
    assert!(files >= usize::try_from(LOGS).unwrap(), "{files} files");
    assert!(place.path().join(MARKER).exists());
}

/// A disk whose syncs of all do not return before they are let go.
#[derive(Debug)]
struct Hanging(Mutex<Receiver<()>>);

impl Disk for Hanging {
    fn sync_all(&self, _handle: &File) -> io::Result<()> {
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }
}

#[test]
fn a_disk_that_hangs_does_not_delay_other_disks() {
    let (good, bad) = (scratch(), scratch());
    let (let_go, held) = channel();
    let homes = [
        LogFixture::on(bad.path(), Arc::new(Hanging(Mutex::new(held)))),
        LogFixture::new(good.path()),
    ];
    let dirs = homes.each_ref().map(|fixture| Arc::clone(&fixture.dir));
    let logs = homes.iter().flat_map(written).collect();
    assert!(close_all(&dirs, logs, Duration::from_millis(100)).is_err());
    let has_marker = |path: &Path| path.join(MARKER).exists();
    assert!(has_marker(good.path()) && !has_marker(bad.path()));
    assert!(homes[0].dir.is_offline() && !homes[1].dir.is_offline());
    let_go.send(()).unwrap();
}
