//! Indexes, snapshots and epochs are derived: without them, or with nonsense in them, reads equal a
//! full scan.

use krust::ids::{Epoch, Offset};
use krust::storage::inspect;

use crate::support::{
    LogFixture, NOW_MS, append, batch, batch_at, batch_of, expected, fetch, fill, read_from, value,
};

fn filled(path: &std::path::Path) -> LogFixture {
    let mut fixture = LogFixture::new(path);
    fixture.config.segment_bytes = 3000;
    let log = fixture.open();
    fill(&log, 100);
    append(&log, &batch_of(9, 4, &[&value(100)])).unwrap();
    log.close().unwrap();
    fixture.dir.close().unwrap();
    drop((log, fixture));
    let mut fixture = LogFixture::new(path);
    fixture.config.segment_bytes = 3000;
    assert!(fixture.dir.was_clean());
    fixture
}

fn check(fixture: &LogFixture, clean: bool) {
    let log = fixture.open_with(clean);
    for offset in 0..=101 {
        assert_eq!(read_from(&log, offset, 300), expected(offset..101), "from {offset}");
    }
    assert_eq!(log.producers().len(), 1);
    assert_eq!(log.epochs(), [(Epoch(0), Offset(0))]);
    let found = log.offset_for_timestamp(NOW_MS).unwrap().unwrap();
    assert_eq!(found.offset, Offset(0));
    assert!(log.max_timestamp().unwrap().is_some(), "looks at the time index of each segment");
    log.flush().unwrap();
    // The epochs reach their file with the next flush that has something to write, and a snapshot
    // above what a start reads stays until a later one takes its place.
    let is_index = |problem: &inspect::FileProblem| {
        problem.path.extension().is_some_and(|kind| kind == "index" || kind == "timeindex")
    };
    let found = inspect::verify(&fixture.partition()).unwrap();
    assert!(!found.iter().any(is_index), "{found:?}");
}

fn each_file(fixture: &LogFixture, kinds: &[&str], change: impl Fn(&std::path::Path)) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(fixture.partition()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if kinds.iter().any(|kind| name.ends_with(kind)) {
            change(&path);
            count += 1;
        }
    }
    count
}

const DERIVED: [&str; 4] = [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"];

#[test]
fn deleted_index_files_are_rebuilt() {
    for clean in [true, false] {
        for kind in DERIVED {
            let dir = tempfile::tempdir().unwrap();
            let fixture = filled(dir.path());
            assert!(each_file(&fixture, &[kind], |path| std::fs::remove_file(path).unwrap()) > 0);
            check(&fixture, clean);
        }
    }
}

#[test]
fn index_files_of_noise_are_rebuilt() {
    for clean in [true, false] {
        for kind in DERIVED {
            let dir = tempfile::tempdir().unwrap();
            let fixture = filled(dir.path());
            let noise: Vec<u8> = (0..97u32).map(|n| (n * 151 % 251) as u8).collect();
            each_file(&fixture, &[kind], |path| std::fs::write(path, &noise).unwrap());
            check(&fixture, clean);
        }
    }
}

#[test]
fn an_index_that_points_to_no_batch_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = filled(dir.path());
    each_file(&fixture, &[".index"], |path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes.chunks_exact_mut(8).for_each(|entry| entry[7] = entry[7].wrapping_add(13));
        std::fs::write(path, bytes).unwrap();
    });
    let log = fixture.open_with(true);
    for offset in 0..101 {
        assert_eq!(read_from(&log, offset, 300), expected(offset..101));
    }
    assert_eq!(inspect::verify(&fixture.partition()).unwrap(), []);
}

/// A log whose batches are of many sizes, above and below what the index has entries for.
fn of_many_sizes(path: &std::path::Path) -> LogFixture {
    let mut fixture = LogFixture::new(path);
    (fixture.config.segment_bytes, fixture.config.index_interval_bytes) = (100_000, 4096);
    let log = fixture.open();
    let sizes = [20_000, 30, 30, 12_000, 12_000, 12_000, 5000, 5000].into_iter();
    for size in sizes.chain([300; 40]).cycle().take(150) {
        append(&log, &batch(&[&vec![b'v'; size], b"2", b"3"])).unwrap();
    }
    log.close().unwrap();
    fixture.dir.close().unwrap();
    LogFixture::new(path)
}

#[test]
fn batches_of_any_size_are_found_whatever_the_index_says() {
    type Wrong = fn(i32, i32) -> i32;
    let kinds: [Wrong; 4] =
        [|this, _| this, |this, _| this + 13, |this, _| this - 70, |_, next| next];
    for (kind, position) in kinds.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let fixture = of_many_sizes(dir.path());
        each_file(&fixture, &[".index"], |path| {
            let mut entries: Vec<[u8; 8]> = std::fs::read(path).unwrap().as_chunks().0.to_vec();
            let at = |entry: &[u8; 8]| i32::from_be_bytes(*entry.last_chunk().unwrap());
            for n in 0..entries.len() {
                let this = at(&entries[n]);
                let next = entries.get(n + 1).map_or(this + 1, at);
                entries[n][4..].copy_from_slice(&position(this, next).to_be_bytes());
            }
            std::fs::write(path, entries.as_flattened()).unwrap();
        });
        let log = fixture.open_with(true);
        assert!(log.segment_summaries().unwrap().len() > 3);
        let end = log.log_end_offset().0;
        for offset in (0..end).rev().chain(0..end) {
            let (records, next) = fetch(&log, offset, 1);
            assert_eq!(records.first().unwrap().0, offset, "kind {kind}");
            assert_eq!(next, offset / 3 * 3 + 3, "one batch, kind {kind}");
        }
        assert_eq!(inspect::verify(&fixture.partition()).unwrap(), [], "kind {kind}");
    }
}

#[test]
fn a_preallocated_tail_of_zeros_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = filled(dir.path());
    each_file(&fixture, &[".index", ".timeindex"], |path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(10 << 20).unwrap();
    });
    check(&fixture, true);
}

#[test]
fn times_are_found_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.segment_bytes = 2000;
    let log = fixture.open();
    for n in 0..60 {
        append(&log, &batch_at(NOW_MS + n * 10, &[&value(n * 2), &value(n * 2 + 1)])).unwrap();
    }
    for clean in [true, false] {
        log.flush().unwrap();
        let log = fixture.open_with(clean);
        for n in 0..60 {
            let at = |time| log.offset_for_timestamp(time).unwrap().map(|found| found.offset.0);
            assert_eq!(at(NOW_MS + n * 10), Some(n * 2));
            assert_eq!(at(NOW_MS + n * 10 + 1), Some(n * 2 + 1));
            assert_eq!(at(NOW_MS + n * 10 - 5), Some(n * 2));
        }
        assert_eq!(log.offset_for_timestamp(NOW_MS + 592).unwrap(), None);
        assert_eq!(log.max_timestamp().unwrap().unwrap().offset, Offset(119));
    }
}
