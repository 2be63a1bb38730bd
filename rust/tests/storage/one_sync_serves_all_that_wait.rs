//! Group commit: appends that wait for the disk share its syncs, and none is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use krust::ids::{Offset, TopicPartition};
use krust::storage::recording::{DiskCall, InjectedFault, RecordingDisk};
use krust::storage::{Log, Syncer};
use parking_lot::{Condvar, Mutex};

use crate::support::{LogFixture, batch, stage};

const PRODUCERS: usize = 8;
const ROUNDS: usize = 40;

/// Wakes who waits for a flushed offset.
#[derive(Default)]
struct WakerBell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl WakerBell {
    fn ring(&self) {
        *self.rung.lock() += 1;
        self.changed.notify_all();
    }

    fn until(&self, mut done: impl FnMut() -> bool) {
        let mut rung = self.rung.lock();
        while !done() {
            self.changed.wait(&mut rung);
        }
    }
}

fn bell_and_syncer() -> (Arc<WakerBell>, Arc<Syncer>) {
    let bell = Arc::new(WakerBell::default());
    let ringer = Arc::clone(&bell);
    (bell, Syncer::start(Box::new(move |_| ringer.ring())).unwrap())
}

#[test]
fn one_sync_answers_every_waiting_producer() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.ack_flush = true;
    let (bell, syncer) = bell_and_syncer();
    let logs: Vec<Arc<Log>> =
        (0..6).map(|n| fixture.open_synced(&TopicPartition::new("t", n), &syncer)).collect();
    let producers: Vec<_> = (0..PRODUCERS * logs.len())
        .map(|number| {
            let (bell, log) = (Arc::clone(&bell), Arc::clone(&logs[number % logs.len()]));
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    let appended = stage(&log, &batch(&[b"x"])).unwrap();
                    log.commit(appended.staged).unwrap();
                    bell.until(|| log.flushed_offset() > appended.last_offset);
                }
            })
        })
        .collect();
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    syncer.stop();
    let answers = (PRODUCERS * ROUNDS) as i64;
    assert!(logs.iter().all(|log| log.flushed_offset() == Offset(answers)));
    let syncs = fixture.dir.syncs();
    assert!(syncs.count >= 6 && syncs.longest_ns <= syncs.total_ns, "{syncs:?}");
}

#[test]
fn appends_on_a_disk_too_full_for_epochs_are_synced_later() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let mut fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    fixture.config.ack_flush = true;
    let (bell, syncer) = bell_and_syncer();
    let log = fixture.open_synced(&fixture.name, &syncer);
    let full = InjectedFault { call: DiskCall::Rename, code: 28, skip: 0, times: usize::MAX };
    disk.inject(full);
    let appended = stage(&log, &batch(&[b"x"])).unwrap();
    log.commit(appended.staged).unwrap();
    bell.until(|| fixture.dir.syncs().count > 0);
    assert_eq!(log.flushed_offset(), Offset(0));
    disk.heal();
    bell.until(|| log.flushed_offset() == Offset(1));
    assert!(!fixture.dir.is_offline());
    syncer.stop();
}

#[test]
fn after_a_failed_sync_no_append_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let mut fixture = LogFixture::on(dir.path(), Arc::clone(&disk) as _);
    fixture.config.ack_flush = true;
    let (bell, syncer) = bell_and_syncer();
    let log = fixture.open_synced(&fixture.name, &syncer);
    let (stopped, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|_| {
            let (bell, log) = (Arc::clone(&bell), Arc::clone(&log));
            let (stopped, heard) = (Arc::clone(&stopped), Arc::clone(&heard));
            thread::spawn(move || {
                while let Ok(appended) = stage(&log, &batch(&[b"x"])) {
                    if log.commit(appended.staged).is_err() {
                        return;
                    }
                    let done = || log.flushed_offset() > appended.last_offset;
                    bell.until(|| done() || stopped.load(Ordering::Acquire));
                    heard.fetch_add(usize::from(done()), Ordering::AcqRel);
                }
            })
        })
        .collect();
    bell.until(|| heard.load(Ordering::Acquire) > PRODUCERS);
    disk.inject(InjectedFault { call: DiskCall::SyncData, code: 5, skip: 0, times: 1 });
    bell.until(|| fixture.dir.is_offline());
    let flushed = log.flushed_offset();
    stopped.store(true, Ordering::Release);
    bell.ring();
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    syncer.stop();
    assert_eq!(log.flushed_offset(), flushed);
    assert!(heard.load(Ordering::Acquire) as i64 <= flushed.0);
}
