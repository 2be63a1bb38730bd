//! What a start after a crash costs, and finding offsets and times among 1,000 segments.
//!
//!     recovery --dir DIR [--mb N] [--rounds N]
//!
//! Prints one line of JSON: seconds to read and checksum one segment of N megabytes (1,000), batch
//! by batch, and to open a log that has it and was not shut down in order, medians of rounds taken
//! in turns, with the file in the page cache; then nanoseconds of CPU of a lookup by offset, which
//! ends with a read of 4 KiB of headers, of such reads alone, anywhere in the same files, and of a
//! lookup by time, everything cached.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a program that measures stops at the first surprise"
)]

mod logs;

use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use krust::ids::Offset;
use krust::record::batch::{Batch, Builder, Entry, Fields};
use krust::storage::{Log, LogConfig, LogDir, Read};

const RECORDS_IN_BATCH: i64 = 160;
const SEGMENTS: usize = 1000;
const LOOKUPS: i64 = 200_000;

fn main() {
    let (mut path, mut mb, mut rounds) = (PathBuf::from("."), 1000, 5);
    for (flag, value) in logs::flags() {
        match flag.as_str() {
            "--dir" => path = PathBuf::from(value),
            "--mb" => mb = value.parse().expect("a number"),
            "--rounds" => rounds = value.parse().expect("a number"),
            other => panic!("unknown flag {other}"),
        }
    }
    let (read_s, open_s) = recovery(&path.join("unclean"), mb, rounds);
    let (offset_ns, pread_ns, time_ns) = lookups(&path.join("many"));
    println!(
        "{{\"mb\": {mb}, \"read_and_checksum_s\": {read_s:.4}, \"recovery_s\": {open_s:.4}, \
         \"ratio\": {:.3}, \"offset_ns\": {offset_ns:.0}, \"pread_ns\": {pread_ns:.0}, \
         \"timestamp_ns\": {time_ns:.0}}}",
        open_s / read_s
    );
}

fn open(path: &Path, segment_bytes: u64) -> (Arc<LogDir>, Arc<Log>) {
    logs::open(path, LogConfig { segment_bytes, ..LogConfig::default() })
}

/// A batch of records of 100 bytes, and times that rise from `timestamp`.
fn batch_at(timestamp: i64, records: i64) -> Vec<u8> {
    let mut builder = Builder::new();
    for n in 0..records {
        let value = [b'v'; 88];
        let entry = Entry { timestamp: timestamp + n, value: Some(&value), ..Entry::default() };
        builder.add(&entry);
    }
    builder.to_bytes(&Fields::default()).unwrap()
}

/// Seconds to read and checksum, and to recover.
fn recovery(path: &Path, mb: u64, rounds: usize) -> (f64, f64) {
    let (dir, log) = open(path, 1 << 31);
    let bytes = batch_at(1, RECORDS_IN_BATCH);
    while log.size() < mb * 1_000_000 {
        logs::append(&log, &bytes, 1);
    }
    let end = log.log_end_offset();
    drop((log, dir));
    let file = path.join("bench-0/00000000000000000000.log");
    let (mut reads, mut opens) = (Vec::new(), Vec::new());
    for _ in 0..=rounds {
        let began = Instant::now();
        read_and_checksum(&file);
        reads.push(began.elapsed().as_secs_f64());
        let (dir, took) = {
            let began = Instant::now();
            let (dir, log) = open(path, 1 << 31);
            let took = began.elapsed().as_secs_f64();
            assert_eq!(log.log_end_offset(), end);
            (dir, took)
        };
        drop(dir);
        opens.push(took);
    }
    std::fs::remove_dir_all(path).unwrap();
    (median(&mut reads), median(&mut opens))
}

/// Reads the file once, in pieces of 1 MiB, and checks the checksum of each batch.
fn read_and_checksum(path: &Path) {
    let mut file = File::open(path).unwrap();
    let (mut buf, mut held) = (vec![0; 1 << 20], 0);
    loop {
        let came = file.read(buf.get_mut(held..).unwrap()).unwrap();
        if came == 0 {
            break;
        }
        let (end, mut at) = (held + came, 0);
        while let Ok(batch) = Batch::parse(buf.get(at..end).unwrap()) {
            assert!(batch.crc_ok());
            at += batch.size();
        }
        buf.copy_within(at..end, 0);
        held = end - at;
    }
    assert_eq!(held, 0);
}

/// The first round warms caches and does not count.
fn median(times: &mut Vec<f64>) -> f64 {
    times.remove(0);
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap()
}

/// Nanoseconds of a lookup by offset, of a bare read, and of a lookup by time.
fn lookups(path: &Path) -> (f64, f64, f64) {
    let (_dir, log) = open(path, 64 << 10);
    let mut next_time = 1;
    while log.segment_facts().unwrap().len() < SEGMENTS {
        logs::append(&log, &batch_at(next_time, 10), 1);
        next_time += 10;
    }
    let end = log.log_end_offset();
    log.set_high_watermark(end);
    let places = || (0..LOOKUPS).map(|n| (n * 7_919_993 + 17) % end.0);
    let each = |f: &dyn Fn(i64)| {
        places().take(20_000).for_each(f);
        let began = logs::cpu_seconds();
        places().for_each(f);
        (logs::cpu_seconds() - began) * 1e9 / LOOKUPS as f64
    };
    let name = |base: Offset| path.join(format!("bench-0/{:020}.log", base.0));
    let facts = log.segment_facts().unwrap();
    let files: Vec<File> =
        facts.iter().map(|segment| File::open(name(segment.base_offset)).unwrap()).collect();
    let bare = each(&|offset| {
        let (mut headers, place) = ([0; 4 << 10], offset.unsigned_abs());
        let file = files.get(place as usize % (SEGMENTS - 1)).unwrap();
        file.read_exact_at(&mut headers, place * 977 % (56 << 10)).unwrap();
        black_box(headers);
    });
    let read = each(&|offset| {
        let read = Read { offset: Offset(offset), max_bytes: 1, upper: end, min_one: true };
        black_box(log.read(read).unwrap());
    });
    let timed = each(&|offset| {
        let found = log.offset_for_timestamp(offset + 1).unwrap().unwrap();
        assert_eq!(found.offset, Offset(offset));
    });
    (read, bare, timed)
}
