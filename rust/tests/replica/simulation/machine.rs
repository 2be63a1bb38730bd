//! A broker's machine: its disk and, while the broker runs, the log on it.
//!
//! A killed process leaves the page cache as it is. A power cut, also one that comes later, leaves
//! what was synced and of the rest what a seed chooses, torn blocks included.

use std::sync::Arc;

use krust::clock::ManualClock;
use krust::ids::{Epoch, Offset, TopicPartition};
use krust::record::batch::{self, Batch, BatchBuilder, BatchFields, NewRecord, ValidationRules};
use krust::storage::files::{Disk, RealDisk};
use krust::storage::recording::{Crash, DiskCall, InjectedFault, RecordingDisk};
use krust::storage::{
    AppendError, Descriptors, DirOptions, Log, LogConfig, LogDir, LogReadRequest, Open,
    StorageError,
};

use super::clients::NewBatch;
use super::random::Random;

const WALL_MS: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 3_600_000;

/// A record, as the checks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredRecord {
    pub offset: i64,
    pub epoch: i32,
    /// The record's value, unique in a run.
    pub value: u64,
    /// -1: the producer is not idempotent.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub sequence: i32,
}

pub struct Machine {
    place: tempfile::TempDir,
    /// Remembers what is synced, from one power cut to the next.
    disk: Option<Arc<RecordingDisk>>,
    records_disk: bool,
    /// `krust.flush.mode=ack`.
    flushes: bool,
    running: Option<Running>,
    clock: ManualClock,
}

/// What ends with the process.
struct Running {
    dir: Arc<LogDir>,
    log: Arc<Log>,
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Machine {
    /// A machine with an empty disk, that can lose its power or fail only if it `records_disk`.
    pub fn new(records_disk: bool, flushes: bool) -> Self {
        Self {
            place: scratch(),
            disk: None,
            records_disk,
            flushes,
            running: None,
            clock: ManualClock::at(WALL_MS),
        }
    }

    /// Opens the log, and recovers it. Whether it was shut down in order.
    pub fn start(&mut self) -> Result<bool, StorageError> {
        if self.records_disk && self.disk.is_none() {
            let disk = RecordingDisk::new(self.place.path());
            self.disk = Some(Arc::new(disk.expect("a recording disk")));
        }
        if let Some(disk) = &self.disk {
            disk.heal();
        }
        let disk: Arc<dyn Disk> = match &self.disk {
            Some(disk) => Arc::clone(disk) as _,
            None => Arc::new(RealDisk),
        };
        let options = DirOptions { disk, descriptors: Descriptors::new(16), ..Default::default() };
        let dir = LogDir::open(self.place.path(), &options)?;
        let was_clean = dir.was_clean();
        let config =
            LogConfig { segment_bytes: 1500, ack_flush: self.flushes, ..LogConfig::default() };
        let open = Open {
            config: Arc::new(config),
            topic_id: None,
            leader_epoch: Some(Epoch(0)),
            clean: was_clean,
            dense: true,
            clock: Arc::new(self.clock.clone()),
            syncer: None,
            checking: None,
        };
        let log = Log::open(&dir, &TopicPartition::new("t", 0), open)?;
        assert!(log.damage().is_none(), "damage: {:?}", log.damage());
        self.running = Some(Running { dir, log });
        Ok(was_clean)
    }

    pub fn log(&self) -> &Arc<Log> {
        &self.running.as_ref().unwrap().log
    }

    /// Whether the disk failed, so that nothing may be trusted to it any more.
    pub fn is_offline(&self) -> bool {
        self.running.as_ref().is_some_and(|it| it.dir.is_offline())
    }

    /// Wall time as the broker reads it.
    pub fn wall_ms(&self) -> i64 {
        krust::clock::Clock::wall_ms(&self.clock)
    }

    /// Wall time jumps, by up to an hour or ten years.
    pub fn jump_clock(&self, random: &mut Random) {
        let most = if random.percent(70) { HOUR_MS } else { 10 * 365 * 24 * HOUR_MS };
        self.clock.jump(WALL_MS + random.between(-most, most));
    }

    /// Some of the next calls of the disk fail.
    pub fn fail_disk(&self, random: &mut Random) {
        const EIO: i32 = 5;
        const ENOSPC: i32 = 28;
        let calls = [
            DiskCall::Write,
            DiskCall::Write,
            DiskCall::SyncData,
            DiskCall::SyncDir,
            DiskCall::Rename,
        ];
        let Some(disk) = &self.disk else { return };
        disk.inject(InjectedFault {
            call: calls[random.index(calls.len())],
            code: if random.percent(50) { EIO } else { ENOSPC },
            skip: random.index(3),
            times: 1 + random.index(3),
        });
    }

    /// No more calls fail.
    pub fn repair_disk(&self) {
        if let Some(disk) = &self.disk {
            disk.heal();
        }
    }

    /// The process ends at once.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// The machine loses its power, whether a process runs or not.
    pub fn cut_power(&mut self, random: &mut Random) {
        self.running = None;
        if let Some(disk) = self.disk.take() {
            self.cut_power_at(&disk, disk.ops(), random);
        }
    }

    fn cut_power_at(&mut self, disk: &RecordingDisk, ops: usize, random: &mut Random) {
        let image = scratch();
        let seed = random.below(u64::MAX >> 12);
        disk.crash(ops, Crash::PowerCut { seed }, image.path()).unwrap();
        self.place = image;
    }

    /// The process stops in order: it closes the log and writes the clean-shutdown marker. With
    /// `interrupted` the power goes while it does.
    pub fn stop(&mut self, interrupted: bool, random: &mut Random) -> Result<(), StorageError> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let before = self.disk.as_ref().map_or(0, |disk| disk.ops());
        let outcome = running.log.close().and_then(|()| running.dir.close());
        drop(running);
        if interrupted && let Some(disk) = self.disk.take() {
            let ops = before + random.index(disk.ops() - before + 1);
            self.cut_power_at(&disk, ops, random);
        }
        outcome
    }

    /// The partition is deleted from the machine, which begins with an empty disk again.
    pub fn wipe(&mut self) {
        self.running = None;
        self.disk = None;
        self.place = scratch();
        self.start().expect("an empty disk");
    }

    /// Writes the checkpoints, as the log scheduler does now and then.
    pub fn checkpoint(&self) -> Result<(), StorageError> {
        let running = self.running.as_ref().unwrap();
        running.log.flush()?;
        running.dir.checkpoint()
    }

    /// Appends a batch as the leader: its first offset, and whether the log had it already.
    pub fn append(&self, bytes: &[u8]) -> Result<(i64, bool), AppendError> {
        let batch = Batch::parse(bytes).unwrap();
        let facts = batch::check(&batch, &ValidationRules::default()).unwrap();
        let appended =
            self.log().stage(&krust::storage::NewBatch::new(&batch, &facts, self.wall_ms()))?;
        self.log().commit(appended.staged)?;
        Ok((appended.base_offset.0, appended.duplicate))
    }

    /// In flush mode: makes durable what is not yet. False: the disk refused.
    pub fn flush_if_asked(&self) -> bool {
        let log = self.log();
        let is_flushed = !self.flushes || log.flushed_offset() == log.log_end_offset();
        is_flushed || log.flush().is_ok()
    }

    /// The batches from an offset on, as a Fetch answers them.
    pub fn read(&self, offset: Offset, max_bytes: usize) -> Option<Vec<u8>> {
        let upper = self.log().log_end_offset();
        let read = LogReadRequest { offset, max_bytes, upper, min_one: true };
        self.log().read(read).ok()?.to_vec().ok()
    }

    /// Everything that the log holds, as its files say.
    pub fn records(&self) -> Vec<StoredRecord> {
        let (mut found, end) = (Vec::new(), self.log().log_end_offset());
        let mut next = self.log().log_start_offset();
        while next < end {
            let bytes = self.read(next, 1 << 20).expect("a log can be read");
            found.extend(parse(&bytes));
            next = Offset(found.last().map_or(end.0, |last: &StoredRecord| last.offset + 1));
        }
        let start = self.log().log_start_offset().0;
        found.retain(|it| it.offset >= start);
        found
    }
}

/// A batch, as a client sends it.
pub fn encode(batch: &NewBatch) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for number in 0..batch.records {
        let value = (batch.value + u64::from(number.unsigned_abs())).to_be_bytes();
        let value = Some(&value[..]);
        builder.add(&NewRecord { timestamp: WALL_MS, key: None, value, headers: &[] });
    }
    let fields = BatchFields {
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        base_sequence: batch.sequence,
        ..Default::default()
    };
    builder.to_bytes(&fields).unwrap()
}

/// The records of the whole batches in `bytes`.
pub fn parse(bytes: &[u8]) -> Vec<StoredRecord> {
    let mut found = Vec::new();
    for batch in batch::iter(bytes).map_while(Result::ok) {
        let header = *batch.header();
        let is_idempotent = header.producer_id >= 0;
        for (number, record) in (0..).zip(batch.records()) {
            let record = record.unwrap();
            found.push(StoredRecord {
                offset: record.offset,
                epoch: header.leader_epoch,
                value: u64::from_be_bytes(record.value.unwrap().try_into().unwrap()),
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                sequence: if is_idempotent { header.base_sequence + number } else { -1 },
            });
        }
    }
    found
}
