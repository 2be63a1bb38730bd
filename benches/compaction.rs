//! What compaction costs: a log whose keys are superseded is written, then cleaned by one thread.
//!
//!     compaction --dir DIR [--mb N] [--value BYTES] [--codec NAME] [--keys N] [--map-mb N]
//!                [--write-only yes]
//!
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
use krust::record::batch::{Builder, Entry, Fields};
use krust::record::compression::Codec;
use krust::storage::{CleanerOptions, Log, LogConfig};

const RECORDS_IN_BATCH: u64 = 160;

struct Plan {
    dir: PathBuf,
    mb: u64,
    value: usize,
    codec: Codec,
    keys: u64,
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
    log.set_high_watermark(log.log_end_offset());
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
        keys: 1_000_000,
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
            "--keys" => plan.keys = number(),
            "--map-mb" => plan.map_mb = text.parse().expect("a number"),
            "--write-only" => plan.write_only = true,
            other => panic!("unknown flag {other}"),
        }
    }
    plan
}

/// Every key is written, in a scattered order, again and again until the log is large enough.
fn write(log: &Log, plan: &Plan) {
    let mut builder = Builder::new();
    let now_ms = SystemClock.wall_ms();
    let mut filler = vec![0u8; plan.value];
    let (mut number, mut state) = (0u64, 1u64);
    while log.size() < plan.mb << 20 {
        for _ in 0..RECORDS_IN_BATCH {
            let key = format!("key-{:012}", number.wrapping_mul(0x9E37_79B1) % plan.keys);
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for (place, byte) in filler.iter_mut().zip(state.to_le_bytes()) {
                *place = byte;
            }
            let value = Some(filler.as_slice());
            let key = Some(key.as_bytes());
            builder.add(&Entry { timestamp: now_ms, key, value, headers: &[] });
            number += 1;
        }
        let fields = Fields { codec: plan.codec, ..Fields::default() };
        logs::append(log, &builder.to_bytes(&fields).unwrap(), now_ms);
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
