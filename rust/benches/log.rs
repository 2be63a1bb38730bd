//! What appends, reads and starts cost, apart from the disk. Run with `cargo bench --bench log`.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench fails by panicking")]

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use krust::clock::SystemClock;
use krust::ids::{Epoch, Offset, TopicPartition};
use krust::record::batch::{
    self, Batch, BatchBuilder, BatchFields, NewRecord, ValidationResult, ValidationRules,
};
use krust::storage::files::{Disk, RealDisk};
use krust::storage::{
    Descriptors, DirOptions, Log, LogConfig, LogDir, LogReadRequest, NewBatch, Open,
};

/// A disk whose writes cost nothing: what is left is ours.
#[derive(Debug)]
struct NoWrites;

impl Disk for NoWrites {
    fn write_at(&self, _file: &File, _bufs: &[&[u8]], _position: u64) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _file: &File, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _file: &File, _from: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self, _file: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

fn open(dir: &Arc<LogDir>, config: LogConfig, partition: i32) -> Arc<Log> {
    let options = Open {
        config: Arc::new(config),
        topic_id: None,
        leader_epoch: Some(Epoch(0)),
        clean: dir.was_clean(),
        dense: true,
        clock: Arc::new(SystemClock),
        syncer: None,
        checking: None,
    };
    Log::open(dir, &TopicPartition::new("bench", partition), options).unwrap()
}

fn on(path: &Path, disk: Arc<dyn Disk>) -> Arc<LogDir> {
    let descriptors = Descriptors::new(4096);
    LogDir::open(path, &DirOptions { disk, descriptors, ..DirOptions::default() }).unwrap()
}

fn batch_of(value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.add(&NewRecord { timestamp: 1, key: None, value: Some(value), headers: &[] });
    builder.to_bytes(&BatchFields::default()).unwrap()
}

fn checked_batch(bytes: &[u8]) -> (Batch<'_>, ValidationResult) {
    let batch = Batch::parse(bytes).unwrap();
    let validated = batch::check(&batch, &ValidationRules::default()).unwrap();
    (batch, validated)
}

fn large() -> LogConfig {
    LogConfig { max_message_bytes: 4 << 20, ..LogConfig::default() }
}

fn appends(c: &mut Criterion) {
    let home = tempfile::tempdir().unwrap();
    let bytes = batch_of(&[7; 100]);
    let (batch, validated) = checked_batch(&bytes);
    let log = open(&on(&home.path().join("free"), Arc::new(NoWrites)), large(), 0);
    c.bench_function("stage and commit 100 B, write not counted", |b| {
        b.iter(|| {
            let appended = log.stage(&NewBatch::new(black_box(&batch), &validated, 1)).unwrap();
            log.commit(appended.staged).unwrap();
        });
    });
    c.bench_function("the same on a network thread", |b| {
        b.iter(|| {
            let at_once =
                log.stage_at_once(&NewBatch::new(black_box(&batch), &validated, 1)).unwrap();
            let appended = at_once
                .unwrap_or_else(|| log.stage(&NewBatch::new(&batch, &validated, 1)).unwrap());
            log.commit(appended.staged).unwrap();
        });
    });
    c.bench_function("stage 32 x 100 B, one commit, write not counted", |b| {
        b.iter(|| {
            let mut last = None;
            for _ in 0..32 {
                last = Some(
                    log.stage(&NewBatch::new(black_box(&batch), &validated, 1)).unwrap().staged,
                );
            }
            log.commit(last.unwrap()).unwrap();
        });
    });
    let real = open(&on(&home.path().join("real"), Arc::new(RealDisk)), large(), 0);
    c.bench_function("stage and commit 100 B", |b| {
        b.iter(|| {
            let appended = real.stage(&NewBatch::new(black_box(&batch), &validated, 1)).unwrap();
            real.commit(appended.staged).unwrap();
        });
    });
}

/// CPU time of this thread, which a busy machine stretches less than wall time.
fn cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).unwrap())
}

/// 1 MiB batches, with a new file every 256 MiB: against the bare write and checksum. CPU time.
fn large_batches(c: &mut Criterion) {
    let home = tempfile::tempdir().unwrap();
    let bytes = batch_of(&vec![7; (1 << 20) - 100]);
    let mut group = c.benchmark_group("1 MiB");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.sample_size(20).measurement_time(Duration::from_secs(4));
    let file = RealDisk.create(&home.path().join("bare")).unwrap();
    group.bench_function("checksum and pwrite", |b| {
        b.iter_custom(|count| {
            let begin = cpu();
            for n in 0..count {
                let batch = Batch::parse(&bytes).unwrap();
                assert!(batch.crc_ok());
                RealDisk.write_at(&file, &[&bytes], (n % 256) * bytes.len() as u64).unwrap();
                if n % 256 == 255 {
                    RealDisk.set_len(&file, 0).unwrap();
                }
            }
            RealDisk.set_len(&file, 0).unwrap();
            cpu() - begin
        });
    });
    let log = open(&on(&home.path().join("log"), Arc::new(RealDisk)), large(), 0);
    group.bench_function("check, stage, commit", |b| {
        b.iter_custom(|count| {
            let begin = cpu();
            for n in 0..count {
                let (batch, validated) = checked_batch(&bytes);
                let appended = log.stage(&NewBatch::new(&batch, &validated, 1)).unwrap();
                log.commit(appended.staged).unwrap();
                if n % 256 == 255 {
                    log.truncate_to(Offset(0)).unwrap();
                }
            }
            log.truncate_to(Offset(0)).unwrap();
            cpu() - begin
        });
    });
    group.finish();
}

fn reads(c: &mut Criterion) {
    let home = tempfile::tempdir().unwrap();
    let config = LogConfig { segment_bytes: 16 << 10, ..large() };
    let log = open(&on(home.path(), Arc::new(RealDisk)), config, 0);
    let bytes = batch_of(&[7; 1000]);
    let (batch, validated) = checked_batch(&bytes);
    while log.segment_summaries().unwrap().len() < 1000 {
        for _ in 0..15 {
            log.commit(log.stage(&NewBatch::new(&batch, &validated, 1)).unwrap().staged).unwrap();
        }
    }
    let end = log.log_end_offset();
    let read = |offset| {
        log.read(LogReadRequest { offset: Offset(offset), max_bytes: 1, upper: end, min_one: true })
            .unwrap()
    };
    let mut next = 7;
    c.bench_function("find any of 15,000 offsets in 1,000 segments, one pread", |b| {
        b.iter(|| {
            next = (next * 31 + 17) % end.0;
            black_box(read(next));
        });
    });
    c.bench_function("read at the end", |b| b.iter(|| black_box(read(end.0))));
    log.commit(log.stage(&NewBatch::new(&batch, &validated, 1)).unwrap().staged).unwrap();
    c.bench_function("read the last batch", |b| {
        let upper = log.log_end_offset();
        b.iter(|| {
            let last = LogReadRequest { offset: end, max_bytes: 1 << 20, upper, min_one: true };
            black_box(log.read(last).unwrap())
        });
    });
}

/// Opens 10,000 partitions of one small segment each after a clean shutdown.
fn starts(c: &mut Criterion) {
    let home = tempfile::tempdir().unwrap();
    let bytes = batch_of(&[7; 100]);
    let (batch, validated) = checked_batch(&bytes);
    {
        let dir = on(home.path(), Arc::new(RealDisk));
        for partition in 0..10_000 {
            let log = open(&dir, large(), partition);
            log.commit(log.stage(&NewBatch::new(&batch, &validated, 1)).unwrap().staged).unwrap();
        }
    }
    let mut group = c.benchmark_group("start");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    let mut kept = Vec::new();
    group.bench_function("open 10,000 partitions", |b| {
        b.iter_custom(|count| {
            let mut spent = Duration::ZERO;
            for _ in 0..count {
                kept.clear();
                let dir = on(home.path(), Arc::new(RealDisk));
                let before = resident();
                let begin = Instant::now();
                for partition in 0..10_000 {
                    let options = Open {
                        config: Arc::new(LogConfig::default()),
                        topic_id: None,
                        leader_epoch: Some(Epoch(0)),
                        clean: true,
                        dense: true,
                        clock: Arc::new(SystemClock),
                        syncer: None,
                        checking: None,
                    };
                    let name = TopicPartition::new("bench", partition);
                    kept.push(Log::open(&dir, &name, options).unwrap());
                }
                spent += begin.elapsed();
                println!(
                    "{} bytes of memory a partition",
                    resident().saturating_sub(before) / 10_000
                );
            }
            spent
        });
    });
    group.finish();
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

criterion_group!(benches, appends, large_batches, reads, starts);
criterion_main!(benches);
