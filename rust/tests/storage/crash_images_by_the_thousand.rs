//! Whatever a log was doing when it ended, any image that a kill or a power cut may leave of the
//! disk recovers: random work, images taken at random changes and at each kind of change by name.
//!
//! `KRUST_IMAGES`: how many images in all (43,000), `KRUST_IMAGES_SEED`: where the runs begin.
//! A failure names its run and image; the same seed makes them again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use krust::ids::{Epoch, Offset};
use krust::storage::recording::{Crash, RecordingDisk};
use krust::storage::{Log, LogConfig};
use parking_lot::Mutex;

use crate::compaction_survives_crashes as compacted;
use crate::support::{
    LogFixture, append, batch, batch_of, bytes_of, compact, expected, pairs_in, read_all, scratch,
    snapshot, value, wanted,
};

/// Moments that every run must have crashed at, by what the change at hand is called.
const POINTS: [(&str, &str, &str); 12] = [
    ("roll", "create 0", ".log"),
    ("write", "write 0", ".log"),
    ("index flush", "write 0", ".index.tmp"),
    ("checkpoint write", "write ", "checkpoint.tmp"),
    ("checkpoint rename", "rename ", "checkpoint"),
    ("producer snapshot", "rename 0", ".snapshot"),
    ("truncation", "resize 0", ".log"),
    ("clean marker", "rename ", ".kafka_cleanshutdown"),
    ("swap: cleaned is written", "write 0", ".cleaned"),
    ("swap: cleaned becomes swap", "rename 0", ".swap"),
    ("swap: old is set aside", "rename 0", ".deleted"),
    ("swap: new gets its name", "rename ", ".swap to .log"),
];
const RECOVERY: &str = "recovery itself";
const LEAST: u64 = 30;

/// Xorshift: small, and the same on every machine.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        rng.below(2);
        rng
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit
    }

    fn crash(&mut self) -> Crash {
        match self.below(3) {
            0 => Crash::Kill { torn: usize::try_from(self.below(200)).unwrap() },
            _ => Crash::PowerCut { seed: self.below(u64::MAX) },
        }
    }
}

/// Looks at an image of so many changes; what it is called.
type Check = dyn Fn(&Path, usize, &str);

/// What was done to a disk, and what must be there after so many of its changes.
struct RecordedRun {
    disk: Arc<RecordingDisk>,
    check: Box<Check>,
    _source: tempfile::TempDir,
}

/// After so many changes: the end up to which all was synced.
#[derive(Default)]
struct Synced(Vec<(usize, i64)>);

impl Synced {
    fn at(&self, ops: usize) -> i64 {
        self.0.iter().rev().find(|(at, _)| *at <= ops).map_or(0, |(_, end)| *end)
    }

    fn note(&mut self, disk: &RecordingDisk, end: i64) {
        self.0.push((disk.ops(), end));
    }
}

fn home_of_rolls(path: &Path, disk: Option<&Arc<RecordingDisk>>, seed: u64) -> LogFixture {
    let mut fixture = match disk {
        Some(disk) => LogFixture::on(path, Arc::clone(disk) as _),
        None => LogFixture::new(path),
    };
    fixture.config.segment_bytes = 600 + seed % 5 * 300;
    fixture
}

/// Appends, flushes, checkpoints, rolls, clean restarts, now and then a truncation.
fn plain(seed: u64) -> RecordedRun {
    let source = scratch();
    let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
    let (mut rng, mut synced, mut sequences) = (Rng::new(seed), Synced::default(), Vec::new());
    let (cuts, mut epoch) = (seed.is_multiple_of(3), Epoch(0));
    {
        let mut fixture = home_of_rolls(source.path(), Some(&disk), seed);
        let mut log = fixture.open();
        for step in 0..14 + rng.below(14) {
            let end = log.log_end_offset().0;
            match rng.below(16) {
                0..=6 => drop(append(&log, &batch(&[&value(end), &value(end + 1)])).unwrap()),
                7..=9 if !cuts => {
                    let number = i32::try_from(sequences.len()).unwrap();
                    append(&log, &batch_of(9, number, &[&value(end)])).unwrap();
                    sequences.push(end);
                }
                10 => {
                    epoch = Epoch(i32::try_from(step).unwrap());
                    log.set_leader_epoch(epoch);
                }
                11 | 12 => {
                    log.flush().unwrap();
                    synced.note(&disk, log.log_end_offset().0);
                }
                13 => fixture.dir.checkpoint().unwrap(),
                14 => {
                    log.close().unwrap();
                    synced.note(&disk, log.log_end_offset().0);
                    fixture.dir.close().unwrap();
                    drop((log, fixture));
                    fixture = home_of_rolls(source.path(), Some(&disk), seed);
                    log = fixture.open();
                    log.set_leader_epoch(epoch);
                }
                _ if cuts && end > 0 => {
                    let to = i64::try_from(rng.below(end.unsigned_abs())).unwrap();
                    let least = to.min(synced.at(disk.ops()));
                    synced.note(&disk, cut_at_a_batch(least));
                    if to % 2 == 0 {
                        drop(read_all(&log)); // a reader may still send what goes
                    }
                    log.truncate_to(Offset(to)).unwrap();
                }
                _ => {}
            }
        }
    }
    let check = move |image: &Path, ops: usize, what: &str| {
        check_plain(image, (seed, synced.at(ops)), &sequences, what);
    };
    RecordedRun { disk, check: Box::new(check), _source: source }
}

/// Batches hold two records: a cut inside one takes it whole.
fn cut_at_a_batch(offset: i64) -> i64 {
    (offset - 1).max(0)
}

fn check_plain(image: &Path, (seed, at_least): (u64, i64), sequences: &[i64], what: &str) {
    let (end, once, recovered) = {
        let fixture = home_of_rolls(image, None, seed);
        let log = fixture.open();
        assert!(log.damage().is_none(), "{what}: {:?}", log.damage());
        let end = log.log_end_offset().0;
        assert!(end >= at_least, "{what}: ends at {end}, {at_least} were synced");
        assert_eq!(read_all(&log), expected(0..end), "{what}");
        let last = sequences.iter().rposition(|offset| *offset < end);
        let known = log.producers().first().map(|producer| producer.last_sequence);
        assert_eq!(known, last.map(|last| i32::try_from(last).unwrap()), "{what}: the producer");
        (end, snapshot(image), !fixture.dir.was_clean())
    };
    let fixture = home_of_rolls(image, None, seed);
    let log = fixture.open();
    assert_eq!(log.log_end_offset().0, end, "{what}");
    let again = snapshot(image);
    let is_other = |file: &&(PathBuf, Vec<u8>)| !(again.contains(file) && once.contains(file));
    let other = again.iter().chain(&once).find(is_other).filter(|_| recovered);
    assert!(other.is_none(), "{what}: the second recovery changed {other:?}");
    append(&log, &batch(&[&value(end)])).unwrap();
    assert_eq!(read_all(&log), expected(0..end + 1), "{what}");
}

/// A table of keys that is cleaned, flushed before or not.
fn table(seed: u64) -> RecordedRun {
    let source = scratch();
    let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
    let mut rng = Rng::new(seed);
    let fixture = compacted::home_on(source.path(), Some(&disk));
    let log = fixture.open();
    let flushed = i32::try_from(10 + rng.below(16)).unwrap();
    compacted::write(&log, 0..flushed);
    log.flush().unwrap();
    fixture.dir.checkpoint().unwrap();
    let durable = log.log_end_offset().0;
    compacted::write(&log, flushed..flushed + i32::try_from(rng.below(8)).unwrap());
    let first = disk.ops();
    let written = pairs_in(&bytes_of(&log));
    // Larger ones than they were written with: several become one.
    let segment_bytes = if rng.below(2) == 0 { 900 } else { 4000 };
    log.reconfigure(Arc::new(LogConfig { segment_bytes, ..(*log.config()).clone() }));
    compact(&fixture, &log);
    drop((log, fixture));
    let check = move |image: &Path, ops: usize, what: &str| {
        let durable = if ops >= first { durable } else { 0 };
        compacted::check(image, &written, durable, what);
    };
    RecordedRun { disk, check: Box::new(check), _source: source }
}

/// How often a crash came right after a change of each name.
#[derive(Default)]
struct ImageCounts {
    images: AtomicU64,
    hits: Mutex<BTreeMap<&'static str, u64>>,
}

impl ImageCounts {
    fn count(&self, label: &str) {
        self.images.fetch_add(1, Ordering::Relaxed);
        let hit = POINTS.iter().find(|(_, begin, end)| {
            label.starts_with(begin)
                && end.split(" to ").all(|part| label.contains(part))
                && label.ends_with(end.rsplit(" to ").next().unwrap())
        });
        if let Some((name, _, _)) = hit {
            *self.hits.lock().entry(name).or_default() += 1;
        }
    }
}

/// One image of a run, checked; sometimes the recovery of it is killed as well.
fn one_image(
    run: &RecordedRun,
    (ops, crash): (usize, Crash),
    tally: &ImageCounts,
    rng: &mut Rng,
    name: &str,
) {
    let image = scratch();
    run.disk.crash(ops, crash, image.path()).unwrap();
    tally.count(&run.disk.label(ops.wrapping_sub(1)));
    let what = format!("{name}, after {ops} changes, {crash:?}");
    if rng.below(12) > 0 {
        return (run.check)(image.path(), ops, &what);
    }
    let again = Arc::new(RecordingDisk::new(image.path()).unwrap());
    drop(LogFixture::on(image.path(), Arc::clone(&again) as _).open());
    if again.ops() == 0 {
        return (run.check)(image.path(), ops, &what);
    }
    let second = scratch();
    let at = usize::try_from(rng.below(again.ops() as u64 + 1)).unwrap();
    let crash = rng.crash();
    again.crash(at, crash, second.path()).unwrap();
    *tally.hits.lock().entry(RECOVERY).or_default() += 1;
    (run.check)(second.path(), ops, &format!("{what}, then in recovery after {at}, {crash:?}"));
}

/// Images of a run: at changes by chance, and each choice of what was not synced where that is
/// little.
fn images(run: &RecordedRun, count: u64, tally: &ImageCounts, (rng, name): (&mut Rng, &str)) {
    let all = run.disk.ops() as u64;
    let first = all - all.min(220);
    for _ in 0..count {
        let ops = usize::try_from(first + rng.below(all - first + 1)).unwrap();
        one_image(run, (ops, rng.crash()), tally, rng, name);
    }
    let ops = usize::try_from(first + rng.below(all - first + 1)).unwrap();
    let unsynced = run.disk.unsynced(ops);
    if unsynced <= 4 || (unsynced <= 12 && rng.below(200) == 0) {
        for mask in 0..1u64 << unsynced {
            one_image(run, (ops, Crash::Chosen { mask }), tally, rng, name);
        }
    }
}

#[test]
fn every_crash_image_of_a_random_run_recovers() {
    let (total, seed) = (wanted("KRUST_IMAGES", 43_000), wanted("KRUST_IMAGES_SEED", 1));
    let (tally, next) = (ImageCounts::default(), AtomicU64::new(seed));
    let work = || {
        while tally.images.load(Ordering::Relaxed) < total {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let mut rng = Rng::new(seed ^ 0x5555);
            let is_table = seed.is_multiple_of(5);
            let run = if is_table { table(seed) } else { plain(seed) };
            images(&run, 60, &tally, (&mut rng, &format!("run {seed}")));
        }
    };
    std::thread::scope(|threads| {
        let all = [threads.spawn(work), threads.spawn(work)];
        all.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let hits = tally.hits.into_inner();
    println!("{} images of {} runs: {hits:?}", tally.images.into_inner(), next.into_inner() - seed);
    for name in POINTS.iter().map(|point| point.0).chain([RECOVERY]) {
        let count = hits.get(name).copied().unwrap_or(0);
        assert!(count >= LEAST || total < 10_000, "{name}: crashed there {count} times only");
    }
}

/// Every choice of what was not synced, wherever that is at most twelve changes.
#[test]
fn every_choice_of_unsynced_changes_recovers() {
    let tally = ImageCounts::default();
    let mut rng = Rng::new(7);
    let run = plain(4);
    let mut seen = 0;
    for ops in (0..=run.disk.ops()).rev() {
        let unsynced = run.disk.unsynced(ops);
        if unsynced > 12 || tally.images.load(Ordering::Relaxed) > 6_000 {
            continue;
        }
        seen = seen.max(unsynced);
        for mask in 0..1u64 << unsynced {
            one_image(&run, (ops, Crash::Chosen { mask }), &tally, &mut rng, "run 4");
        }
    }
    println!("{} images, up to {seen} unsynced changes", tally.images.into_inner());
}

/// Where the words for crash points are read from; it fails where a file gets another name.
#[test]
fn every_recorded_change_has_a_label() {
    let source = scratch();
    let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
    let fixture = LogFixture::on(source.path(), Arc::clone(&disk) as _);
    let log: Arc<Log> = fixture.open();
    append(&log, &batch(&[b"x"])).unwrap();
    let labels: Vec<String> = (0..disk.ops()).map(|number| disk.label(number)).collect();
    assert!(labels.iter().any(|label| label == "create 00000000000000000000.log"), "{labels:?}");
    assert_eq!(labels.last().unwrap(), "write 00000000000000000000.log");
}
