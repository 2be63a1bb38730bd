//! Records that were synced and are damaged now are not cut and not served.

use krust::ids::Offset;
use krust::storage::{AppendError, LogReadRequest, ReadError, StorageError};

use crate::support::{LogFixture, append, batch, delete, expected, fill, snapshot};

#[test]
fn a_flipped_bit_below_the_recovery_point_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 10);
    log.flush().unwrap();
    fixture.dir.checkpoint().unwrap();
    fill(&log, 5);
    let path = fixture.file(0, "log");
    let mut bytes = std::fs::read(&path).unwrap();
    let size = bytes.len() / 15;
    bytes[size * 6 + 80] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    drop((log, fixture));

    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    assert!(matches!(log.damage(), Some(StorageError::Damaged { offset: 6, .. })));
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing is cut");
    let refused = append(&log, &batch(&[b"x"]));
    assert!(matches!(refused, Err(AppendError::Storage(StorageError::Damaged { .. }))));
    let read = |offset| {
        let upper = log.log_end_offset();
        log.read(LogReadRequest {
            offset: Offset(offset),
            max_bytes: 1 << 20,
            upper,
            min_one: true,
        })
    };
    assert_eq!(read(0).unwrap().size, size * 6);
    assert!(matches!(read(6), Err(ReadError::Storage(StorageError::Damaged { .. }))));
    let before = snapshot(&fixture.partition());
    drop(log);
    fixture.open();
    assert_eq!(snapshot(&fixture.partition()), before);
}

#[test]
fn a_log_that_is_shorter_than_its_recovery_point_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 4);
    log.flush().unwrap();
    fixture.dir.checkpoint().unwrap();
    std::fs::File::options()
        .write(true)
        .open(fixture.file(0, "log"))
        .unwrap()
        .set_len(300)
        .unwrap();
    drop((log, fixture));
    let fixture = LogFixture::new(dir.path());
    assert!(fixture.open().damage().is_some());
}

#[test]
fn a_log_that_was_cut_on_purpose_is_not_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 10);
    log.flush().unwrap();
    fixture.dir.checkpoint().unwrap();
    assert_eq!(log.truncate_to(Offset(4)).unwrap(), Offset(4));
    drop((log, fixture));
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    assert!(log.damage().is_none());
    assert_eq!(crate::support::read_all(&log), expected(0..4));
    delete(&log);
    drop((log, fixture));
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    assert!(log.damage().is_none());
    fill(&log, 2);
    assert_eq!(crate::support::read_all(&log), expected(0..2));
}

#[test]
fn neither_retention_nor_a_users_policy_deletes_segments_of_a_damaged_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 600;
    let log = fixture.open();
    fill(&log, 20);
    log.flush().unwrap();
    log.raise_high_watermark(log.log_end_offset());
    fixture.dir.checkpoint().unwrap();
    let last = log.segment_summaries().unwrap().last().unwrap().base_offset;
    let path = fixture.file(last.0, "log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[80] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    drop((log, fixture));

    let mut fixture = LogFixture::new(dir.path());
    (fixture.config.segment_bytes, fixture.config.retention_bytes) = (600, 0);
    let log = fixture.open();
    assert!(log.damage().is_some());
    log.raise_high_watermark(log.log_end_offset());
    let before = snapshot(&fixture.partition());
    assert_eq!(log.retain(0).unwrap(), 0);
    assert_eq!(log.drop_segments_below(last).unwrap(), 0);
    assert_eq!(snapshot(&fixture.partition()), before);
}
