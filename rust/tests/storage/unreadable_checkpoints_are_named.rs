//! For an unreadable checkpoint file, a log line says its name and what that costs, and no record
//! is lost.

use std::path::Path;

use krust::ids::Offset;
use krust::storage::recording::{Crash, RecordingDisk};
use std::sync::Arc;

use crate::corruption::captured_lines::CapturedLines;
use crate::support::{
    LogFixture, append_after_roll, batch, expected, fill, read_all, scratch, value,
};

/// A log of two segments, 0..10 and 10..20, closed in order together with its directory.
fn close_a_log(path: &Path) {
    let fixture = LogFixture::new(path);
    let log = fixture.open();
    fill(&log, 10);
    append_after_roll(&log, &batch(&[value(10).as_slice()]));
    fill(&log, 9);
    log.close().unwrap();
    fixture.dir.close().unwrap();
}

fn opened(path: &Path) -> (LogFixture, Vec<String>) {
    let lines = CapturedLines::default();
    let fixture = lines.collect(|| LogFixture::new(path));
    (fixture, lines.all())
}

#[test]
fn an_unreadable_checkpoint_loses_no_record() {
    for (file, cost) in [
        ("recovery-point-offset-checkpoint", "checked from their beginning"),
        ("log-start-offset-checkpoint", "delete them once more"),
        ("replication-offset-checkpoint", "nothing is lost"),
        ("cleaner-offset-checkpoint", "nothing is lost"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        close_a_log(dir.path());
        for wrong in ["0\n1\nt 0 2", "nonsense\n", "0\n1\nt 0 -4\n"] {
            std::fs::write(dir.path().join(file), wrong).unwrap();
            let (fixture, lines) = opened(dir.path());
            assert!(lines.iter().any(|it| it.contains(file) && it.contains(cost)), "{lines:?}");
            let log = fixture.open();
            assert!(log.damage().is_none());
            assert_eq!(read_all(&log), expected(0..20), "{file}");
        }
    }
}

#[test]
fn a_gap_that_a_cleaner_may_have_left_is_not_cut() {
    let dir = tempfile::tempdir().unwrap();
    close_a_log(dir.path());
    let path = LogFixture::new(dir.path()).file(0, "log");
    let mut bytes = std::fs::read(&path).unwrap();
    let size = bytes.len() / 10;
    bytes.drain(size * 4..size * 5);
    std::fs::write(&path, bytes).unwrap();
    for file in ["recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"] {
        std::fs::write(dir.path().join(file), "nonsense\n").unwrap();
    }
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    assert_eq!(log.log_end_offset(), Offset(20));
    assert_eq!(read_all(&log).len(), 19);
}

#[test]
fn a_power_cut_brings_back_no_segment_below_the_start() {
    let place = scratch();
    let root = place.path().join("data");
    std::fs::create_dir(&root).unwrap();
    let disk = Arc::new(RecordingDisk::new(&root).unwrap());
    let fixture = LogFixture::on(&root, Arc::clone(&disk) as _);
    let log = fixture.open();
    fill(&log, 10);
    append_after_roll(&log, &batch(&[value(10).as_slice()]));
    fill(&log, 9);
    log.flush().unwrap();
    log.delete_records(Offset(10)).unwrap();
    fixture.dir.checkpoint().unwrap();
    let begin = disk.ops();
    assert_eq!(log.retain(crate::support::NOW_MS).unwrap(), 1);
    fixture.dir.checkpoint().unwrap();
    for ops in begin..=disk.ops() {
        for (number, crash) in
            [Crash::Chosen { mask: 0 }, Crash::PowerCut { seed: 7 }].into_iter().enumerate()
        {
            let image = place.path().join(format!("{ops}-{number}"));
            std::fs::create_dir(&image).unwrap();
            disk.crash(ops, crash, &image).unwrap();
            let log = LogFixture::new(&image).open();
            assert_eq!(log.log_start_offset(), Offset(10), "after {ops} of {}", disk.ops());
            assert_eq!(read_all(&log), expected(10..20));
        }
    }
}
