//! The records that a cleaning keeps: the last record of each key, in order, at its offset;
//! tombstones and markers of transactions until they expire; the last batch of each producer.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;

use krust::ids::{Epoch, Offset};
use krust::record::batch::{self, BatchFields};
use krust::record::compression::Codec;
use krust::record::legacy::{self, NewMessage};
use krust::storage::{AppendError, CleanerOptions, Log};
use proptest::prelude::*;

use crate::corruption::captured_lines::CapturedLines;
use crate::support::{
    LogFixture, NOW_MS, Pair, append, append_after_roll, batch_of, bytes_of, compact, keyed,
    keyed_at, marker, pairs_in,
};

const RETENTION_MS: i64 = 1000;

fn fixture(path: &std::path::Path) -> LogFixture {
    let mut fixture = LogFixture::new(path);
    fixture.config.compact = true;
    fixture.config.delete = false;
    fixture.config.delete_retention_ms = RETENTION_MS;
    fixture.dense = false;
    fixture
}

fn offsets(log: &Log) -> Vec<i64> {
    pairs_in(&bytes_of(log)).iter().map(|(offset, ..)| *offset).collect()
}

fn segment_bases(fixture: &LogFixture) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(fixture.partition())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".log"))
        .collect();
    names.sort();
    names
}

#[test]
fn superseded_records_are_removed_and_the_others_keep_their_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    append(&log, &keyed(&[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))])).unwrap();
    append(&log, &keyed(&[("a", Some("3"))])).unwrap();
    append_after_roll(&log, &keyed(&[("b", Some("2")), ("c", Some("1"))]));
    append_after_roll(&log, &keyed(&[("c", Some("2"))]));
    let done = compact(&fixture, &log).unwrap();
    assert_eq!((done.clean_to, done.keys, done.records_kept), (Offset(6), 3, 3));
    assert_eq!(offsets(&log), [3, 4, 5, 6]);
    assert_eq!(segment_bases(&fixture).len(), 2);
    let second = batch::iter(&bytes_of(&log)).nth(1).unwrap().unwrap().header().base_offset;
    assert_eq!(second, 4);
    assert_eq!(compact(&fixture, &log), None);
    let read = pairs_in(&bytes_of(&log));
    log.close().unwrap();
    fixture.dir.close().unwrap();
    let again = LogFixture { dir: LogFixture::new(dir.path()).dir, ..fixture };
    let log = again.open();
    assert_eq!(pairs_in(&bytes_of(&log)), read);
    assert_eq!(log.dirty(NOW_MS).unwrap().unwrap().first_dirty, 6);
}

#[test]
fn a_batch_that_loses_records_keeps_its_offsets_sequence_and_times() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let fixture = fixture(dir.path());
        let log = fixture.open();
        log.set_leader_epoch(Epoch(5));
        let fields = BatchFields {
            codec,
            producer_id: 9,
            producer_epoch: 2,
            base_sequence: 0,
            ..BatchFields::default()
        };
        let pairs: Vec<(String, String)> =
            (0..200).map(|n| (format!("key-{}", n % 150), format!("value-{n}"))).collect();
        let pairs: Vec<(&str, Option<&str>)> =
            pairs.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))).collect();
        append(&log, &keyed_at(NOW_MS, &pairs, &fields)).unwrap();
        append_after_roll(&log, &keyed(&[("x", Some("y"))]));
        let before = pairs_in(&bytes_of(&log));
        compact(&fixture, &log).unwrap();
        let bytes = bytes_of(&log);
        assert_eq!(pairs_in(&bytes), before[50..]);
        let batch = batch::iter(&bytes).next().unwrap().unwrap();
        let header = batch.header();
        assert_eq!((batch.codec(), batch.base_offset(), batch.last_offset()), (codec, 0, 199));
        assert_eq!((header.producer_id, header.base_sequence, header.leader_epoch), (9, 0, 5));
        assert_eq!((header.max_timestamp, header.record_count), (NOW_MS, 150));
    }
}

#[test]
fn tombstones_stay_for_delete_retention_after_the_first_cleaning() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    append(&log, &keyed(&[("a", Some("1")), ("b", Some("1"))])).unwrap();
    append(&log, &keyed_at(NOW_MS - 7, &[("a", None), ("c", Some("1"))], &BatchFields::default()))
        .unwrap();
    append_after_roll(&log, &keyed(&[("x", Some("1"))]));
    compact(&fixture, &log).unwrap();
    assert_eq!(offsets(&log), [1, 2, 3, 4]);
    let bytes = bytes_of(&log);
    let batch = batch::iter(&bytes).nth(1).unwrap().unwrap();
    assert!(batch.has_delete_horizon());
    assert_eq!(batch.header().base_timestamp, NOW_MS + RETENTION_MS);
    assert!(batch.records().all(|record| record.unwrap().timestamp == NOW_MS - 7));
    fixture.clock.advance(RETENTION_MS - 1);
    append_after_roll(&log, &keyed(&[("x", Some("2"))]));
    compact(&fixture, &log).unwrap();
    assert_eq!(offsets(&log), [1, 2, 3, 4, 5]);
    fixture.clock.advance(1);
    append_after_roll(&log, &keyed(&[("x", Some("3"))]));
    compact(&fixture, &log).unwrap();
    assert_eq!(offsets(&log), [1, 3, 5, 6]);
}

#[test]
fn the_last_batch_of_each_producer_stays_even_if_it_becomes_empty() {
    keeps_the_last_batches(Some("1"));
}

#[test]
fn the_last_batch_of_a_producer_stays_if_it_had_a_tombstone() {
    keeps_the_last_batches(None);
}

/// Batches of two producers, of records with `value`, all of which are superseded.
fn keeps_the_last_batches(value: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    let of = |producer_id, base_sequence, key: &str| {
        let fields =
            BatchFields { producer_id, producer_epoch: 0, base_sequence, ..BatchFields::default() };
        keyed_at(NOW_MS, &[(key, value)], &fields)
    };
    append(&log, &of(7, 0, "a")).unwrap();
    append(&log, &of(7, 1, "a")).unwrap();
    append(&log, &of(8, 0, "a")).unwrap();
    append(&log, &keyed(&[("a", Some("2"))])).unwrap();
    append_after_roll(&log, &keyed(&[("x", Some("1"))]));
    compact(&fixture, &log).unwrap();
    let bytes = bytes_of(&log);
    let found: Vec<(i64, i32)> = batch::iter(&bytes)
        .map(|batch| batch.unwrap())
        .map(|batch| (batch.base_offset(), batch.header().record_count))
        .collect();
    assert_eq!(found, [(1, 0), (2, 0), (3, 1), (4, 1)]);
    let log = {
        log.close().unwrap();
        drop(log);
        std::fs::remove_file(fixture.file(4, "snapshot")).unwrap();
        fixture.open_with(false)
    };
    assert!(matches!(
        append(&log, &batch_of(7, 3, &[b"gap"])),
        Err(AppendError::OutOfOrderSequence { last: 1, .. })
    ));
    append(&log, &batch_of(7, 2, &[b"next"])).unwrap();
}

#[test]
fn aborted_data_is_removed_at_once_and_its_marker_later() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    let in_transaction = |producer_id, key: &str| {
        let base_sequence = 0;
        let fields = BatchFields {
            producer_id,
            producer_epoch: 0,
            base_sequence,
            transactional: true,
            ..BatchFields::default()
        };
        keyed_at(NOW_MS, &[(key, Some("t"))], &fields)
    };
    append(&log, &keyed(&[("a", Some("1"))])).unwrap();
    append(&log, &in_transaction(1, "a")).unwrap();
    append(&log, &in_transaction(2, "b")).unwrap();
    append(&log, &marker(1, false)).unwrap();
    append(&log, &marker(2, true)).unwrap();
    append(&log, &batch_of(1, 1, &[b"later"])).unwrap();
    append(&log, &batch_of(2, 1, &[b"later"])).unwrap();
    append_after_roll(&log, &keyed(&[("b", Some("2"))]));
    compact(&fixture, &log).unwrap();
    let bases = |log: &Log| -> Vec<i64> {
        let bytes = bytes_of(log);
        batch::iter(&bytes).map(|batch| batch.unwrap().base_offset()).collect()
    };
    assert_eq!(offsets(&log), [0, 2, 7]);
    assert_eq!(bases(&log), [0, 2, 3, 4, 5, 6, 7]);
    assert_eq!(log.aborted(Offset(0), Offset(8)).unwrap().len(), 1);
    for round in 0..4 {
        fixture.clock.advance(RETENTION_MS);
        append_after_roll(&log, &keyed(&[("b", Some(&round.to_string()))]));
        compact(&fixture, &log).unwrap();
    }
    assert_eq!(bases(&log), [0, 5, 6, 10, 11]);
    let lines = CapturedLines::default();
    assert!(lines.collect(|| log.aborted(Offset(0), Offset(9)).unwrap()).is_empty());
    assert!(
        !lines.all().iter().any(|line| line.contains("aborted transactions are rebuilt")),
        "{:?}",
        lines.all()
    );
    assert!(!fixture.partition().join("krust-aborted-transactions").exists());
}

#[test]
fn nothing_at_or_above_an_open_transaction_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    append(&log, &keyed(&[("a", Some("1")), ("a", Some("2"))])).unwrap();
    let fields = BatchFields {
        producer_id: 3,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..BatchFields::default()
    };
    append_after_roll(&log, &keyed_at(NOW_MS, &[("a", Some("3"))], &fields));
    append_after_roll(&log, &keyed(&[("a", Some("4"))]));
    compact(&fixture, &log).unwrap();
    assert_eq!(offsets(&log), [1, 2, 3]);
    append(&log, &marker(3, true)).unwrap();
    append_after_roll(&log, &keyed(&[("z", Some("1"))]));
    compact(&fixture, &log).unwrap();
    assert_eq!(offsets(&log), [3, 5]);
}

#[test]
fn a_segment_whose_records_all_stay_is_not_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = fixture(dir.path());
    fixture.config.segment_bytes = 700;
    let log = fixture.open();
    let value = Some("long enough that no two segments become one".repeat(6));
    for keys in [["a", "b"], ["a", "c"], ["d", "e"], ["d", "x"]] {
        append(&log, &keyed(&keys.map(|key| (key, value.as_deref())))).unwrap();
    }
    let file = |base| std::fs::metadata(fixture.file(base, "log")).unwrap().ino();
    let (first, second, third) = (file(0), file(2), file(4));
    let done = compact(&fixture, &log).unwrap();
    assert_eq!((offsets(&log), done.records_kept), (vec![1, 2, 3, 4, 5, 6, 7], 5));
    assert_ne!(file(0), first);
    assert_eq!((file(2), file(4)), (second, third));
    append_after_roll(&log, &keyed(&[("c", None)]));
    compact(&fixture, &log).unwrap();
    assert_eq!(offsets(&log), [1, 2, 3, 5, 6, 7, 8]);
}

#[test]
fn an_empty_batch_does_not_outlive_its_use_beside_records_that_stay() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    let of = |base_sequence, key: &str| {
        let fields = BatchFields {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence,
            ..BatchFields::default()
        };
        keyed_at(NOW_MS, &[(key, Some("1"))], &fields)
    };
    append(&log, &of(0, "a")).unwrap();
    append(&log, &keyed(&[("b", Some("1"))])).unwrap();
    append_after_roll(&log, &keyed(&[("a", Some("2"))]));
    let batches = |log: &Log| -> Vec<i64> {
        let bytes = bytes_of(log);
        batch::iter(&bytes).map(|batch| batch.unwrap().base_offset()).collect()
    };
    append_after_roll(&log, &keyed(&[("x", Some("1"))]));
    compact(&fixture, &log).unwrap();
    assert_eq!(batches(&log), [0, 1, 2, 3]);
    append_after_roll(&log, &of(1, "y"));
    log.close().unwrap();
    fixture.dir.close().unwrap();
    std::fs::remove_file(dir.path().join("cleaner-offset-checkpoint")).unwrap();
    let again = LogFixture { dir: LogFixture::new(dir.path()).dir, ..fixture };
    let log = again.open();
    compact(&again, &log).unwrap();
    assert_eq!(batches(&log), [1, 2, 3, 4]);
}

#[test]
fn readers_pass_gaps_without_rebuilding_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = fixture(dir.path());
    fixture.config.index_interval_bytes = 0;
    let log = fixture.open();
    for n in 0..40 {
        let key = if (10..20).contains(&n) || n >= 30 { "hot".to_owned() } else { n.to_string() };
        append(&log, &keyed(&[(&key, Some("1"))])).unwrap();
    }
    append_after_roll(&log, &keyed(&[("hot", Some("2"))]));
    append_after_roll(&log, &keyed(&[("end", Some("2"))]));
    compact(&fixture, &log).unwrap();
    let index = fixture.file(0, "index");
    let before = std::fs::metadata(&index).unwrap().modified().unwrap();
    for from in 0..42 {
        let found = crate::support::read_from(&log, from, 1 << 20);
        let wanted = (0..10).chain(20..30).chain(40..42).find(|offset| *offset >= from);
        assert_eq!(found.first().map(|record| record.0), wanted, "from {from}");
    }
    assert_eq!(std::fs::metadata(&index).unwrap().modified().unwrap(), before);
}

#[test]
fn records_without_a_key_are_removed_and_a_small_map_takes_several_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    let mut last = BTreeMap::new();
    for n in 0..3000i64 {
        let key = format!("k{}", n * 31 % 700);
        append(&log, &keyed(&[(&key, Some(&n.to_string()))])).unwrap();
        last.insert(key, n);
    }
    append(&log, &crate::support::batch(&[b"no key"])).unwrap();
    append_after_roll(&log, &keyed(&[("end", Some(""))]));
    let small = CleanerOptions { dedupe_buffer_bytes: 400 * 16, ..CleanerOptions::default() };
    let mut rounds = 0;
    while log.compact(NOW_MS, &small).unwrap().is_some() {
        rounds += 1;
    }
    assert!(rounds > 5, "{rounds}");
    let mut expected: Vec<i64> = last.into_values().collect();
    expected.sort_unstable();
    expected.push(3001);
    assert_eq!(offsets(&log), expected);
}

#[test]
fn a_batch_with_more_keys_than_the_map_may_hold_ends_the_cleaning() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    let keys: Vec<String> = (0..58).map(|n| n.to_string()).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), Some("v"))).collect();
    append(&log, &keyed(&pairs)).unwrap();
    append_after_roll(&log, &keyed(&[("0", Some("w"))]));
    let none = CleanerOptions { dedupe_buffer_bytes: 0, ..CleanerOptions::default() };
    let error = log.compact(NOW_MS, &none).unwrap_err().to_string();
    assert!(error.contains("57 keys that log.cleaner.dedupe.buffer.size allows"), "{error}");
    assert_eq!(offsets(&log).len(), 59);
    assert_eq!(compact(&fixture, &log), None, "not before a restart");
}

#[test]
fn a_log_larger_than_the_buffers_is_cleaned() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = fixture(dir.path());
    let log = fixture.open();
    let (value, mut last) = ("v".repeat(100), BTreeMap::new());
    for first in (0..20_000).step_by(100) {
        // Every key comes twice, in one batch and the next.
        let keys: Vec<String> = (first..first + 200).map(|n| n.to_string()).collect();
        let pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), Some(value.as_str()))).collect();
        let base = append(&log, &keyed(&pairs)).unwrap().base_offset.0;
        last.extend((base..).zip(keys).map(|(offset, key)| (key, offset)));
    }
    append_after_roll(&log, &keyed(&[("end", Some(""))]));
    let small = CleanerOptions { io_buffer_bytes: 0, ..CleanerOptions::default() };
    let done = log.compact(NOW_MS, &small).unwrap().unwrap();
    assert!(done.bytes_written > 2 << 20, "{done:?}");
    let mut expected: Vec<i64> = last.into_values().collect();
    expected.sort_unstable();
    expected.push(40_000);
    assert_eq!(offsets(&log), expected);
}

#[test]
fn segments_of_magic_0_and_1_are_cleaned_in_their_own_format() {
    for magic in [0, 1] {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
            let dir = tempfile::tempdir().unwrap();
            let fixture = fixture(dir.path());
            std::fs::create_dir_all(fixture.partition()).unwrap();
            std::fs::write(fixture.file(0, "log"), legacy_set(magic, codec)).unwrap();
            let log = fixture.open_with(false);
            append_after_roll(&log, &keyed(&[("key-1", Some("new")), ("x", Some("1"))]));
            append_after_roll(&log, &keyed(&[("x", Some("2"))]));
            compact(&fixture, &log).unwrap();
            let stored = std::fs::read(fixture.file(0, "log")).unwrap();
            let mut found = Vec::new();
            for message in legacy::iter(&stored).map_while(Result::ok) {
                assert!(message.crc_ok());
                assert_eq!((message.magic, message.codec), (magic, codec));
                let mut held = Vec::new();
                let records = legacy::records(&message, 1 << 20, &mut held).unwrap();
                found.extend(records.map(|record| (record.offset, record.timestamp)));
            }
            let time = |n: i64| if magic == 0 { -1 } else { NOW_MS + n };
            let wanted: Vec<(i64, i64)> =
                (5..10).filter(|n| n % 5 != 1).map(|n| (n, time(n))).collect();
            assert_eq!(found, wanted, "magic {magic}, {codec:?}");
            assert_eq!(log.log_end_offset(), Offset(13));
        }
    }
}

/// Ten records of five keys, the second five superseding the first, two wrappers if compressed.
fn legacy_set(magic: i8, codec: Codec) -> Vec<u8> {
    let mut set = Vec::new();
    for half in [0..5i64, 5..10] {
        let mut inside = Vec::new();
        let last = half.end - 1;
        for n in half.clone() {
            let key = format!("key-{}", n % 5);
            let relative = codec != Codec::None && magic == 1;
            let offset = if relative { n - half.start } else { n };
            let value = Some(b"value".as_slice());
            let timestamp = NOW_MS + n;
            let key = Some(key.as_bytes());
            legacy::put(
                &mut inside,
                &NewMessage { magic, attributes: 0, offset, timestamp, key, value },
            );
        }
        if codec == Codec::None {
            set.extend(inside);
            continue;
        }
        let mut value = Vec::new();
        krust::record::compression::deflate(codec, None, &inside, &mut value).unwrap();
        let wrapper = NewMessage {
            magic,
            attributes: codec as i8,
            offset: last,
            timestamp: NOW_MS + last,
            key: None,
            value: Some(&value),
        };
        legacy::put(&mut set, &wrapper);
    }
    set
}

/// What a compacted log must hold: the model keeps a list and knows each key's last record.
#[derive(Default)]
struct Model(Vec<(i64, i64, Pair)>);

impl Model {
    /// Records that must be there, and those that may be.
    fn check_start(&self, found: &[(i64, i64, Pair)], clean_to: i64) {
        let mut last: HashMap<&Option<Vec<u8>>, i64> = HashMap::new();
        for (offset, _, (key, _)) in &self.0 {
            last.insert(key, *offset);
        }
        let all: BTreeMap<i64, &(i64, i64, Pair)> = self.0.iter().map(|r| (r.0, r)).collect();
        let there: BTreeMap<i64, &(i64, i64, Pair)> = found.iter().map(|r| (r.0, r)).collect();
        assert_eq!(there.len(), found.len(), "an offset twice");
        assert!(found.is_sorted_by_key(|record| record.0));
        for (offset, record) in &there {
            assert_eq!(all.get(offset), Some(record), "not what was written at {offset}");
        }
        for (offset, _, (key, value)) in &self.0 {
            let is_last = last.get(key) == Some(offset);
            let must = *offset >= clean_to || (is_last && value.is_some());
            assert!(!must || there.contains_key(offset), "{offset} is lost");
            let newer_is_clean = self.0.iter().any(|(other, _, (other_key, _))| {
                other > offset && *other < clean_to && other_key == key
            });
            assert!(!newer_is_clean || !there.contains_key(offset), "{offset} should be gone");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_log_is_cleaned_to_what_a_table_would_hold(
        steps in prop::collection::vec((0..24u8, 0..6usize, 0..5i8, 0..10u8), 1..80),
        slots in 40..400usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut fixture = fixture(dir.path());
        fixture.config.segment_bytes = 2000;
        let log = fixture.open();
        let dedupe_buffer_bytes = slots * 16;
        let options = CleanerOptions { dedupe_buffer_bytes, ..CleanerOptions::default() };
        let mut model = Model::default();
        let mut clean_to = 0;
        for (seed, count, codec, action) in steps {
            let codec = Codec::from_bits(i16::from(codec)).unwrap();
            let records: Vec<(String, Option<String>)> = (0..=count)
                .map(|n| {
                    let key = format!("{}", (usize::from(seed) * 5 + n * 3) % 17);
                    let has = n % 4 != 1 || seed % 3 == 0;
                    let text = has.then(|| format!("{seed}/{n} of {count}"));
                    (key, text)
                })
                .collect();
            let borrowed: Vec<(&str, Option<&str>)> =
                records.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
            let fields = BatchFields { codec, ..BatchFields::default() };
            let now = NOW_MS + i64::from(seed);
            let base = append(&log, &keyed_at(now, &borrowed, &fields)).unwrap().base_offset.0;
            for (offset, (key, value)) in (base..).zip(records) {
                let pair = (Some(key.into_bytes()), value.map(String::into_bytes));
                model.0.push((offset, now, pair));
            }
            if action == 0 {
                fixture.clock.advance(600);
                let now_ms = krust::clock::Clock::wall_ms(&fixture.clock);
                if let Some(done) = log.compact(now_ms, &options).unwrap() {
                    clean_to = done.clean_to.0;
                }
                model.check_start(&pairs_in(&bytes_of(&log)), clean_to);
            }
        }
        model.check_start(&pairs_in(&bytes_of(&log)), clean_to);
        log.close().unwrap();
        drop(log);
        let log = fixture.open_with(false);
        model.check_start(&pairs_in(&bytes_of(&log)), clean_to);
    }
}
