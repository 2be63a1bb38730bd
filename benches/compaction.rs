//! The cost of compaction: the program writes a log whose keys are superseded and cleans it with one
//! thread.
//!
//!     compaction --dir DIR [--mb N] [--value BYTES] [--codec NAME] [--map-mb N]
//!                [--write-only yes]
//!
//! `--mb` are megabytes of records before any compression; each key is there twice, the second half
//! of the log has those of the first in another order. Values are words, which lz4 halves.
//! Prints one line of JSON: megabytes of the log, seconds and CPU-seconds of the cleaning, and
//! megabytes of the log for each CPU-second. `--write-only`: leaves the log for another cleaner.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a program that measures stops at the first surprise"
)]

mod logs;

use std::path::PathBuf;
use std::time::Instant;

use krust::clock::{Clock, SystemClock};
use krust::record::batch::{BatchBuilder, BatchFields, NewRecord};
use krust::record::compression::Codec;
use krust::storage::{CleanerOptions, Log, LogConfig};

const RECORDS_IN_BATCH: u64 = 160;
/// By how much a record is larger than its value: its key of 16 bytes, lengths, numbers.
const RECORD_OVERHEAD: u64 = 24;

struct Plan {
    dir: PathBuf,
    mb: u64,
    value: usize,
    codec: Codec,
    map_mb: usize,
    write_only: bool,
}

fn main() {
    let plan = plan();
    let config = LogConfig {
        segment_bytes: 128 << 20,
        compact: true,
        delete: false,
        ..LogConfig::default()
    };
    let (dir, log) = logs::open(&plan.dir, config);
    if log.log_end_offset().0 == 0 {
        write(&log, &plan);
    }
    log.raise_high_watermark(log.log_end_offset());
    log.flush().unwrap();
    if !plan.write_only {
        clean(&log, &plan);
    }
    log.close().unwrap();
    dir.close().unwrap();
}

fn plan() -> Plan {
    let mut plan = Plan {
        dir: PathBuf::from("."),
        mb: 512,
        value: 100,
        codec: Codec::None,
        map_mb: 128,
        write_only: false,
    };
    for (flag, text) in logs::flags() {
        let number = || text.parse().expect("a number");
        match flag.as_str() {
            "--dir" => plan.dir = PathBuf::from(text),
            "--mb" => plan.mb = number(),
            "--value" => plan.value = text.parse().expect("a number"),
            "--codec" => plan.codec = Codec::from_name(&text).expect("a codec"),
            "--map-mb" => plan.map_mb = text.parse().expect("a number"),
            "--write-only" => plan.write_only = true,
            other => panic!("unknown flag {other}"),
        }
    }
    plan
}

/// Every key twice, in two scattered orders.
fn write(log: &Log, plan: &Plan) {
    let mut builder = BatchBuilder::new();
    let now_ms = SystemClock.wall_ms();
    let mut words = Words(1);
    let mut filler = vec![0u8; plan.value];
    let batches = (plan.mb << 20) / (RECORDS_IN_BATCH * (plan.value as u64 + RECORD_OVERHEAD));
    let keys = batches * RECORDS_IN_BATCH / 2;
    for batch in 0..batches {
        for number in batch * RECORDS_IN_BATCH..(batch + 1) * RECORDS_IN_BATCH {
            let step = if number < keys { 0x9E37_79B1 } else { 0x85EB_CA77 };
            let key = format!("key-{:012}", number.wrapping_mul(step) % keys);
            words.fill(&mut filler);
            let value = Some(filler.as_slice());
            let key = Some(key.as_bytes());
            builder.add(&NewRecord { timestamp: now_ms, key, value, headers: &[] });
        }
        let fields = BatchFields { codec: plan.codec, ..BatchFields::default() };
        logs::append(log, &builder.to_bytes(&fields).unwrap(), now_ms);
    }
}

/// One of 256 words of eight bytes after the other, never the same order.
struct Words(u64);

impl Words {
    fn fill(&mut self, value: &mut [u8]) {
        for place in value.chunks_mut(8) {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let word = (self.0 >> 56).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
            for (byte, letter) in place.iter_mut().zip(word) {
                *byte = letter;
            }
        }
    }
}

fn clean(log: &Log, plan: &Plan) {
    let options =
        CleanerOptions { dedupe_buffer_bytes: plan.map_mb << 20, ..CleanerOptions::default() };
    let before = log.size() as f64 / 1e6;
    let (begun, cpu) = (Instant::now(), logs::cpu_seconds());
    let mut rounds = 0;
    let mut kept = 0;
    while let Some(done) = log.compact(SystemClock.wall_ms(), &options).unwrap() {
        rounds += 1;
        kept = done.records_kept;
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), logs::cpu_seconds() - cpu);
    let after = log.size() as f64 / 1e6;
    println!(
        "{{\"mb\": {before:.1}, \"mb_after\": {after:.1}, \"rounds\": {rounds}, \"kept\": {kept}, \
         \"seconds\": {seconds:.2}, \"cpu_s\": {cpu:.2}, \"mb_per_cpu_s\": {:.1}}}",
        before / cpu
    );
}
