//! Files that bear no checksum are held against others: what is wrong in them is named, and neither
//! hides nor deletes nor shows a record where another one was written.

use std::path::Path;

use krust::ids::{Epoch, Offset, TopicId};
use krust::storage::{ReadError, ReadRequest, StorageError};

use crate::support::{Home, append_after_roll, batch, expected, fill, read_all, read_from, value};

/// A log of two segments, 0..10 and 10..20, closed in order together with its directory.
fn closed(path: &Path) -> Home {
    let home = Home::new(path);
    let log = home.open();
    fill(&log, 10);
    append_after_roll(&log, &batch(&[value(10).as_slice()]));
    fill(&log, 9);
    log.close().unwrap();
    drop(log);
    home.dir.close().unwrap();
    drop(home);
    Home::new(path)
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
        let home = Home::new(dir.path());
        let path = home.file(0, "log");
        let mut bytes = std::fs::read(&path).unwrap();
        let size = bytes.len() / 10;
        bytes[size * batch_number + 7 - bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, bytes).unwrap();
        let log = home.open_with(true);
        let mut refused = 0;
        for offset in 0..20 {
            let upper = log.log_end_offset();
            let read = ReadRequest { offset: Offset(offset), max_bytes: 150, upper, min_one: true };
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
    let home = closed(dir.path());
    drop(home);
    let path = dir.path().join("log-start-offset-checkpoint");
    for start in ["7", "15", "7000"] {
        std::fs::write(&path, format!("0\n1\nt 0 {start}\n")).unwrap();
        let home = Home::new(dir.path());
        let log = home.open_with(true);
        assert_eq!(log.log_start_offset(), Offset(0));
        assert_eq!(read_all(&log), expected(0..20));
    }
}

#[test]
fn deleted_records_stay_deleted_after_a_start() {
    for clean in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        let log = home.open();
        fill(&log, 20);
        log.flush().unwrap();
        log.delete_records(Offset(7)).unwrap();
        home.dir.checkpoint().unwrap();
        if clean {
            log.close().unwrap();
            home.dir.close().unwrap();
        }
        drop((log, home));
        let home = Home::new(dir.path());
        assert_eq!(home.dir.was_clean(), clean);
        let log = home.open();
        assert_eq!(log.log_start_offset(), Offset(7));
        assert_eq!(read_all(&log), expected(7..20));
    }
}

#[test]
fn records_deleted_right_before_a_stop_stay_deleted() {
    let dir = tempfile::tempdir().unwrap();
    drop(closed(dir.path()));
    let home = Home::new(dir.path());
    let log = home.open();
    log.raise_high_watermark(log.log_end_offset());
    log.delete_records(Offset(7)).unwrap();
    log.close().unwrap();
    home.dir.close().unwrap();
    drop((log, home));
    let log = Home::new(dir.path()).open();
    assert_eq!(log.log_start_offset(), Offset(7));
}

#[test]
fn a_last_segment_that_is_gone_is_damage_so_that_no_offset_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let home = closed(dir.path());
    std::fs::remove_file(home.file(10, "log")).unwrap();
    let log = home.open_with(true);
    assert!(matches!(log.damage(), Some(StorageError::Damaged { offset: 10, .. })));
    assert!(crate::support::append(&log, &batch(&[b"x"])).is_err());
    assert_eq!(read_from(&log, 0, 9999).len(), 10);
}

#[test]
fn a_damaged_recovery_point_is_told_from_a_log_that_is_too_short() {
    let dir = tempfile::tempdir().unwrap();
    drop(closed(dir.path()));
    for clean in [true, false] {
        rewrite(&dir.path().join("recovery-point-offset-checkpoint"), "t 0 ", "t 0 9");
        let home = Home::new(dir.path());
        let log = home.open_with(clean);
        assert!(log.damage().is_none());
        assert_eq!(read_all(&log), expected(0..20));
    }
}

#[test]
fn leader_epochs_that_do_not_agree_with_the_log_are_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path());
    let log = home.open();
    fill(&log, 10);
    log.set_leader_epoch(Epoch(3));
    fill(&log, 10);
    let right = log.epochs();
    log.close().unwrap();
    home.dir.close().unwrap();
    drop((log, home));
    let path = dir.path().join("t-0/leader-epoch-checkpoint");
    let whole = std::fs::read_to_string(&path).unwrap();
    assert_eq!(whole, "0\n2\n0 0\n3 10\n");
    for wrong in ["0\n2\n0 0\n7 10\n", "0\n2\n0 0\n3 12\n", "0\n2\n1 0\n3 10\n", "0\n1\n0 0\n", ""]
    {
        std::fs::write(&path, wrong).unwrap();
        for clean in [true, false] {
            let log = Home::new(dir.path()).open_with(clean);
            assert_eq!(log.epochs(), right, "{wrong:?} clean {clean}");
        }
    }
}

#[test]
fn a_topic_id_with_a_flipped_bit_does_not_set_the_partition_aside() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path());
    let id: TopicId = "AbCdEfGhIjKlMnOpQrStuA".parse().unwrap();
    let log = home.open();
    log.set_topic_id(id);
    fill(&log, 3);
    log.close().unwrap();
    let path = home.partition().join("partition.metadata");
    let whole = std::fs::read_to_string(&path).unwrap();
    rewrite(&path, "AbCd", "AbCe");
    home.dir.mark_unopened_stray(&home.name, Some(id)).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    std::fs::write(&path, [0; 40]).unwrap();
    home.dir.mark_unopened_stray(&home.name, Some(id)).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    let other = "ZzCdEfGhIjKlMnOpQrStuA".parse().unwrap();
    home.dir.mark_unopened_stray(&home.name, Some(other)).unwrap();
    assert!(!home.partition().exists());
}
