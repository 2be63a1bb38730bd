//! Files without a checksum are compared with others. Errors in them are reported, and never hide
//! or delete a record, or show it at another offset.

use std::path::Path;

use krust::ids::{Epoch, Offset, TopicId};
use krust::storage::{LogReadRequest, ReadError, StorageError};

use crate::support::{
    LogFixture, append_after_roll, batch, expected, fill, read_all, read_from, value,
};

/// A log of two segments, 0..10 and 10..20, closed in order together with its directory.
fn closed(path: &Path) -> LogFixture {
    let fixture = LogFixture::new(path);
    let log = fixture.open();
    fill(&log, 10);
    append_after_roll(&log, &batch(&[value(10).as_slice()]));
    fill(&log, 9);
    log.close().unwrap();
    drop(log);
    fixture.dir.close().unwrap();
    drop(fixture);
    LogFixture::new(path)
}

/// Rewrites a small text file of the directory.
fn rewrite(path: &Path, before: &str, after: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(before), "{text:?}");
    std::fs::write(path, text.replace(before, after)).unwrap();
}

#[test]
fn a_base_offset_with_a_flipped_bit_shows_no_record_at_a_wrong_offset() {
    for (batch_number, bit) in [(0, 1), (4, 0), (4, 3), (4, 30), (9, 0), (9, 2)] {
        let dir = tempfile::tempdir().unwrap();
        drop(closed(dir.path()));
        let fixture = LogFixture::new(dir.path());
        let path = fixture.file(0, "log");
        let mut bytes = std::fs::read(&path).unwrap();
        let size = bytes.len() / 10;
        bytes[size * batch_number + 7 - bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, bytes).unwrap();
        let log = fixture.open_with(true);
        let mut refused = 0;
        for offset in 0..20 {
            let upper = log.log_end_offset();
            let read =
                LogReadRequest { offset: Offset(offset), max_bytes: 150, upper, min_one: true };
            match log.read(read) {
                Err(ReadError::Storage(StorageError::Damaged { .. })) => refused += 1,
                Err(error) => panic!("{error}"),
                Ok(slice) => {
                    let bytes = slice.to_vec().unwrap();
                    let first = krust::record::batch::iter(&bytes).next().unwrap().unwrap();
                    let record = first.records().next().unwrap().unwrap();
                    let found = (record.offset, record.value.unwrap().to_vec());
                    assert_eq!(found, (offset, value(offset)), "batch {batch_number} bit {bit}");
                }
            }
        }
        assert!((1..=6).contains(&refused), "batch {batch_number} bit {bit}: {refused} refused");
    }
}

#[test]
fn a_damaged_log_start_checkpoint_hides_and_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = closed(dir.path());
    drop(fixture);
    let path = dir.path().join("log-start-offset-checkpoint");
    for start in ["7", "15", "7000"] {
        std::fs::write(&path, format!("0\n1\nt 0 {start}\n")).unwrap();
        let fixture = LogFixture::new(dir.path());
        let log = fixture.open_with(true);
        assert_eq!(log.log_start_offset(), Offset(0));
        assert_eq!(read_all(&log), expected(0..20));
    }
}

#[test]
fn deleted_records_stay_deleted_after_a_start() {
    for clean in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let fixture = LogFixture::new(dir.path());
        let log = fixture.open();
        fill(&log, 20);
        log.flush().unwrap();
        log.delete_records(Offset(7)).unwrap();
        fixture.dir.checkpoint().unwrap();
        if clean {
            log.close().unwrap();
            fixture.dir.close().unwrap();
        }
        drop((log, fixture));
        let fixture = LogFixture::new(dir.path());
        assert_eq!(fixture.dir.was_clean(), clean);
        let log = fixture.open();
        assert_eq!(log.log_start_offset(), Offset(7));
        assert_eq!(read_all(&log), expected(7..20));
    }
}

#[test]
fn records_deleted_right_before_a_stop_stay_deleted() {
    let dir = tempfile::tempdir().unwrap();
    drop(closed(dir.path()));
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    log.raise_high_watermark(log.log_end_offset());
    log.delete_records(Offset(7)).unwrap();
    log.close().unwrap();
    fixture.dir.close().unwrap();
    drop((log, fixture));
    let log = LogFixture::new(dir.path()).open();
    assert_eq!(log.log_start_offset(), Offset(7));
}

#[test]
fn a_missing_last_segment_is_damage_so_that_no_offset_is_reused() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = closed(dir.path());
    std::fs::remove_file(fixture.file(10, "log")).unwrap();
    let log = fixture.open_with(true);
    assert!(matches!(log.damage(), Some(StorageError::Damaged { offset: 10, .. })));
    assert!(crate::support::append(&log, &batch(&[b"x"])).is_err());
    assert_eq!(read_from(&log, 0, 9999).len(), 10);
}

#[test]
fn a_damaged_recovery_point_is_not_taken_for_a_short_log() {
    let dir = tempfile::tempdir().unwrap();
    drop(closed(dir.path()));
    for clean in [true, false] {
        rewrite(&dir.path().join("recovery-point-offset-checkpoint"), "t 0 ", "t 0 9");
        let fixture = LogFixture::new(dir.path());
        let log = fixture.open_with(clean);
        assert!(log.damage().is_none());
        assert_eq!(read_all(&log), expected(0..20));
    }
}

#[test]
fn leader_epochs_that_disagree_with_the_log_are_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 10);
    log.set_leader_epoch(Epoch(3));
    fill(&log, 10);
    let right = log.epochs();
    log.close().unwrap();
    fixture.dir.close().unwrap();
    drop((log, fixture));
    let path = dir.path().join("t-0/leader-epoch-checkpoint");
    let whole = std::fs::read_to_string(&path).unwrap();
    assert_eq!(whole, "0\n2\n0 0\n3 10\n");
    for wrong in ["0\n2\n0 0\n7 10\n", "0\n2\n0 0\n3 12\n", "0\n2\n1 0\n3 10\n", "0\n1\n0 0\n", ""]
    {
        std::fs::write(&path, wrong).unwrap();
        for clean in [true, false] {
            let log = LogFixture::new(dir.path()).open_with(clean);
            assert_eq!(log.epochs(), right, "{wrong:?} clean {clean}");
        }
    }
}

#[test]
fn a_topic_id_with_a_flipped_bit_does_not_make_the_partition_stray() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let id: TopicId = "AbCdEfGhIjKlMnOpQrStuA".parse().unwrap();
    let log = fixture.open();
    log.set_topic_id(id);
    fill(&log, 3);
    log.close().unwrap();
    let path = fixture.partition().join("partition.metadata");
    let whole = std::fs::read_to_string(&path).unwrap();
    rewrite(&path, "AbCd", "AbCe");
    fixture.dir.mark_unopened_stray(&fixture.name, Some(id)).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    std::fs::write(&path, [0; 40]).unwrap();
    fixture.dir.mark_unopened_stray(&fixture.name, Some(id)).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    let other = "ZzCdEfGhIjKlMnOpQrStuA".parse().unwrap();
    fixture.dir.mark_unopened_stray(&fixture.name, Some(other)).unwrap();
    assert!(!fixture.partition().exists());
}
