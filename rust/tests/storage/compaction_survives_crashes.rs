//! A kill or a power cut at any change that a cleaning makes on the disk leaves a log that holds
//! the last record of each key, and can be cleaned again. Readers do not notice a swap.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use krust::record::batch::BatchFields;
use krust::record::compression::Codec;
use krust::storage::recording::{Crash, RecordingDisk};
use krust::storage::{Log, LogReadRequest};

use crate::support::{
    LogFixture, NOW_MS, Pair, append, append_after_roll, bytes_from, bytes_of, compact, keyed,
    keyed_at, pairs_in, scratch, snapshot, wanted,
};

pub type Records = Vec<(i64, i64, Pair)>;

pub fn home_on(path: &Path, disk: Option<&Arc<RecordingDisk>>) -> LogFixture {
    let mut fixture = match disk {
        Some(disk) => LogFixture::on(path, Arc::clone(disk) as _),
        None => LogFixture::new(path),
    };
    fixture.config.compact = true;
    fixture.config.delete = false;
    fixture.config.segment_bytes = 900;
    fixture.config.delete_retention_ms = 0;
    fixture.dense = false;
    fixture
}

pub fn write(log: &Log, rounds: std::ops::Range<i32>) {
    for n in rounds {
        let key = format!("key-{}", n * 7 % 9);
        let text = format!("{n}");
        let value = (n % 11 != 3).then_some(text.as_str());
        let codec = if n % 5 == 0 { Codec::Lz4 } else { Codec::None };
        let fields = BatchFields { codec, ..BatchFields::default() };
        append(log, &keyed_at(NOW_MS, &[(&key, value), ("every", Some(&text))], &fields)).unwrap();
    }
}

/// The offset of each key's last record, below `end`.
fn lasts(records: &Records, end: i64) -> BTreeMap<Vec<u8>, (i64, bool)> {
    let below = records.iter().filter(|record| record.0 < end);
    below.map(|(o, _, (key, value))| (key.clone().unwrap(), (*o, value.is_some()))).collect()
}

/// The image holds nothing that was not written, wherever a reader begins, and of each key the last
/// value that was durable, or a later one.
pub fn check(image: &Path, written: &Records, durable: i64, what: &str) {
    let found = {
        let fixture = home_on(image, None);
        let log = fixture.open_with(false);
        assert!(log.damage().is_none(), "{what}: {:?}", log.damage());
        assert!(log.log_end_offset().0 >= durable, "{what}: ends at {}", log.log_end_offset());
        let found = pairs_in(&bytes_of(&log));
        for base in log.segment_summaries().unwrap().iter().map(|segment| segment.base_offset) {
            let rest: Vec<_> = found.iter().filter(|record| record.0 >= base.0).collect();
            let from_there = pairs_in(&bytes_from(&log, base));
            assert_eq!(from_there.iter().collect::<Vec<_>>(), rest, "{what}: from {base} on");
        }
        found
    };
    let there = lasts(&found, i64::MAX);
    for record in &found {
        assert!(written.contains(record), "{what}: {record:?} was never written");
    }
    for (key, (offset, has_value)) in lasts(written, durable) {
        let newest = there.get(&key).map_or(-1, |(newest, _)| *newest);
        assert!(newest >= offset || !has_value, "{what}: {key:?} of {offset} is lost");
        let superseded = |r: &&(i64, i64, Pair)| r.2.0.as_ref() == Some(&key) && r.2.1.is_some();
        let back = !has_value && found.iter().filter(superseded).any(|r| r.0 < offset);
        assert!(!back || newest >= offset, "{what}: {key:?} came back");
    }
    let once = snapshot(image);
    let left = |suffix| once.iter().any(|(path, _)| path.to_string_lossy().ends_with(suffix));
    assert!(![".swap", ".cleaned", ".deleted"].into_iter().any(left), "{what}: leftovers");
    let fixture = home_on(image, None);
    let log = fixture.open_with(false);
    assert_eq!(snapshot(image), once, "{what}: the second recovery changed something");
    append_after_roll(&log, &keyed(&[("another", Some("1"))]));
    compact(&fixture, &log);
    let end = log.log_end_offset().0;
    let cleaned = pairs_in(&bytes_of(&log));
    for (key, (offset, has_value)) in lasts(&found, end) {
        let kept = cleaned.iter().any(|record| record.0 == offset);
        assert!(kept || !has_value, "{what}: {key:?} of {offset} is lost by the next cleaning");
    }
}

fn images(disk: &RecordingDisk, first: usize, mut check: impl FnMut(&Path, usize, &str)) {
    let seeds = wanted("KRUST_CRASH_IMAGES", 2);
    for ops in first..=disk.ops() {
        let kills = [0, 61].map(|torn| Crash::Kill { torn });
        let cuts = (0..seeds).map(|seed| Crash::PowerCut { seed: ops as u64 * 977 + seed * 31 });
        for crash in kills.into_iter().chain(cuts) {
            let image = scratch();
            disk.crash(ops, crash, image.path()).unwrap();
            check(image.path(), ops, &format!("after {ops} changes, {crash:?}"));
        }
    }
}

#[test]
fn a_crash_during_compaction_of_a_flushed_log_loses_nothing() {
    let source = scratch();
    let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
    let fixture = home_on(source.path(), Some(&disk));
    let log = fixture.open();
    write(&log, 0..26);
    log.flush().unwrap();
    fixture.dir.checkpoint().unwrap();
    let first = disk.ops();
    let written = pairs_in(&bytes_of(&log));
    let end = log.log_end_offset().0;
    assert!(compact(&fixture, &log).is_some());
    assert!(pairs_in(&bytes_of(&log)).len() < written.len());
    images(&disk, first, |image, _, what| check(image, &written, end, what));
}

#[test]
fn a_crash_during_compaction_of_an_unflushed_tail_loses_nothing() {
    let source = scratch();
    let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
    let fixture = home_on(source.path(), Some(&disk));
    let log = fixture.open();
    write(&log, 0..15);
    log.flush().unwrap();
    fixture.dir.checkpoint().unwrap();
    let durable = log.log_end_offset().0;
    write(&log, 15..24);
    let first = disk.ops();
    let written = pairs_in(&bytes_of(&log));
    assert!(compact(&fixture, &log).is_some());
    images(&disk, first, |image, _, what| check(image, &written, durable, what));
}

#[test]
fn a_crash_of_a_recovery_that_finishes_a_swap_loses_nothing() {
    let source = scratch();
    let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
    let fixture = home_on(source.path(), Some(&disk));
    let log = fixture.open();
    write(&log, 0..12);
    log.flush().unwrap();
    fixture.dir.checkpoint().unwrap();
    let (first, written) = (disk.ops(), pairs_in(&bytes_of(&log)));
    let end = log.log_end_offset().0;
    compact(&fixture, &log).unwrap();
    for ops in first..=disk.ops() {
        let image = scratch();
        disk.crash(ops, Crash::Kill { torn: 0 }, image.path()).unwrap();
        let has_swap =
            snapshot(image.path()).iter().any(|(path, _)| path.to_string_lossy().ends_with("swap"));
        if !has_swap {
            continue;
        }
        let again = Arc::new(RecordingDisk::new(image.path()).unwrap());
        drop(home_on(image.path(), Some(&again)).open_with(false));
        images(&again, 0, |image, _, what| check(image, &written, end, what));
    }
}

#[test]
fn a_reader_that_stopped_at_an_edge_finds_it_after_the_swap() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = home_on(dir.path(), None);
    let log = fixture.open();
    write(&log, 0..26);
    let edge = log.segment_summaries().unwrap().get(2).unwrap().base_offset;
    let offset = log.log_start_offset();
    let below = LogReadRequest { offset, max_bytes: 1 << 20, upper: edge, min_one: true };
    let before = log.read(below).unwrap().to_vec().unwrap();
    assert!(compact(&fixture, &log).is_some());
    let after = log.read(below).unwrap().to_vec().unwrap();
    assert!(after.len() < before.len());
    assert!(pairs_in(&after).iter().all(|record| record.0 < edge.0));
}

#[test]
fn readers_continue_through_swaps() {
    let dir = scratch();
    let fixture = home_on(dir.path(), None);
    let log = fixture.open();
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (log, done) = (Arc::clone(&log), Arc::clone(&done));
            std::thread::spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let found = pairs_in(&bytes_of(&log));
                    assert!(found.is_sorted_by(|one, next| one.0 < next.0));
                    log.offset_for_timestamp(NOW_MS).unwrap();
                    log.segment_summaries().unwrap();
                }
            })
        })
        .collect();
    for round in 0..60 {
        write(&log, round * 20..round * 20 + 20);
        fixture.clock.advance(70_000);
        compact(&fixture, &log);
        log.retain(NOW_MS).unwrap();
        log.flush().unwrap();
    }
    done.store(true, Ordering::Release);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    let left: Vec<_> = snapshot(&fixture.partition());
    assert!(left.len() < 60, "{} files", left.len());
}
