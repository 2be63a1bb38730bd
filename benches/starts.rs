//! The cost of a broker's start with existing logs: after a crash, and after a clean stop.
//!
//!     starts --dir DIR [--mb N] [--logs N] [--dirs N] [--rounds N] [--segment-mb N]
//!
//! Writes N megabytes (2,000) into so many logs (64) in so many log directories (2) and prints one
//! line of JSON: seconds from the first look at the directories until all logs are open, and
//! CPU-seconds of the process meanwhile, medians of rounds taken in turns, with everything in the
//! page cache: unclean with 1 and 2 threads a directory, then clean.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a program that measures stops at the first surprise"
)]

#[allow(dead_code, reason = "other programs use the rest")]
mod logs;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use krust::broker::image::{PartitionState, TopicDelta, TopicSettings};
use krust::broker::{Broker, Event, LogManager, MetadataDelta, Policy, Settings};
use krust::clock::SystemClock;
use krust::ids::{Epoch, TopicId};
use krust::record::batch::{BatchBuilder, BatchFields, NewRecord};
use krust::storage::{DirOptions, LogConfig, LogDir};

const THREADS: [usize; 2] = [1, 2];
const RECORDS_IN_BATCH: usize = 160;

/// Decides nothing.
struct Silent;

impl Policy for Silent {
    fn submit(&self, _event: Event) {}
    fn hurry(&self) {}
}

struct Plan {
    path: PathBuf,
    mb: u64,
    logs: i32,
    dirs: i32,
    rounds: usize,
    segment_mb: u64,
}

fn main() {
    let path = PathBuf::from(".");
    let mut plan = Plan { path, mb: 2000, logs: 64, dirs: 2, rounds: 5, segment_mb: 1024 };
    for (flag, value) in logs::flags() {
        let number = || value.parse().expect("a number");
        match flag.as_str() {
            "--dir" => plan.path = PathBuf::from(&value),
            "--mb" => plan.mb = value.parse().expect("a number"),
            "--segment-mb" => plan.segment_mb = value.parse().expect("a number"),
            "--logs" => plan.logs = number(),
            "--dirs" => plan.dirs = number(),
            "--rounds" => plan.rounds = value.parse().expect("a number"),
            other => panic!("unknown flag {other}"),
        }
    }
    plan.write();
    let mut unclean = [Vec::new(), Vec::new()];
    for _ in 0..=plan.rounds {
        for (threads, found) in THREADS.iter().zip(&mut unclean) {
            found.push(plan.start(*threads).1);
        }
    }
    plan.start(2).0.close().unwrap();
    let mut clean = Vec::new();
    for _ in 0..=plan.rounds {
        let (broker, took) = plan.start(2);
        clean.push(took);
        broker.close().unwrap();
    }
    let [one, two] = unclean.map(median);
    println!(
        "{{\"mb\": {}, \"logs\": {}, \"dirs\": {}, \"unclean_s\": {:.4}, \"unclean_cpu_s\": {:.4}, \
         \"unclean_2_s\": {:.4}, \"unclean_2_cpu_s\": {:.4}, \"clean_s\": {:.5}, \
         \"clean_cpu_s\": {:.5}}}",
        plan.mb,
        plan.logs,
        plan.dirs,
        one.0,
        one.1,
        two.0,
        two.1,
        median(clean.clone()).0,
        median(clean).1,
    );
    std::fs::remove_dir_all(&plan.path).unwrap();
}

impl Plan {
    fn dir(&self, number: i32) -> Arc<LogDir> {
        let path = self.path.join(format!("dir{number}"));
        LogDir::open(&path, &DirOptions::default()).unwrap()
    }

    /// Writes the logs and stops as a crash would.
    fn write(&self) {
        let mut builder = BatchBuilder::new();
        for n in 0..RECORDS_IN_BATCH {
            let value = [b'v'; 88];
            let timestamp = 1 + i64::try_from(n).unwrap();
            builder.add(&NewRecord { timestamp, value: Some(&value), ..NewRecord::default() });
        }
        let batch = builder.to_bytes(&BatchFields::default()).unwrap();
        for number in 0..self.dirs {
            let dir = self.dir(number);
            for log in (0..self.logs).filter(|log| log % self.dirs == number) {
                let segment_bytes = self.segment_mb << 20;
                let config = LogConfig { segment_bytes, ..LogConfig::default() };
                let log = logs::open_one(&dir, log, config);
                while log.size() < self.mb * 1_000_000 / self.logs.unsigned_abs() as u64 {
                    logs::append(&log, &batch, 1);
                }
            }
        }
    }

    /// From the first look at the directories until all logs are open; wall and CPU seconds.
    fn start(&self, threads: usize) -> (Arc<Broker>, (f64, f64)) {
        let (began, before) = (Instant::now(), process_cpu_seconds());
        let settings = Settings { recovery_threads_per_dir: threads, ..Settings::default() };
        let store = LogManager::new((0..self.dirs).map(|number| self.dir(number)).collect());
        let broker = Broker::new(settings, store, Arc::new(Silent), Arc::new(SystemClock));
        broker.load().unwrap();
        let state = PartitionState {
            leader: 0,
            leader_epoch: Epoch(0),
            isr: vec![0],
            replicas: vec![0],
            partition_epoch: 0,
        };
        let topic = TopicDelta {
            id: TopicId([1; 16]),
            internal: false,
            settings: TopicSettings::default(),
            partitions: (0..self.logs).map(|number| (number, state.clone())).collect(),
        };
        let topics = vec![("bench".into(), Some(topic))];
        assert!(
            broker
                .apply(MetadataDelta { version: 1, topics, ..MetadataDelta::default() })
                .is_empty()
        );
        (broker, (began.elapsed().as_secs_f64(), process_cpu_seconds() - before))
    }
}

/// CPU time of all threads so far, in user and system mode.
fn process_cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// The first round warms caches and does not count.
fn median(mut times: Vec<(f64, f64)>) -> (f64, f64) {
    times.remove(0);
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap()
    };
    (middle(times.iter().map(|it| it.0).collect()), middle(times.iter().map(|it| it.1).collect()))
}
