//! A truncation changes no byte of a range that a reader may still send.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use krust::ids::Offset;
use krust::record::batch;
use krust::storage::{FileRange, Log, LogReadRequest};

use crate::support::{LogFixture, append, batch as batch_of, fill, read_all, value};

/// Where a log of [`BATCHES`] batches is cut: at its start, inside of segments and between them.
const CUTS: [i64; 6] = [0, 1, 7, 8, 20, 29];
const BATCHES: i64 = 30;

fn small_segments(path: &std::path::Path) -> LogFixture {
    let mut fixture = LogFixture::new(path);
    fixture.config.segment_bytes = 800;
    fixture
}

/// The ranges of all bytes of a log, as a reader gets them.
fn ranges_below(log: &Log, upper: i64) -> Vec<FileRange> {
    let read = LogReadRequest {
        offset: log.log_start_offset(),
        max_bytes: 1 << 20,
        upper: Offset(upper),
        min_one: true,
    };
    log.read(read).unwrap().ranges
}

fn other_value(offset: i64) -> Vec<u8> {
    let mut value = format!("other {offset}").into_bytes();
    value.resize(40, b'#');
    value
}

/// Appends batches of the same size as before, with other records, up to offset `BATCHES`.
fn append_others(log: &Log) {
    while log.log_end_offset().0 < BATCHES {
        append(log, &batch_of(&[&other_value(log.log_end_offset().0)])).unwrap();
    }
}

/// What is in the log after a cut at `end` and [`append_others`].
fn is_cut_and_continued(log: &Log, end: i64) -> bool {
    let meant = |at: i64| (at, if at < end { value(at) } else { other_value(at) });
    read_all(log) == (0..BATCHES).map(meant).collect::<Vec<_>>()
}

fn log_files(fixture: &LogFixture) -> usize {
    let is_log = |name: &str| std::path::Path::new(name).extension().is_some_and(|it| it == "log");
    let entries = std::fs::read_dir(fixture.partition()).unwrap();
    entries.filter(|entry| is_log(entry.as_ref().unwrap().file_name().to_str().unwrap())).count()
}

#[test]
fn a_range_that_a_reader_holds_shows_the_old_bytes_or_ends_early() {
    for end in CUTS {
        let dir = tempfile::tempdir().unwrap();
        let log = small_segments(dir.path()).open();
        fill(&log, BATCHES as usize);
        let held = ranges_below(&log, BATCHES);
        let before: Vec<Vec<u8>> = held.iter().map(|range| range.to_vec().unwrap()).collect();
        assert!(held.len() > 3, "one range a segment");
        log.truncate_to(Offset(end)).unwrap();
        append_others(&log);
        for (range, before) in held.iter().zip(&before) {
            match range.to_vec() {
                Ok(bytes) => assert!(bytes == *before, "cut at {end}: other bytes"),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "cut at {end}");
                }
            }
        }
        assert!(is_cut_and_continued(&log, end), "cut at {end}");
    }
}

#[test]
fn a_second_truncation_remembers_what_readers_got_before_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let log = small_segments(dir.path()).open();
    fill(&log, BATCHES as usize);
    let held = ranges_below(&log, BATCHES);
    let before: Vec<Vec<u8>> = held.iter().map(|range| range.to_vec().unwrap()).collect();
    for end in [20, 19, 19, 6, 5] {
        log.truncate_to(Offset(end)).unwrap();
        log.truncate_to(Offset(end)).unwrap();
        append_others(&log);
        for (range, before) in held.iter().zip(&before) {
            assert!(range.to_vec().is_ok_and(|bytes| bytes == *before) || range.to_vec().is_err());
        }
    }
    assert!(is_cut_and_continued(&log, 5));
}

#[test]
fn a_range_that_ends_below_the_cut_stays_readable() {
    for end in CUTS {
        let dir = tempfile::tempdir().unwrap();
        let log = small_segments(dir.path()).open();
        fill(&log, BATCHES as usize);
        let held = ranges_below(&log, end);
        let before: Vec<Vec<u8>> = held.iter().map(|range| range.to_vec().unwrap()).collect();
        log.truncate_to(Offset(end)).unwrap();
        append_others(&log);
        let after: Vec<Vec<u8>> = held.iter().map(|range| range.to_vec().unwrap()).collect();
        assert!(before == after, "cut at {end}");
    }
}

#[test]
fn a_log_goes_on_in_the_same_file_where_no_reader_got_bytes_behind_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, BATCHES as usize);
    let _held = ranges_below(&log, 12);
    log.truncate_to(Offset(12)).unwrap();
    assert_eq!(log_files(&fixture), 1);
    append_others(&log);
    let _held = ranges_below(&log, BATCHES);
    log.truncate_to(Offset(12)).unwrap();
    assert_eq!(log_files(&fixture), 2, "a reader got bytes behind the cut");
    append_others(&log);
    assert!(is_cut_and_continued(&log, 12));
}

#[test]
fn a_log_whose_records_are_all_cut_goes_on_in_a_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, BATCHES as usize);
    let [held] = ranges_below(&log, BATCHES).try_into().unwrap();
    let before = held.to_vec().unwrap();
    log.truncate_to(Offset(0)).unwrap();
    append_others(&log);
    assert!(held.to_vec().unwrap() == before);
    assert_eq!(log_files(&fixture), 1);
    assert!(is_cut_and_continued(&log, 0));
    drop(log);
    assert!(is_cut_and_continued(&fixture.open_with(false), 0));
}

#[test]
fn readers_beside_truncations_get_bytes_that_stay_and_the_directory_stays_online() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = small_segments(dir.path());
    let log = fixture.open();
    fill(&log, BATCHES as usize);
    let ended = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|number| {
            let (log, ended) = (Arc::clone(&log), Arc::clone(&ended));
            std::thread::spawn(move || {
                let mut at = number;
                let mut whole = 0;
                while !ended.load(Ordering::Acquire) {
                    at = (at + 7) % BATCHES;
                    whole += read_beside(&log, at);
                }
                whole
            })
        })
        .collect();
    for round in 0..400 {
        log.truncate_to(Offset(round * 11 % BATCHES)).unwrap();
        while log.log_end_offset().0 < BATCHES {
            append(&log, &batch_of(&[&value(round)])).unwrap();
        }
    }
    ended.store(true, Ordering::Release);
    let whole: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert!(whole > 0, "nobody read anything");
    assert!(!log.is_offline());
    drop(log);
    assert_eq!(fixture.open_with(false).log_end_offset(), Offset(BATCHES));
}

/// Reads from `offset` while others cut and append. How many whole batches there were.
fn read_beside(log: &Log, offset: i64) -> usize {
    log.offset_for_timestamp(offset).unwrap();
    log.segment_summaries().unwrap();
    let upper = log.log_end_offset();
    let read = LogReadRequest { offset: Offset(offset), max_bytes: 1 << 20, upper, min_one: true };
    // An offset that was cut meanwhile is out of range.
    let Ok(slice) = log.read(read) else { return 0 };
    let Ok(bytes) = slice.to_vec() else { return 0 };
    std::thread::yield_now();
    assert!(slice.to_vec().is_ok_and(|again| again == bytes) || slice.to_vec().is_err());
    let mut next = None;
    let mut count = 0;
    for batch in batch::iter(&bytes) {
        let batch = batch.unwrap();
        assert!(batch.crc_ok(), "mixed bytes");
        let first = batch.header().base_offset;
        assert!(next.is_none_or(|next| next == first), "offsets are dense");
        next = Some(batch.last_offset() + 1);
        count += 1;
    }
    count
}
