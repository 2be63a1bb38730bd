//! The cost of a start after a crash, and of lookups by offset and time among 1,000 segments.
//!
//!     recovery --dir DIR [--mb N] [--rounds N]
//!
//! Prints one line of JSON: seconds to read and checksum one segment of N megabytes (1,000), batch
//! by batch, and to open a log that has it and was not shut down in order, medians of rounds taken
//! in turns, with the file in the page cache.
//!
//! Then nanoseconds of CPU among 1,000 segments of 64 KiB, everything cached, at offsets anywhere:
//! `index_ns`: the index's own answer, the segment and a position in it, as Kafka's
//! `OffsetIndex.lookup`; `offset_ns`: a whole lookup, which goes on to the header of the batch itself
//! and finds it as the index said; `pread_ns`: nothing but its read, which is of all headers from
//! that position to the next one that the index has; `timestamp_ns`: a lookup by time. Batches are
//! of 10 records of 100 bytes, four between entries of the index; `large_index_ns` and so on are the
//! same with batches of 160, each of which has an entry, so that one header is read.
//! A read alone finds warmer caches than one within a lookup: the difference is not all ours.
//! They are medians of rounds in which each has its turn.

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
use krust::record::batch::{Batch, BatchBuilder, BatchFields, HEADER_SIZE, NewRecord};
use krust::storage::{Log, LogConfig, LogDir, LogReadRequest};

const RECORDS_IN_BATCH: i64 = 160;
const RECORDS_IN_SMALL: i64 = 10;
/// Bytes after which the next batch gets an entry in the index.
const INTERVAL: usize = 4096;
const SEGMENTS: usize = 1000;
const LOOKUPS: i64 = 100_000;

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
    let small = lookups(&path.join("many"), RECORDS_IN_SMALL, rounds);
    let large = lookups(&path.join("large"), RECORDS_IN_BATCH, rounds);
    println!(
        "{{\"mb\": {mb}, \"read_and_checksum_s\": {read_s:.4}, \"recovery_s\": {open_s:.4}, \
         \"ratio\": {:.3}, {}, {}}}",
        open_s / read_s,
        small.to_json(""),
        large.to_json("large_")
    );
}

/// Nanoseconds of CPU of each.
struct Costs {
    index: f64,
    offset: f64,
    pread: f64,
    timestamp: f64,
}

impl Costs {
    fn to_json(&self, prefix: &str) -> String {
        let Self { index, offset, pread, timestamp } = self;
        format!(
            "\"{prefix}index_ns\": {index:.0}, \"{prefix}offset_ns\": {offset:.0}, \
             \"{prefix}pread_ns\": {pread:.0}, \"{prefix}timestamp_ns\": {timestamp:.0}"
        )
    }
}

fn open(path: &Path, segment_bytes: u64) -> (Arc<LogDir>, Arc<Log>) {
    logs::open(path, LogConfig { segment_bytes, ..LogConfig::default() })
}

/// A batch of records of 100 bytes, and times that rise from `timestamp`.
fn batch_at(timestamp: i64, records: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for n in 0..records {
        let value = [b'v'; 88];
        let entry =
            NewRecord { timestamp: timestamp + n, value: Some(&value), ..NewRecord::default() };
        builder.add(&entry);
    }
    builder.to_bytes(&BatchFields::default()).unwrap()
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

/// Lookups in a log of batches of so many records, and their parts.
fn lookups(path: &Path, records: i64, rounds: usize) -> Costs {
    let (_dir, log) = open(path, 64 << 10);
    let mut next_time = 1;
    while log.segment_summaries().unwrap().len() < SEGMENTS {
        logs::append(&log, &batch_at(next_time, records), 1);
        next_time += records;
    }
    let end = log.log_end_offset();
    log.raise_high_watermark(end);
    let places: Vec<i64> = (0..LOOKUPS).map(|n| (n * 7_919_993 + 17) % end.0).collect();
    let each = |f: &mut dyn FnMut(usize, i64)| {
        let began = logs::cpu_seconds();
        places.iter().enumerate().for_each(|(n, offset)| f(n, *offset));
        (logs::cpu_seconds() - began) * 1e9 / places.len() as f64
    };
    let name = |base: Offset| path.join(format!("bench-0/{:020}.log", base.0));
    let segments = log.segment_summaries().unwrap();
    let files: Vec<File> =
        segments.iter().map(|segment| File::open(name(segment.base_offset)).unwrap()).collect();
    let size = batch_at(1, records).len();
    let ahead = if size > INTERVAL { 0 } else { (INTERVAL / size + 1) * size };
    let reads: Vec<(&File, u64, usize)> = places
        .iter()
        .map(|offset| {
            let (base, position) = log.index_lookup(Offset(*offset)).unwrap().unwrap();
            let index =
                segments.binary_search_by_key(&base, |segment| segment.base_offset).unwrap();
            let left = segments.get(index).unwrap().size - position;
            (files.get(index).unwrap(), position, (ahead + HEADER_SIZE).min(left as usize))
        })
        .collect();
    let mut costs: [Vec<f64>; 4] = Default::default();
    let mut headers = vec![0; 2 * INTERVAL];
    for _ in 0..=rounds {
        let took = [
            each(&mut |_, offset| {
                black_box(log.index_lookup(Offset(offset)).unwrap());
            }),
            each(&mut |_, offset| {
                let read = LogReadRequest {
                    offset: Offset(offset),
                    max_bytes: 1,
                    upper: end,
                    min_one: true,
                };
                black_box(log.read(read).unwrap());
            }),
            each(&mut |n, _| {
                let (file, position, len) = reads.get(n).unwrap();
                file.read_exact_at(headers.get_mut(..*len).unwrap(), *position).unwrap();
                black_box(&headers);
            }),
            each(&mut |_, offset| {
                let found = log.offset_for_timestamp(offset + 1).unwrap().unwrap();
                assert_eq!(found.offset, Offset(offset));
            }),
        ];
        costs.iter_mut().zip(took).for_each(|(all, one)| all.push(one));
    }
    let [index, offset, pread, timestamp] = costs.each_mut().map(median);
    Costs { index, offset, pread, timestamp }
}
