//! From any offset, with any limit, a reader gets the records from there on and makes progress.

use krust::ids::Offset;
use krust::storage::{LogReadRequest, ReadError};

use crate::support::{LogFixture, append, batch, delete, expected, fill, read_from, value};

#[test]
fn every_offset_is_found_across_segments_and_limits() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 1000;
    let log = fixture.open();
    fill(&log, 60);
    let three: Vec<Vec<u8>> = (60..63).map(value).collect();
    append(&log, &batch(&three.iter().map(Vec::as_slice).collect::<Vec<_>>())).unwrap();
    for max_bytes in [1, 150, 999, 1 << 20] {
        for offset in 0..=63 {
            assert_eq!(read_from(&log, offset, max_bytes), expected(offset..63));
        }
    }
    assert!(log.segment_summaries().unwrap().len() > 5);
}

#[test]
fn reads_keep_their_limits_and_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 10);
    let read = |offset, max_bytes, upper, min_one| {
        log.read(LogReadRequest {
            offset: Offset(offset),
            max_bytes,
            upper: Offset(upper),
            min_one,
        })
    };
    let one = read(0, 1, 10, true).unwrap();
    assert_eq!((one.base_offset, one.size as u64), (Some(Offset(0)), one.first_size));
    let cut = read(0, 5, 10, false).unwrap();
    assert!((cut.size as u64) < cut.first_size);
    assert_eq!(read(0, 0, 10, false).unwrap().size, 0);
    for upper in 0..=10 {
        let size = read(0, 1 << 20, upper, true).unwrap().size as u64;
        assert_eq!(size, one.first_size * upper.unsigned_abs());
    }
    assert_eq!(read(10, 100, 10, true).unwrap().size, 0);
    assert_eq!(read(7, 100, 5, true).unwrap().size, 0);
    assert!(matches!(read(11, 100, 11, true), Err(ReadError::OutOfRange { log_end: 10, .. })));
    assert!(matches!(read(-1, 100, 11, true), Err(ReadError::OutOfRange { .. })));
}

#[test]
fn an_empty_log_has_nothing_and_makes_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    let read =
        LogReadRequest { offset: Offset(0), max_bytes: 100, upper: Offset(0), min_one: true };
    assert_eq!(log.read(read).unwrap().size, 0);
    assert_eq!(log.offset_for_timestamp(0).unwrap(), None);
    assert_eq!(log.max_timestamp().unwrap(), None);
    log.flush().unwrap();
    log.close().unwrap();
    assert!(!fixture.partition().exists());
}

#[test]
fn leased_bytes_stay_readable_when_the_log_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 3);
    let upper = log.log_end_offset();
    let slice = log
        .read(LogReadRequest { offset: Offset(0), max_bytes: 1 << 20, upper, min_one: true })
        .unwrap();
    let before = slice.to_vec().unwrap();
    delete(&log);
    assert!(!fixture.partition().exists());
    assert_eq!(slice.to_vec().unwrap(), before);
    assert!(append(&log, &batch(&[b"x"])).is_err());
}

#[test]
fn few_descriptors_serve_many_segments() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 200;
    let log = fixture.open();
    fill(&log, 200);
    assert!(log.segment_summaries().unwrap().len() >= 100);
    let links = || {
        std::fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
            let link = std::fs::read_link(entry.as_ref().unwrap().path());
            link.is_ok_and(|link| {
                link.starts_with(dir.path()) && link.to_string_lossy().contains(".log")
            })
        })
    };
    for offset in (0..200).rev() {
        assert_eq!(read_from(&log, offset, 1 << 20).len(), 200 - usize::try_from(offset).unwrap());
        assert!(links().count() <= 17);
    }
}

#[test]
fn a_follower_appends_batches_that_continue_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let leader = LogFixture::new(&dir.path().join("leader"));
    let log = leader.open();
    fill(&log, 10);
    let upper = log.log_end_offset();
    let read = LogReadRequest { offset: Offset(0), max_bytes: 1 << 20, upper, min_one: true };
    let bytes = log.read(read).unwrap().to_vec().unwrap();
    let follower = LogFixture::new(&dir.path().join("follower"));
    let copy = follower.open();
    let size = bytes.len() / 10;
    assert_eq!(copy.append_as_follower(&bytes[..size * 4 + 30]).unwrap(), Offset(4));
    assert!(copy.append_as_follower(&bytes[size..]).is_err(), "offset 1 is there already");
    assert_eq!(copy.append_as_follower(&bytes[size * 4..]).unwrap(), Offset(10));
    assert_eq!(read_from(&copy, 0, 1 << 20), expected(0..10));
    let both = [leader.file(0, "log"), follower.file(0, "log")].map(|p| std::fs::read(p).unwrap());
    assert_eq!(both[0], both[1]);
}
