//! The batches of a log's end that are kept in memory equal those in its files, and are read
//! without a file.

use krust::ids::Offset;
use krust::storage::{Log, LogReadRequest, LogSlice, ReadError};

use crate::support::{LogFixture, append, batch, fill, stage};

fn read(offset: i64, max_bytes: usize, upper: i64, min_one: bool) -> LogReadRequest {
    LogReadRequest { offset: Offset(offset), max_bytes, upper: Offset(upper), min_one }
}

fn states(found: Result<LogSlice, ReadError>) -> Option<(Vec<u8>, Option<Offset>, u64)> {
    let found = found.ok()?;
    Some((found.to_vec().unwrap(), found.base_offset, found.first_size))
}

/// Whether a consumer at `offset` is served from memory.
fn is_in_memory(log: &Log, offset: i64) -> bool {
    let upper = log.log_end_offset();
    let read = LogReadRequest { offset: Offset(offset), max_bytes: 1 << 20, upper, min_one: true };
    log.read_recent(read).unwrap().held.is_some()
}

/// Every read says the same as the files.
fn agrees_with_the_files(log: &Log) {
    let end = log.log_end_offset().0;
    for offset in -1..=end + 1 {
        for upper in offset.max(0)..=end + 1 {
            for max_bytes in [0, 1, 150, 1 << 20] {
                for min_one in [false, true] {
                    let read = read(offset, max_bytes, upper, min_one);
                    assert_eq!(states(log.read_recent(read)), states(log.read(read)), "{read:?}");
                }
            }
        }
    }
}

#[test]
fn a_reader_at_the_end_keeps_what_it_read() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFixture::new(dir.path()).open();
    fill(&log, 5);
    append(&log, &batch(&[b"a", b"b", b"c"])).unwrap();
    agrees_with_the_files(&log);
    assert!(is_in_memory(&log, 2));
    agrees_with_the_files(&log);
}

#[test]
fn a_commit_is_kept_only_while_someone_reads_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFixture::new(dir.path()).open();
    fill(&log, 3);
    assert!(log.read_recent(read(3, 100, 3, true)).unwrap().held.is_none());
    append(&log, &batch(&[b"news"])).unwrap();
    let below = log.read_recent(read(3, 100, 3, true)).unwrap();
    assert_eq!((below.held.is_none(), below.size), (true, 0));
    assert!(is_in_memory(&log, 3));
    agrees_with_the_files(&log);
    append(&log, &batch(&[b"again"])).unwrap();
    append(&log, &batch(&[b"and again"])).unwrap();
    let both = log.read_recent(read(4, 1 << 20, 6, true)).unwrap();
    assert_eq!(
        both.to_vec().unwrap(),
        log.read(read(4, 1 << 20, 6, true)).unwrap().to_vec().unwrap()
    );
}

#[test]
fn a_truncation_and_a_roll_drop_the_kept_batches() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 400;
    let log = fixture.open();
    fill(&log, 4);
    assert!(is_in_memory(&log, 3));
    log.truncate_to(Offset(3)).unwrap();
    append(&log, &batch(&[b"another record"])).unwrap();
    agrees_with_the_files(&log);
    for number in 0..8_u8 {
        agrees_with_the_files(&log);
        append(&log, &batch(&[&[number; 40]])).unwrap();
    }
    log.truncate_fully(Offset(2)).unwrap();
    append(&log, &batch(&[b"from the start"])).unwrap();
    agrees_with_the_files(&log);
}

#[test]
fn staged_batches_are_not_read_before_the_commit() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFixture::new(dir.path()).open();
    fill(&log, 2);
    assert!(!is_in_memory(&log, 2));
    stage(&log, &batch(&[b"staged"])).unwrap();
    agrees_with_the_files(&log);
    assert_eq!(log.log_end_offset(), Offset(2));
}

#[test]
fn large_batches_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFixture::new(dir.path()).open();
    fill(&log, 1);
    assert!(!is_in_memory(&log, 1));
    append(&log, &batch(&[&[7; 3000]])).unwrap();
    assert!(!is_in_memory(&log, 1));
    assert!(!is_in_memory(&log, 1), "nor by a reader");
}

#[test]
fn kept_batches_are_read_without_the_file_until_readers_stop() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 2);
    assert!(is_in_memory(&log, 1));
    let file = std::fs::OpenOptions::new().write(true).open(fixture.file(0, "log")).unwrap();
    file.set_len(0).unwrap();
    for _ in 0..2 {
        log.retain(0).unwrap();
        assert!(is_in_memory(&log, 1), "it was read since the last look");
    }
    log.retain(0).unwrap();
    log.retain(0).unwrap();
    assert!(log.read_recent(read(1, 100, 2, true)).is_err(), "the file is read again");
}
