//! Whatever a kill or a power cut leaves, recovery restores everything that was synced, in whole
//! batches, and a second recovery changes nothing.

use std::path::Path;
use std::sync::Arc;

use krust::ids::{Epoch, Offset};
use krust::record::batch::BatchFields;
use krust::storage::Log;
use krust::storage::recording::{Crash, RecordingDisk};

use crate::support::{
    LogFixture, NOW_MS, append, batch, batch_of, build, expected, fetch, fill, marker, read_all,
    scratch, snapshot, value, wanted,
};

/// After so many changes of the disk, offsets below this were known to be durable.
type Synced = Vec<(usize, i64)>;

fn write(path: &Path) -> (Arc<RecordingDisk>, Synced) {
    let disk = Arc::new(RecordingDisk::new(path).unwrap());
    let mut fixture = LogFixture::on(path, Arc::clone(&disk) as _);
    fixture.config.segment_bytes = 1500;
    let log = fixture.open();
    let mut synced = vec![(0, 0)];
    for round in 0..6 {
        fill(&log, 3);
        append(&log, &batch_of(9, round, &[&value(log.log_end_offset().0)])).unwrap();
        log.set_leader_epoch(Epoch(round / 2));
        if round % 2 == 1 {
            log.flush().unwrap();
            synced.push((disk.ops(), log.log_end_offset().0));
            fixture.dir.checkpoint().unwrap();
        }
    }
    (disk, synced)
}

fn check(image: &Path, at_least: i64, what: &str) {
    let end = {
        let mut fixture = LogFixture::new(image);
        fixture.config.segment_bytes = 1500;
        let log = fixture.open_with(false);
        assert!(log.damage().is_none(), "{what}: {:?}", log.damage());
        let end = log.log_end_offset().0;
        assert!(end >= at_least, "{what}: {end} < {at_least}");
        assert_eq!(read_all(&log), expected(0..end), "{what}");
        end
    };
    let once = snapshot(image);
    let mut fixture = LogFixture::new(image);
    fixture.config.segment_bytes = 1500;
    let log = fixture.open_with(false);
    assert_eq!(log.log_end_offset().0, end, "{what}");
    assert_eq!(snapshot(image), once, "{what}: the second recovery changed something");
    fill(&log, 2);
    assert_eq!(read_all(&log), expected(0..end + 2), "{what}");
}

fn synced_at(synced: &Synced, ops: usize) -> i64 {
    synced.iter().rev().find(|(at, _)| *at <= ops).map_or(0, |(_, end)| *end)
}

#[test]
fn a_kill_at_any_change_leaves_a_whole_log() {
    let source = scratch();
    let (disk, synced) = write(source.path());
    for ops in 0..=disk.ops() {
        for torn in [0, 7, 61, usize::MAX] {
            let image = scratch();
            disk.crash(ops, Crash::Kill { torn }, image.path()).unwrap();
            check(
                image.path(),
                synced_at(&synced, ops.saturating_sub(1)),
                &format!("{ops} {torn}"),
            );
        }
    }
}

#[test]
fn a_power_cut_at_any_change_leaves_a_whole_log() {
    let source = scratch();
    let (disk, synced) = write(source.path());
    let rounds = wanted("KRUST_CRASH_IMAGES", 4);
    for ops in 0..=disk.ops() {
        for seed in 0..rounds {
            let seed = (ops as u64 * 1000 + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let image = scratch();
            disk.crash(ops, Crash::PowerCut { seed }, image.path()).unwrap();
            check(image.path(), synced_at(&synced, ops), &format!("{ops} changes, seed {seed}"));
        }
    }
}

#[test]
fn aborted_transactions_are_known_after_a_power_cut() {
    let source = scratch();
    let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
    let mut fixture = LogFixture::on(source.path(), Arc::clone(&disk) as _);
    fixture.config.segment_bytes = 700;
    let log = fixture.open();
    let mut markers = Vec::new();
    for round in 0..12 {
        fill(&log, 2);
        let fields = BatchFields {
            producer_id: 5,
            producer_epoch: 0,
            base_sequence: round,
            transactional: true,
            ..BatchFields::default()
        };
        append(&log, &build(NOW_MS, &[b"never"], &fields)).unwrap();
        markers.push(append(&log, &marker(5, false)).unwrap().base_offset.0);
        if round % 3 == 1 {
            log.flush().unwrap();
            fixture.dir.checkpoint().unwrap();
        }
    }
    for ops in 0..=disk.ops() {
        let image = scratch();
        disk.crash(ops, Crash::PowerCut { seed: ops as u64 * 31 + 5 }, image.path()).unwrap();
        let log = LogFixture::new(image.path()).open_with(false);
        let end = log.log_end_offset();
        let found: Vec<i64> = log
            .aborted(Offset(0), end)
            .unwrap()
            .iter()
            .map(|aborted| aborted.last_offset)
            .collect();
        let there: Vec<i64> = markers.iter().copied().filter(|at| *at < end.0).collect();
        assert_eq!(found, there, "after {ops} changes");
    }
}

#[test]
fn a_recovery_that_is_killed_is_repeated() {
    let source = scratch();
    let (disk, synced) = write(source.path());
    let ops = disk.ops() - 3;
    for seed in 0..6 {
        let image = scratch();
        disk.crash(ops, Crash::PowerCut { seed: seed * 7919 + 3 }, image.path()).unwrap();
        let again = Arc::new(RecordingDisk::new(image.path()).unwrap());
        drop(LogFixture::on(image.path(), Arc::clone(&again) as _).open_with(false));
        for ops in 0..=again.ops() {
            let second = scratch();
            again.crash(ops, Crash::Kill { torn: 5 }, second.path()).unwrap();
            check(second.path(), synced_at(&synced, ops), &format!("killed in recovery {ops}"));
        }
    }
}

/// Reads the whole log, so that a truncation finds bytes behind the cut given away.
fn lend_all(log: &Log) {
    assert_eq!(read_all(log).len() as i64, log.log_end_offset().0);
}

#[test]
fn a_truncation_that_is_killed_leaves_no_hole() {
    for (end, is_lent) in [11, 5, 0].into_iter().flat_map(|end| [(end, true), (end, false)]) {
        let source = scratch();
        let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
        let mut fixture = LogFixture::on(source.path(), Arc::clone(&disk) as _);
        fixture.config.segment_bytes = 700;
        let log = fixture.open();
        fill(&log, 30);
        log.flush().unwrap();
        fixture.dir.checkpoint().unwrap();
        if is_lent {
            lend_all(&log);
        }
        let before = disk.ops();
        log.truncate_to(Offset(end)).unwrap();
        let cut = disk.ops();
        append(&log, &batch(&[&value(end)])).unwrap();
        for ops in before..=disk.ops() {
            for crash in [Crash::Kill { torn: 9 }, Crash::PowerCut { seed: ops as u64 + 77 }] {
                let image = scratch();
                disk.crash(ops, crash, image.path()).unwrap();
                let at_least = if ops > before { end } else { 30 };
                check(image.path(), at_least, &format!("to {end}, {ops} of {cut} {crash:?}"));
            }
        }
    }
}

/// Where a log of [`write_old`] is cut, inside of segments and between them, and whether its
/// offsets are dense.
fn cuts() -> impl Iterator<Item = (i64, bool)> {
    [3, 17, 18, 19, 20, 40].into_iter().flat_map(|at| [(at, true), (at, false)])
}

fn numbered(what: &str, number: i64) -> Vec<u8> {
    format!("{what} {number:04}").into_bytes()
}

fn small(source: &Path, dense: bool, disk: Option<&Arc<RecordingDisk>>) -> LogFixture {
    let mut fixture = match disk {
        Some(disk) => LogFixture::on(source, Arc::clone(disk) as _),
        None => LogFixture::new(source),
    };
    fixture.config.segment_bytes = 1500;
    fixture.dense = dense;
    fixture
}

/// A log of sixty batches, one `old` record each.
fn write_old(fixture: &LogFixture) -> Arc<Log> {
    let log = fixture.open();
    for number in 0..60 {
        append(&log, &batch(&[&numbered("old", number)])).unwrap();
    }
    log
}

/// Makes the batch of a record bad; those behind it stay whole.
fn spoil(fixture: &LogFixture, number: i64) {
    let value = numbered("old", number);
    for entry in std::fs::read_dir(fixture.partition()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value) {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("there is no {value:?}");
}

/// Appends `new` records from `from` on; whatever a power cut leaves after `first` changes of the
/// disk has none of the old ones behind them.
fn check_new_ones(disk: &RecordingDisk, log: &Log, dense: bool, (from, first): (i64, usize)) {
    for number in from..60 {
        append(log, &batch(&[&numbered("new", number)])).unwrap();
    }
    for ops in first..=disk.ops() {
        for seed in 0..wanted("KRUST_CRASH_IMAGES", 4) {
            let image = scratch();
            disk.crash(ops, Crash::PowerCut { seed: seed * 7919 + 3 }, image.path()).unwrap();
            let log = small(image.path(), dense, None).open_with(false);
            let (found, next) = fetch(&log, 0, 1 << 20);
            assert!(!dense || next == log.log_end_offset().0);
            let meant = |at: i64| numbered(if at < from { "old" } else { "new" }, at);
            let wrong = found.iter().find(|(at, value)| *value != meant(*at));
            assert!(wrong.is_none(), "from {from}, {ops} changes, seed {seed}: {wrong:?}");
        }
    }
}

#[test]
fn what_a_recovery_has_cut_does_not_come_back_with_the_next_power_cut() {
    for (torn, dense) in cuts() {
        let source = scratch();
        drop(write_old(&small(source.path(), dense, None)));
        spoil(&small(source.path(), dense, None), torn);
        let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
        let log = small(source.path(), dense, Some(&disk)).open_with(false);
        assert_eq!(log.log_end_offset().0, torn);
        check_new_ones(&disk, &log, dense, (torn, 0));
    }
}

#[test]
fn what_a_truncation_has_cut_does_not_come_back_with_the_next_power_cut() {
    let cuts = cuts().chain([(0, true)]);
    for ((end, dense), is_lent) in cuts.flat_map(|cut| [(cut, true), (cut, false)]) {
        let source = scratch();
        let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
        let fixture = small(source.path(), dense, Some(&disk));
        let log = write_old(&fixture);
        log.flush().unwrap();
        if is_lent {
            lend_all(&log);
        }
        log.truncate_to(Offset(end)).unwrap();
        check_new_ones(&disk, &log, dense, (end, disk.ops()));
    }
}
