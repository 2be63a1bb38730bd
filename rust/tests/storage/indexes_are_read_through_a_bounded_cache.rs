//! The indexes of segments are read, never mapped. Their memory stays within a limit, and an index
//! that cannot be read is an error of the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use krust::ids::Offset;
use krust::record::batch::BatchFields;
use krust::storage::files::Disk;
use krust::storage::{DirOptions, INDEX_CACHE_BYTES, IndexCache, Log, StorageError};

use crate::support::{
    LogFixture, NOW_MS, append, append_after_roll, batch, build, expected, fetch, fill, marker,
    read_from,
};

/// A disk that counts how often derived files are read, and may have a bad sector.
#[derive(Debug, Default)]
struct CountedReads {
    count: AtomicUsize,
    fail: AtomicBool,
}

impl Disk for CountedReads {
    fn read_at(&self, file: &File, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.count.fetch_add(1, Ordering::SeqCst);
        match self.fail.load(Ordering::SeqCst) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => file.read_at(buf, position),
        }
    }
}

struct CountedOpens {
    fixture: LogFixture,
    log: Arc<Log>,
    disk: Arc<CountedReads>,
    cache: Arc<IndexCache>,
}

impl CountedOpens {
    /// What `write` wrote and shut down in order, opened again.
    fn after(path: &Path, limit: usize, write: impl Fn(&mut LogFixture) -> Arc<Log>) -> Self {
        let mut fixture = LogFixture::new(path);
        let log = write(&mut fixture);
        log.close().unwrap();
        fixture.dir.close().unwrap();
        drop((log, fixture));
        let (disk, cache) = (Arc::new(CountedReads::default()), IndexCache::new(limit));
        let options = DirOptions {
            disk: Arc::clone(&disk) as _,
            index_cache: Arc::clone(&cache),
            ..DirOptions::default()
        };
        let fixture = LogFixture::with(path, &options);
        let log = fixture.open_with(true);
        Self { fixture, log, disk, cache }
    }

    /// So many reads it costs to ask the index for `offset`.
    fn reads_of(&self, offset: i64) -> usize {
        let before = self.disk.count.load(Ordering::SeqCst);
        self.log.index_lookup(Offset(offset)).unwrap();
        self.disk.count.load(Ordering::SeqCst) - before
    }
}

/// Segments of about 20 batches, a few entries each.
fn many_segments(fixture: &mut LogFixture) -> Arc<Log> {
    fixture.config.segment_bytes = 3000;
    let log = fixture.open();
    fill(&log, 1000);
    log
}

/// One segment whose index has more than one page.
fn one_large_segment(fixture: &mut LogFixture) -> Arc<Log> {
    fixture.config.index_interval_bytes = 1;
    let log = fixture.open();
    for _ in 0..50 {
        let staged: Vec<_> = (0..100)
            .map(|_| crate::support::stage(&log, &batch(&[b"value"])).unwrap().staged)
            .collect();
        log.commit(staged.into_iter().next_back().unwrap()).unwrap();
    }
    log.raise_high_watermark(log.log_end_offset());
    log
}

#[test]
fn a_cold_lookup_reads_once_or_twice_and_a_hot_one_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let it = CountedOpens::after(dir.path(), INDEX_CACHE_BYTES, many_segments);
    let states = it.log.segment_summaries().unwrap();
    assert!(states.len() > 30);
    for segment in &states[..states.len() - 1] {
        assert!((1..=2).contains(&it.reads_of(segment.next_offset.0 - 1)));
        assert_eq!(it.reads_of(segment.base_offset.0 + 1), 0);
    }
}

#[test]
fn a_cold_page_of_a_large_index_is_one_read() {
    let dir = tempfile::tempdir().unwrap();
    let it = CountedOpens::after(dir.path(), INDEX_CACHE_BYTES, one_large_segment);
    it.log.index_lookup(Offset(1)).unwrap();
    for offset in [2500, 4900] {
        assert_eq!(it.reads_of(offset), 1, "the page of {offset}");
        assert_eq!(it.reads_of(offset - 1), 0);
    }
    let found: Vec<_> = [1, 2047, 2048, 2049, 4095, 4999]
        .map(|offset| it.log.index_lookup(Offset(offset)).unwrap().unwrap().1)
        .into();
    let size = it.log.size() / 5000;
    assert_eq!(found, [1, 2047, 2048, 2049, 4095, 4999].map(|offset| offset * size));
}

#[test]
fn indexes_of_any_number_of_segments_stay_within_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    for limit in [0, 1000, 3000] {
        let dir = dir.path().join(limit.to_string());
        let it = CountedOpens::after(&dir, limit, many_segments);
        let outline = 200;
        for offset in (0..1000).rev().chain(0..1000) {
            assert_eq!(fetch(&it.log, offset, 1).0, expected(offset..offset + 1));
            assert!(it.cache.held() <= limit + outline, "{:?}", it.cache);
        }
        drop((it.log, it.fixture));
        assert_eq!(it.cache.held(), 0, "what is gone holds nothing");
    }
}

#[test]
fn an_index_that_shrinks_during_use_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let it = CountedOpens::after(dir.path(), INDEX_CACHE_BYTES, one_large_segment);
    it.log.index_lookup(Offset(1)).unwrap();
    for kind in ["index", "timeindex"] {
        let path = it.fixture.file(0, kind);
        std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
    }
    for offset in [4999, 2500, 1] {
        assert_eq!(read_from(&it.log, offset, 1).first().unwrap().0, offset);
    }
    assert!(std::fs::metadata(it.fixture.file(0, "index")).unwrap().len() > 0);
}

#[test]
fn a_bad_sector_under_an_index_takes_the_directory_offline() {
    let dir = tempfile::tempdir().unwrap();
    let it = CountedOpens::after(dir.path(), INDEX_CACHE_BYTES, many_segments);
    it.disk.fail.store(true, Ordering::SeqCst);
    let refused = it.log.index_lookup(Offset(20));
    assert!(matches!(refused, Err(StorageError::Io { .. })), "{refused:?}");
    assert!(it.fixture.dir.is_offline());
}

/// A transaction of record 1 that was aborted, and a segment behind it.
fn aborted(fixture: &mut LogFixture) -> Arc<Log> {
    let log = fixture.open();
    fill(&log, 1);
    let fields = BatchFields {
        producer_id: 5,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..BatchFields::default()
    };
    append(&log, &build(NOW_MS, &[b"never"], &fields)).unwrap();
    append(&log, &marker(5, false)).unwrap();
    append_after_roll(&log, &batch(&[b"behind"]));
    log
}

#[test]
fn aborted_transactions_that_cannot_be_read_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let it = CountedOpens::after(dir.path(), INDEX_CACHE_BYTES, aborted);
    it.disk.fail.store(true, Ordering::SeqCst);
    let refused = it.log.aborted(Offset(0), Offset(3));
    assert!(matches!(refused, Err(StorageError::Io { .. })), "{refused:?}");
    assert!(it.fixture.dir.is_offline());
}

#[test]
fn aborted_transactions_are_rebuilt_if_their_file_is_noise() {
    let dir = tempfile::tempdir().unwrap();
    let it = CountedOpens::after(dir.path(), INDEX_CACHE_BYTES, aborted);
    let path = it.fixture.file(0, "txnindex");
    let before = std::fs::read(&path).unwrap();
    std::fs::write(&path, b"noise").unwrap();
    for _ in 0..2 {
        let found = it.log.aborted(Offset(0), Offset(3)).unwrap();
        assert_eq!(found.iter().map(|it| it.producer_id).collect::<Vec<_>>(), [5]);
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
