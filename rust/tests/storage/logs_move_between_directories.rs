//! A log moves to another log directory while it is written, read, cut and cleaned; a kill or a
//! power cut at any change that a move makes on the disk leaves one whole log, and the next start
//! ends the move.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, channel};

use krust::ids::Offset;
use krust::storage::files::{Disk, RealDisk};
use krust::storage::recording::{Crash, RecordingDisk};
use krust::storage::{DirKind, FutureReplicas, Log, LogDir, StorageError, settle};

use crate::support::{
    LogFixture, append, batch, batch_of, compact, expected, fill, keyed, marker, pairs_in,
    read_all, scratch, snapshot, stage, value, wanted,
};

/// Two log directories below one, and the thread that moves between them.
struct MoveFixture {
    here: LogFixture,
    there: LogFixture,
    future_replicas: Arc<FutureReplicas>,
    arrived: Receiver<()>,
}

impl MoveFixture {
    fn on(root: &Path, disk: Arc<dyn Disk>) -> Self {
        let fixture = |name: &str| {
            let mut fixture = LogFixture::on(&root.join(name), Arc::clone(&disk));
            fixture.config.segment_bytes = 900;
            fixture
        };
        let (tell, arrived) = channel();
        let future_replicas =
            FutureReplicas::start(Box::new(move |_| tell.send(()).unwrap())).unwrap();
        Self { here: fixture("here"), there: fixture("there"), future_replicas, arrived }
    }

    fn new(root: &Path) -> Self {
        Self::on(root, Arc::new(RealDisk))
    }

    fn move_to(&self, log: &Arc<Log>, dir: &Arc<LogDir>) {
        self.future_replicas.ask(log, dir, None);
        self.arrived.recv().unwrap();
        assert!(Arc::ptr_eq(&log.dir(), dir));
    }

    /// The fixture whose directory has the partition.
    fn owner(&self) -> &LogFixture {
        match (self.here.partition().is_dir(), self.there.partition().is_dir()) {
            (true, false) => &self.here,
            (false, true) => &self.there,
            both => panic!("{both:?}: not in one directory"),
        }
    }
}

impl Drop for MoveFixture {
    fn drop(&mut self) {
        self.future_replicas.stop();
    }
}

#[test]
fn a_move_keeps_all_state_of_the_log() {
    let root = scratch();
    let pair = MoveFixture::new(root.path());
    let log = pair.here.open();
    fill(&log, 30);
    for n in 0..4 {
        append(&log, &batch_of(7, n, &[b"once"])).unwrap();
    }
    append(&log, &marker(9, false)).unwrap();
    log.delete_records(Offset(5)).unwrap();
    pair.here.dir.checkpoint().unwrap();
    let (before, producers, epochs) = (read_all(&log), log.producers(), log.epochs());
    let size = log.size();

    pair.move_to(&log, &pair.there.dir);
    assert!(pair.there.partition().is_dir() && !pair.here.partition().exists());
    assert_eq!((read_all(&log), log.producers(), log.size()), (before.clone(), producers, size));
    let repeated = stage(&log, &batch_of(7, 3, &[b"once"])).unwrap();
    assert!(repeated.duplicate, "a retry is known after the move");
    append(&log, &batch(&[b"after"])).unwrap();
    assert_eq!(log.epochs(), epochs);
    log.close().unwrap();
    pair.there.dir.close().unwrap();
    pair.here.dir.close().unwrap();
    drop((log, pair));

    let pair = MoveFixture::new(root.path());
    let log = pair.there.open();
    let mut after = before;
    after.push((35, b"after".to_vec()));
    assert_eq!((read_all(&log), log.log_start_offset()), (after, Offset(5)));
    assert!(log.damage().is_none());
}

#[test]
fn an_empty_log_moves() {
    let root = scratch();
    let pair = MoveFixture::new(root.path());
    let log = pair.here.open();
    pair.move_to(&log, &pair.there.dir);
    assert!(pair.there.partition().is_dir());
    fill(&log, 3);
    assert_eq!(read_all(&log), expected(0..3));
    assert!(!pair.here.partition().exists());
}

#[test]
fn a_log_moves_during_writes_reads_and_truncations() {
    let root = scratch();
    let pair = MoveFixture::new(root.path());
    let log = pair.here.open();
    fill(&log, 50);
    let (stop, allowed) = (AtomicBool::new(false), AtomicI64::new(100));
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if log.log_end_offset().0 < allowed.load(Ordering::Relaxed) {
                    fill(&log, 10);
                }
                std::thread::yield_now();
            }
        });
        let read = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let found = read_all(&log);
                let first = found.first().map_or(0, |record| record.0);
                let end = first + i64::try_from(found.len()).unwrap();
                assert_eq!(found, expected(first..end));
            }
        });
        for n in 0..20 {
            let to = if n % 2 == 0 { &pair.there } else { &pair.here };
            allowed.fetch_add(100, Ordering::Relaxed);
            while log.log_end_offset().0 < 60 + 10 * n && !written.is_finished() {
                std::thread::yield_now();
            }
            pair.move_to(&log, &to.dir);
            log.flush().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        written.join().unwrap();
        read.join().unwrap();
    });
    let end = log.log_end_offset().0;
    assert_eq!(read_all(&log), expected(log.log_start_offset().0..end));
    assert!(!pair.there.partition().exists());
    log.delete_records(Offset(200)).unwrap();
    log.retain(0).unwrap();
    log.truncate_to(Offset(end - 5)).unwrap();
    pair.move_to(&log, &pair.there.dir);
    assert_eq!(log.log_end_offset(), Offset(end - 5));
    fill(&log, 5);
    assert_eq!(read_all(&log), expected(log.log_start_offset().0..end));
}

#[test]
fn cleaning_of_a_moved_log_continues_where_it_stopped() {
    let root = scratch();
    let mut pair = MoveFixture::new(root.path());
    for fixture in [&mut pair.here, &mut pair.there] {
        fixture.config.compact = true;
        fixture.config.delete = false;
        fixture.dense = false;
    }
    let log = pair.here.open();
    let write = |rounds: std::ops::Range<i32>| {
        for n in rounds {
            append(&log, &keyed(&[(&format!("key-{}", n % 5), Some(&format!("{n}")))])).unwrap();
        }
    };
    write(0..60);
    let cleaned = compact(&pair.here, &log).unwrap();
    pair.move_to(&log, &pair.there.dir);
    let checkpoint = pair.there.path.join("cleaner-offset-checkpoint");
    let text = std::fs::read_to_string(checkpoint).unwrap();
    assert_eq!(text, format!("0\n1\nt 0 {}\n", cleaned.clean_to));
    write(60..120);
    compact(&pair.there, &log).unwrap();
    let bytes = crate::support::bytes_of(&log);
    let last = |key: i32| {
        let key = format!("key-{key}").into_bytes();
        let found = pairs_in(&bytes).into_iter().rfind(|it| it.2.0.as_ref() == Some(&key));
        found.unwrap().2.1.unwrap()
    };
    assert_eq!(last(4), b"119");
}

#[test]
fn a_cancelled_move_leaves_the_log_in_place() {
    let root = scratch();
    let pair = MoveFixture::new(root.path());
    let log = pair.here.open();
    fill(&log, 2000);
    pair.future_replicas.ask(&log, &pair.there.dir, None);
    pair.future_replicas.ask(&log, &pair.here.dir, None);
    while !pair.future_replicas.moves().is_empty() {
        std::thread::yield_now();
    }
    pair.future_replicas.stop();
    let _ = pair.arrived.try_recv();
    assert_eq!(read_all(&log), expected(0..2000));
    pair.owner();
}

#[test]
fn a_log_does_not_move_over_another_of_its_name() {
    let root = scratch();
    let pair = MoveFixture::new(root.path());
    let log = pair.here.open();
    fill(&log, 3);
    std::fs::create_dir(pair.there.partition()).unwrap();
    std::fs::write(pair.there.file(0, "log"), b"somebody's").unwrap();
    let refused = settle(&[pair.here.dir.clone(), pair.there.dir.clone()]);
    assert!(matches!(refused, Err(StorageError::Meta(_))));
    pair.future_replicas.ask(&log, &pair.there.dir, None);
    while !pair.future_replicas.moves().is_empty() {
        std::thread::yield_now();
    }
    pair.future_replicas.stop();
    assert!(Arc::ptr_eq(&log.dir(), &pair.here.dir));
    assert_eq!(std::fs::read(pair.there.file(0, "log")).unwrap(), b"somebody's");
}

/// What the next start finds is whole, and ends the move; the start after that changes nothing.
fn check(image: &Path, durable: i64, what: &str) {
    let image = &image.canonicalize().unwrap();
    let marker = image.join("there/t-0/krust-moved-from");
    if marker.exists() {
        // It names a directory of the machine that crashed.
        std::fs::write(marker, image.join("here").as_os_str().as_encoded_bytes()).unwrap();
    }
    let end = {
        let pair = MoveFixture::new(image);
        let dirs = [pair.here.dir.clone(), pair.there.dir.clone()];
        settle(&dirs).unwrap_or_else(|error| panic!("{what}: {error}"));
        let owner = pair.owner();
        let log = owner.open_with(false);
        assert!(log.damage().is_none(), "{what}: {:?}", log.damage());
        let end = log.log_end_offset().0;
        assert!(end >= durable, "{what}: ends at {end}");
        assert_eq!(read_all(&log), expected(0..end), "{what}");
        let found = pair.there.dir.partitions().unwrap();
        let future = found.into_iter().find(|found| found.kind == DirKind::Future);
        if let Some(future) = future {
            assert!(Arc::ptr_eq(&owner.dir, &pair.here.dir), "{what}: a copy is left over");
            pair.future_replicas.ask(&log, &pair.there.dir, Some(future.path));
            pair.arrived.recv().unwrap();
            assert!(Arc::ptr_eq(&log.dir(), &pair.there.dir), "{what}");
        }
        fill(&log, 2);
        assert_eq!(read_all(&log), expected(0..end + 2), "{what}");
        log.flush().unwrap();
        end + 2
    };
    let start = || {
        let pair = MoveFixture::new(image);
        settle(&[pair.here.dir.clone(), pair.there.dir.clone()]).unwrap();
        let log = pair.owner().open_with(false);
        assert_eq!(read_all(&log), expected(0..end), "{what}");
        snapshot(image)
    };
    let once = start();
    assert_eq!(start(), once, "{what}: the second start changed something");
    let aside = |(path, _): &(std::path::PathBuf, Vec<u8>)| {
        let path = path.to_string_lossy();
        path.contains("-future") || path.contains("-delete") || path.contains("krust-moved-from")
    };
    assert!(!once.iter().any(aside), "{what}: leftovers");
}

#[test]
fn a_crash_at_any_change_of_a_move_leaves_a_whole_log() {
    let source = scratch();
    std::fs::create_dir(source.path().join("here")).unwrap();
    std::fs::create_dir(source.path().join("there")).unwrap();
    let disk = Arc::new(RecordingDisk::new(source.path()).unwrap());
    let pair = MoveFixture::on(source.path(), Arc::clone(&disk) as _);
    let log = pair.here.open();
    fill(&log, 25);
    log.flush().unwrap();
    pair.here.dir.checkpoint().unwrap();
    let durable = log.log_end_offset().0;
    fill(&log, 4);
    let first = disk.ops();
    pair.move_to(&log, &pair.there.dir);
    let end = log.log_end_offset().0;
    assert_eq!(read_all(&log), expected(0..end));
    assert_eq!(read_all(&log).last().unwrap().1, value(end - 1));
    let seeds = wanted("KRUST_CRASH_IMAGES", 2);
    for ops in first + 1..=disk.ops() {
        let kills = [0, 61].map(|torn| (Crash::Kill { torn }, end));
        let cuts = (0..seeds)
            .map(|seed| (Crash::PowerCut { seed: ops as u64 * 977 + seed * 31 }, durable));
        for (crash, durable) in kills.into_iter().chain(cuts) {
            let image = scratch();
            disk.crash(ops, crash, image.path()).unwrap();
            check(image.path(), durable, &format!("after {ops} changes, {crash:?}"));
        }
    }
}
