//! The indexes of active segments are in their files, but for a short tail, and what is read of
//! them stays within the limit of all indexes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use krust::ids::Offset;
use krust::storage::files::Disk;
use krust::storage::recording::{DiskCall, InjectedFault, RecordingDisk};
use krust::storage::{DirOptions, IndexCache, Log};

use crate::support::{LogFixture, NOW_MS, append, batch_at, read_from, value};

const BATCHES: i64 = 3000;
const ENTRY: u64 = 8;
/// What of an index may be in memory only.
const TAIL: u64 = 2 << 10;

/// An entry for each batch.
fn dense_indexes(path: &Path, options: &DirOptions) -> LogFixture {
    let mut fixture = LogFixture::with(path, options);
    fixture.config.index_interval_bytes = 1;
    fixture
}

/// Appends batches of one record, a millisecond apart, up to `end`.
fn fill_to(log: &Log, end: i64) {
    while log.log_end_offset().0 < end {
        let offset = log.log_end_offset().0;
        append(log, &batch_at(NOW_MS + offset, &[value(offset).as_slice()])).unwrap();
    }
}

/// The index names a batch at most `distance` bytes before the one that is sought.
fn finds_all(log: &Log, distance: u64) {
    let end = log.log_end_offset().0;
    let edges = [1, 255, 256, 257, 2047, 2048, end - 1].into_iter().filter(|at| *at < end);
    for offset in (0..end).step_by(37).chain(edges) {
        assert_eq!(read_from(log, offset, 1).first().unwrap(), &(offset, value(offset)));
        let found = log.offset_for_timestamp(NOW_MS + offset).unwrap().unwrap();
        assert_eq!(found.offset.0, offset);
        let (_, position) = log.index_lookup(Offset(offset)).unwrap().unwrap();
        let size = log.size() / end.unsigned_abs();
        let before = (offset.unsigned_abs() * size).checked_sub(position);
        assert!(before.is_some_and(|before| before <= distance), "{position} for {offset}");
    }
}

#[test]
fn the_index_of_an_active_segment_is_in_its_file_but_for_a_short_tail() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = dense_indexes(dir.path(), &DirOptions::default());
    let log = fixture.open();
    fill_to(&log, BATCHES);
    let len = |kind: &str| std::fs::metadata(fixture.file(0, kind)).unwrap().len();
    let entries = BATCHES.unsigned_abs() - 1;
    assert!((entries * ENTRY - TAIL..=entries * ENTRY).contains(&len("index")));
    assert!((entries * 12 - TAIL..=entries * 12).contains(&len("timeindex")));
    log.close().unwrap();
    assert_eq!((len("index"), len("timeindex")), (entries * ENTRY, entries * 12));
}

#[test]
fn offsets_and_times_of_an_active_segment_are_found_within_the_limit() {
    for limit in [0, 40_000, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let index_cache = IndexCache::new(limit);
        let options = DirOptions { index_cache: Arc::clone(&index_cache), ..DirOptions::default() };
        let fixture = dense_indexes(dir.path(), &options);
        let log = fixture.open();
        for end in [300, 600, BATCHES] {
            fill_to(&log, end);
            finds_all(&log, 0);
            assert!(index_cache.held() <= limit + 1000, "{index_cache:?}");
        }
        drop((log, fixture));
        assert_eq!(index_cache.held(), 0, "what is gone holds nothing");
    }
}

#[test]
fn an_active_segment_whose_index_files_are_lost_is_searched_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = dense_indexes(dir.path(), &DirOptions::default());
    let log = fixture.open();
    fill_to(&log, BATCHES - 500);
    for kind in ["index", "timeindex"] {
        std::fs::remove_file(fixture.file(0, kind)).unwrap();
    }
    assert_eq!(log.offset_for_timestamp(NOW_MS + 9).unwrap().unwrap().offset, Offset(9));
    fill_to(&log, BATCHES);
    assert_eq!(log.max_timestamp().unwrap().unwrap().offset, Offset(BATCHES - 1));
    log.close().unwrap();
    fixture.dir.close().unwrap();
    drop((log, fixture));
    let again = dense_indexes(dir.path(), &DirOptions::default());
    finds_all(&again.open(), 8192);
}

#[test]
fn a_disk_that_refuses_an_index_does_not_hold_up_appends() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let options = DirOptions { disk: Arc::clone(&disk) as _, ..DirOptions::default() };
    let fixture = dense_indexes(dir.path(), &options);
    let log = fixture.open();
    fill_to(&log, 10);
    let code = rustix::io::Errno::NOSPC.raw_os_error();
    disk.inject(InjectedFault { call: DiskCall::Rename, code, skip: 0, times: usize::MAX });
    fill_to(&log, 1000);
    finds_all(&log, 0);
    assert_eq!(std::fs::metadata(fixture.file(0, "index")).unwrap().len(), 0);
    disk.heal();
    fill_to(&log, 1001);
    assert_eq!(std::fs::metadata(fixture.file(0, "index")).unwrap().len(), 1000 * ENTRY);
    finds_all(&log, 0);
}

/// A disk that counts the bytes that are read of derived files.
#[derive(Debug, Default)]
struct CountedReads(AtomicUsize);

impl Disk for CountedReads {
    fn read_at(&self, file: &File, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let count = file.read_at(buf, position)?;
        self.0.fetch_add(count, Ordering::SeqCst);
        Ok(count)
    }
}

#[test]
fn a_start_and_the_first_append_read_only_the_ends_of_the_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = dense_indexes(dir.path(), &DirOptions::default());
    let log = fixture.open();
    fill_to(&log, BATCHES);
    log.close().unwrap();
    fixture.dir.close().unwrap();
    drop((log, fixture));
    let disk = Arc::new(CountedReads::default());
    let options = DirOptions { disk: Arc::clone(&disk) as _, ..DirOptions::default() };
    let fixture = dense_indexes(dir.path(), &options);
    let log = fixture.open();
    fill_to(&log, BATCHES + 1);
    let read = disk.0.load(Ordering::SeqCst);
    assert!(read < 1000, "{read} bytes");
    finds_all(&log, 0);
}

#[test]
fn a_recovered_log_keeps_no_index_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = dense_indexes(dir.path(), &DirOptions::default());
    fixture.config.segment_bytes = 20_000;
    let log = fixture.open();
    fill_to(&log, BATCHES);
    drop((log, fixture));
    let fixture = dense_indexes(dir.path(), &DirOptions::default());
    let log = fixture.open();
    let segments = log.segment_summaries().unwrap();
    assert!(segments.len() > 10);
    for segment in segments {
        let count = (segment.next_offset.0 - segment.base_offset.0).unsigned_abs();
        let file = fixture.file(segment.base_offset.0, "index");
        assert_eq!(std::fs::metadata(file).unwrap().len(), (count - 1) * ENTRY);
    }
    for offset in (0..BATCHES).step_by(91) {
        assert_eq!(read_from(&log, offset, 1).first().unwrap(), &(offset, value(offset)));
    }
}
