//! On a full disk appends are refused, no torn batch becomes visible, and reads continue. When
//! there is space again, appends continue by themselves.

use std::sync::Arc;

use krust::storage::recording::{DiskCall, InjectedFault, RecordingDisk};
use krust::storage::{AppendError, StorageError};

use crate::corruption::captured_lines::CapturedLines;
use crate::support::{LogFixture, append, batch, batch_of, expected, fill, read_all, stage, value};

const ENOSPC: i32 = 28;

fn full(skip: usize, times: usize) -> InjectedFault {
    InjectedFault { call: DiskCall::Write, code: ENOSPC, skip, times }
}

#[test]
fn a_refused_append_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let log = fixture.open();
    fill(&log, 5);
    disk.inject(full(0, usize::MAX));
    for _ in 0..3 {
        let refused = append(&log, &batch(&[b"no room"]));
        assert!(matches!(refused, Err(AppendError::Storage(StorageError::NoSpace(_)))));
        assert_eq!(read_all(&log), expected(0..5));
    }
    assert!(!fixture.dir.is_offline());
    disk.heal();
    fill(&log, 3);
    assert_eq!(read_all(&log), expected(0..8));
    drop(log);
    assert_eq!(read_all(&fixture.open()), expected(0..8));
}

#[test]
fn every_staged_append_of_a_failed_write_gets_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let log = fixture.open();
    let done = stage(&log, &batch_of(1, 0, &[&value(0)])).unwrap();
    log.commit(done.staged).unwrap();
    let first = stage(&log, &batch_of(1, 1, &[&value(1)])).unwrap();
    let second = stage(&log, &batch_of(2, 0, &[&value(2)])).unwrap();
    disk.inject(full(0, 1));
    assert!(matches!(log.commit(second.staged), Err(StorageError::NoSpace(_))));
    assert!(matches!(log.commit(first.staged), Err(StorageError::Cut(_))));
    log.commit(done.staged).unwrap();
    let again = append(&log, &batch_of(1, 1, &[&value(1)])).unwrap();
    assert_eq!((again.base_offset.0, again.duplicate), (1, false));
    append(&log, &batch_of(2, 0, &[&value(2)])).unwrap();
    assert_eq!(read_all(&log), expected(0..3));
}

#[test]
fn a_batch_behind_a_failed_write_fails_in_the_same_way_and_not_as_out_of_order() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let log = fixture.open();
    append(&log, &batch_of(1, 0, &[&value(0)])).unwrap();
    disk.inject(full(0, 1));
    let failed = append(&log, &batch_of(1, 1, &[&value(1)]));
    assert!(matches!(failed, Err(AppendError::Storage(StorageError::NoSpace(_)))));
    let behind = append(&log, &batch_of(1, 2, &[&value(2)]));
    assert!(matches!(behind, Err(AppendError::Storage(StorageError::Cut(_)))), "{behind:?}");
    append(&log, &batch_of(1, 1, &[&value(1)])).unwrap();
    append(&log, &batch_of(1, 2, &[&value(2)])).unwrap();
    assert_eq!(read_all(&log), expected(0..3));
    let gap = append(&log, &batch_of(1, 9, &[&value(9)]));
    assert!(matches!(gap, Err(AppendError::OutOfOrderSequence { .. })), "{gap:?}");
}

#[test]
fn a_large_batch_that_does_not_fit_takes_small_ones_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let log = fixture.open();
    fill(&log, 2);
    let small = stage(&log, &batch(&[b"small"])).unwrap();
    disk.inject(full(0, 1));
    let large = vec![7; 200_000];
    assert!(stage(&log, &batch(&[&large])).is_err());
    assert!(log.commit(small.staged).is_err());
    assert_eq!(read_all(&log), expected(0..2));
    append(&log, &batch(&[&large])).unwrap();
    assert_eq!(log.log_end_offset().0, 3);
    assert_eq!(fixture.open().log_end_offset().0, 3);
}

#[test]
fn a_full_disk_is_logged_once_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    let log = fixture.open();
    fill(&log, 1);
    let lines = CapturedLines::default();
    lines.collect(|| {
        for _ in 0..2 {
            disk.inject(full(0, usize::MAX));
            for _ in 0..50 {
                append(&log, &batch(&[b"no room"])).unwrap_err();
            }
            disk.heal();
            fill(&log, 2);
        }
    });
    let is_reported: Vec<bool> =
        lines.all().iter().map(|it| it.contains("a write failed")).collect();
    assert_eq!(is_reported, [true, true], "{:?}", lines.all());
}
