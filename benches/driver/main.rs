//! A load for any Kafka, from prebuilt bytes, so that what is measured is the server.
//!
//!     driver MODE --bootstrap HOST:PORT [--pid PID[,PID]] [flags]
//!
//! Modes, each prints one line of JSON:
//!     produce        --batch-bytes --record-bytes --codec none|lz4 --acks --in-flight --bytes
//!     produce-small  one record a request: --record-bytes --in-flight --requests, at --rate a second
//!     produce-crowd  the same from --connections, each one in flight, over --partitions
//!     produce-leaders  --partitions (default 3) with --replicas each, led by the brokers in turn, a
//!                    connection a leader with --in-flight: --bytes of --batch-bytes, or, where that
//!                    is 0, --requests of one record
//!     gaps           one record to each of --partitions every --every-ms, for --seconds, whoever
//!                    leads: how long none was acknowledged. --bootstrap names all brokers
//!     fetch          cached data, --fetch-bytes a request, --bytes in all
//!     fetch-old      what produce of so many --bytes left in partition 0 of a topic that is kept, from
//!                    the first record on, --fetch-bytes a request
//!     fetch-many     one Fetch over --partitions partitions (default 1000), --requests times
//!     produce-many   one Produce to --partitions partitions (default 500), --requests times
//!     fetch-idle     polls of a fetch session over --partitions partitions that bring nothing
//!     wait           Produce to a Fetch that waits for it: --requests times
//!     fetch-v2       Fetch v2 of a topic with v2 batches: conversion, --requests times
//!     commit         OffsetCommits of one partition each, of a group a connection: --connections,
//!                    --in-flight in all, --requests
//!     heartbeat      --members in --groups over --connections, each beats every --every-ms, for
//!                    --seconds
//!     rebalance      --members of a group share --partitions, --rounds times
//!     fill           --requests records of offsets: --groups that commit --partitions each
//!     ready          when all --groups can be asked for their offsets
//!     transactions   --requests transactions of one record: --connections producers over
//!                    --partitions, --pause-ms after each transaction
//!     stream         --bytes in --batch-bytes, --in-flight: --connections producers in transactions
//!                    of --every-ms; 0: they are idempotent alone
//!     fetch-isolated what stream of so many --bytes left in one partition, each tenth transaction
//!                    aborted: read_uncommitted and read_committed by turns, --rounds times
//!     visible        from a commit to a waiting read_committed Fetch, --requests times
//!     open           --requests transactional ids over --connections, each with an open
//!                    transaction, or with a committed one: --commits
//!     listed         when all --requests transactional ids are listed
//!     handshakes     --requests connections that end with the handshake of TLS
//! `--tls AUTHORITY.pem` encrypts the connection to --bootstrap, for the modes that need no other.
//! `--raw` sends the frames of produce, produce-small or fetch without asking for versions or
//! topics: for the floor programs. `--topic NAME` is made for the run and deleted after it, unless
//! `--keep` is given.
//! CPU is the server's over the measured part alone; a first short part is not measured.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a program that measures stops at the first surprise"
)]

mod crowd;
mod group_requests;
mod groups;
mod link;
mod replicas;
mod requests;
mod tls;
mod transaction_requests;
mod transactional;
mod transactions;
mod usage;

use std::time::{Duration, Instant};

use krust::record::compression::Codec;

use crate::crowd::Crowd;
use crate::link::{Link, Load, Run};
use crate::requests::{Ask, Dialect, FETCH, PRODUCE, Shape};
use crate::usage::Usage;

/// The versions of raw frames.
const RAW_VERSION: i16 = 9;

struct Arguments {
    mode: String,
    bootstrap: String,
    pids: Vec<u32>,
    topic: String,
    raw: bool,
    keep: bool,
    shape: Shape,
    acks: i16,
    /// The file with the authority of the server's certificate; `None`: plain text.
    tls: Option<String>,
    window: usize,
    bytes: usize,
    requests: usize,
    partitions: Option<i32>,
    replicas: usize,
    fetch_bytes: usize,
    /// Requests a second; as fast as answers come where it is `None`.
    rate: Option<usize>,
    connections: usize,
    groups: usize,
    members: usize,
    every: Duration,
    seconds: usize,
    rounds: usize,
    /// From one transaction of a producer to its next.
    pause: Duration,
    /// Whether the transactions of the ids that are opened are committed.
    commits: bool,
}

fn main() {
    let arguments = parse();
    let usage = Usage::of(arguments.pids.clone());
    let mut bench = Bench::new(&arguments, usage);
    let run = match arguments.mode.as_str() {
        "produce" => bench.produce(),
        "produce-small" => bench.produce_small(),
        "produce-crowd" => bench.produce_crowd(),
        "produce-leaders" => bench.produce_leaders(),
        "gaps" => bench.gaps(),
        "fetch" => bench.fetch(),
        "fetch-old" => bench.fetch_old(),
        "fetch-many" => bench.fetch_many(),
        "produce-many" => bench.produce_many(),
        "fetch-idle" => bench.fetch_idle(),
        "wait" => bench.wait(),
        "fetch-v2" => bench.fetch_v2(),
        "commit" => bench.commit(),
        "heartbeat" => bench.heartbeat(),
        "rebalance" => bench.rebalance(),
        "fill" => bench.fill(),
        "ready" => bench.ready(),
        "transactions" => bench.transactions(),
        "stream" => bench.stream(),
        "fetch-isolated" => bench.fetch_isolated(),
        "visible" => bench.visible(),
        "open" => bench.open(),
        "listed" => bench.listed(),
        "handshakes" => bench.handshakes(),
        other => panic!("unknown mode {other}"),
    };
    report(&arguments.mode, run, &bench.usage);
    bench.finish();
}

fn parse() -> Arguments {
    let mut given = std::env::args().skip(1);
    let mut arguments = Arguments {
        mode: given.next().expect("a mode; see the head of benches/driver/main.rs"),
        bootstrap: String::from("127.0.0.1:9092"),
        pids: Vec::new(),
        topic: format!("bench-{}", std::process::id()),
        raw: false,
        keep: false,
        shape: Shape { batch_bytes: 1 << 20, record_bytes: 100, codec: Codec::None },
        acks: 1,
        tls: None,
        window: 5,
        bytes: 256 << 20,
        requests: 10_000,
        partitions: None,
        replicas: 3,
        fetch_bytes: 8 << 20,
        rate: None,
        connections: 8,
        groups: 100,
        members: 500,
        every: Duration::from_secs(3),
        seconds: 15,
        rounds: 5,
        pause: Duration::ZERO,
        commits: false,
    };
    while let Some(flag) = given.next() {
        match flag.as_str() {
            "--raw" => arguments.raw = true,
            "--keep" => arguments.keep = true,
            "--commits" => arguments.commits = true,
            _ => arguments.set(&flag, &given.next().expect("a value after the flag")),
        }
    }
    arguments
}

impl Arguments {
    fn set(&mut self, flag: &str, value: &str) {
        let number = || value.parse::<usize>().expect("a number");
        match flag {
            "--bootstrap" => self.bootstrap = value.to_owned(),
            "--tls" => self.tls = Some(value.to_owned()),
            "--topic" => self.topic = value.to_owned(),
            "--pid" => {
                self.pids = value.split(',').map(|pid| pid.parse().expect("a pid")).collect();
            }
            "--batch-bytes" => self.shape.batch_bytes = number(),
            "--record-bytes" => self.shape.record_bytes = number(),
            "--codec" => {
                self.shape.codec = match value {
                    "none" => Codec::None,
                    "lz4" => Codec::Lz4,
                    "zstd" => Codec::Zstd,
                    other => panic!("unknown codec {other}"),
                };
            }
            "--acks" => self.acks = value.parse().expect("-1, 0 or 1"),
            "--in-flight" => self.window = number(),
            "--bytes" => self.bytes = number(),
            "--requests" => self.requests = number(),
            "--partitions" => self.partitions = Some(number() as i32),
            "--replicas" => self.replicas = number(),
            "--fetch-bytes" => self.fetch_bytes = number(),
            "--rate" => self.rate = Some(number()),
            "--connections" => self.connections = number(),
            "--groups" => self.groups = number(),
            "--members" => self.members = number(),
            "--every-ms" => self.every = Duration::from_millis(number() as u64),
            "--seconds" => self.seconds = number(),
            "--rounds" => self.rounds = number(),
            "--pause-ms" => self.pause = Duration::from_millis(number() as u64),
            other => panic!("unknown flag {other}"),
        }
    }
}

struct Bench<'a> {
    arguments: &'a Arguments,
    usage: Usage,
    /// To the broker of `--bootstrap`, or to the controller once a mode has found it.
    link: Link,
    dialect: Option<Dialect>,
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a Arguments, usage: Usage) -> Self {
        let first = arguments.bootstrap.split(',').next().expect("an address");
        let mut link = match &arguments.tls {
            Some(authority) => Link::secured(first, &tls::client(authority)),
            None => Link::connect(first),
        };
        let dialect = (!arguments.raw).then(|| Dialect::ask(&mut link));
        Self { arguments, usage, link, dialect }
    }

    fn version(&self, key: i16) -> i16 {
        self.dialect.as_ref().map_or(RAW_VERSION, |dialect| dialect.version(key))
    }

    /// Makes the topic and lists its partitions.
    fn topic(&mut self, default: i32) -> Vec<i32> {
        let count = self.arguments.partitions.unwrap_or(default);
        if let Some(dialect) = &self.dialect {
            requests::create(&mut self.link, dialect, &self.arguments.topic, count);
        }
        (0..count).collect()
    }

    fn finish(&mut self) {
        if let (Some(dialect), false) = (&self.dialect, self.arguments.keep) {
            requests::delete(&mut self.link, dialect, &self.arguments.topic);
        }
    }

    fn load(&mut self, frames: &[Vec<u8>], requests: usize, window: usize) -> Run {
        let gap = self.arguments.rate.map(|rate| Duration::from_secs(1) / rate as u32);
        self.link.run(&Load { frames, requests, window, gap }, &self.usage)
    }

    /// Prebuilt Produce frames, one for each partition; records a frame.
    fn produce_frames(&mut self, partitions: &[i32]) -> (Vec<Vec<u8>>, i64) {
        let version = self.version(PRODUCE);
        let (batch, count) = requests::batch(&self.arguments.shape);
        let (topic, acks) = (self.arguments.topic.as_str(), self.arguments.acks);
        let frames = partitions
            .iter()
            .map(|one| requests::produce(version, acks, (topic, &[*one]), &batch))
            .collect();
        (frames, count)
    }

    fn check_produced(&self, reply: &[u8]) {
        if self.dialect.is_some() {
            requests::produced(reply, self.version(PRODUCE));
        }
    }

    /// Sends each frame once, and looks at the replies.
    fn warm_up(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let reply = self.link.call(frame);
            self.check_produced(&reply);
        }
    }

    fn handshakes(&self) -> Run {
        let authority = self.arguments.tls.as_ref().expect("--tls");
        let (address, requests) = (&self.arguments.bootstrap, self.arguments.requests);
        tls::handshakes(address, &tls::client(authority), requests, &self.usage)
    }

    fn produce(&mut self) -> Run {
        let partitions = self.topic(4);
        let (frames, _) = self.produce_frames(&partitions);
        self.warm_up(&frames);
        let requests = (self.arguments.bytes / frames[0].len()).max(1);
        let run = self.load(&frames, requests, self.arguments.window);
        self.check_produced(&run.last);
        run
    }

    fn produce_small(&mut self) -> Run {
        let partitions = self.topic(1);
        let version = self.version(PRODUCE);
        let shape = Shape { batch_bytes: 0, ..self.arguments.shape.clone() };
        let (batch, _) = requests::batch(&shape);
        let (topic, acks) = (self.arguments.topic.as_str(), self.arguments.acks);
        let frames: Vec<Vec<u8>> = partitions
            .iter()
            .map(|one| requests::produce(version, acks, (topic, &[*one]), &batch))
            .collect();
        self.warm_up(&frames);
        self.load(&frames, self.arguments.requests / 10 + 1, self.arguments.window);
        let run = self.load(&frames, self.arguments.requests, self.arguments.window);
        self.check_produced(&run.last);
        run
    }

    fn produce_crowd(&mut self) -> Run {
        let partitions = self.topic(1);
        let version = self.version(PRODUCE);
        let (batch, _) = requests::batch(&Shape { batch_bytes: 0, ..self.arguments.shape.clone() });
        let (topic, acks) = (self.arguments.topic.as_str(), self.arguments.acks);
        let mut crowd = Crowd::connect(&self.arguments.bootstrap, self.arguments.connections);
        let to = partitions.iter().cycle().take(crowd.links.len());
        let frames: Vec<Vec<Vec<u8>>> = to
            .map(|one| vec![requests::produce(version, acks, (topic, &[*one]), &batch)])
            .collect();
        let check = |reply: &[u8]| {
            requests::produced(reply, version);
        };
        let requests = self.arguments.requests;
        crowd.run(&frames, (requests / 5 + 1, 1), &self.usage, check);
        crowd.run(&frames, (requests, 1), &self.usage, check)
    }

    /// A topic with replicas: the addresses of its leaders, and a frame for each partition.
    fn replicated(&mut self, shape: &Shape) -> (Vec<String>, Vec<Vec<u8>>) {
        let count = self.arguments.partitions.unwrap_or(3);
        let dialect = self.dialect.as_ref().expect("no --raw");
        let topic = self.arguments.topic.as_str();
        let size = (count, self.arguments.replicas);
        let (leaders, controller) = replicas::create(&mut self.link, dialect, topic, size);
        self.link = Link::connect(&controller);
        let (version, acks) = (self.version(PRODUCE), self.arguments.acks);
        let (batch, _) = requests::batch(shape);
        let frame = |one| requests::produce(version, acks, (topic, &[one]), &batch);
        (leaders, (0..count).map(frame).collect())
    }

    fn produce_leaders(&mut self) -> Run {
        let shape = self.arguments.shape.clone();
        let (leaders, frames) = self.replicated(&shape);
        let requests = match shape.batch_bytes {
            0 => self.arguments.requests,
            _ => self.arguments.bytes / frames[0].len(),
        };
        let window = self.arguments.window;
        let warm = (requests / 10).max(leaders.len());
        replicas::run(&leaders, &frames, (warm, window), &self.usage);
        let run = replicas::run(&leaders, &frames, (requests, window), &self.usage);
        self.check_produced(&run.last);
        run
    }

    fn gaps(&mut self) -> Run {
        let shape = Shape { batch_bytes: 0, ..self.arguments.shape.clone() };
        let (_, frames) = self.replicated(&shape);
        replicas::Gaps {
            bootstrap: self.arguments.bootstrap.split(',').map(str::to_owned).collect(),
            topic: &self.arguments.topic,
            frames,
            produce_version: self.version(PRODUCE),
            metadata_version: self.version(requests::METADATA),
            every: self.arguments.every,
            lasts: Duration::from_secs(self.arguments.seconds as u64),
        }
        .run()
    }

    fn fetch(&mut self) -> Run {
        let partitions = self.topic(1);
        let version = self.version(FETCH);
        let mut frames = Vec::new();
        if self.dialect.is_some() {
            let (produce, count) = self.produce_frames(&partitions);
            let batches = (self.arguments.bytes / produce[0].len()).max(1);
            let fill = self.load(&produce, batches, self.arguments.window);
            self.check_produced(&fill.last);
            let step = (self.arguments.fetch_bytes / produce[0].len()).max(1) as i64 * count;
            let end = batches as i64 / partitions.len() as i64 * count;
            let max_bytes = self.arguments.fetch_bytes as i32;
            for offset in (0..(end - step + 1).max(1)).step_by(step as usize) {
                for one in &partitions {
                    let ask = Ask { offset, max_bytes, ..Ask::default() };
                    frames.push(requests::fetch(version, ask, &self.arguments.topic, &[*one]));
                }
            }
        } else {
            let ask = Ask::default();
            frames.push(requests::fetch(RAW_VERSION, ask, &self.arguments.topic, &[0]));
        }
        let requests = (self.arguments.bytes / self.arguments.fetch_bytes).max(1);
        let warm = self.load(&frames[..1], 1, 1);
        let run = self.load(&frames, requests, 1);
        let full = warm.received * requests / 2;
        assert!(run.received > full, "{} bytes came, {full} is half of it", run.received);
        run
    }

    fn fetch_old(&mut self) -> Run {
        let version = self.version(FETCH);
        let (produce, count) = self.produce_frames(&[0]);
        let (bytes, max_bytes) = (self.arguments.bytes, self.arguments.fetch_bytes);
        let step = (max_bytes / produce[0].len()).max(1) as i64 * count;
        let end = (bytes / produce[0].len()) as i64 * count;
        let offsets = (0..end).step_by(step as usize);
        let ask = |offset| Ask { offset, max_bytes: max_bytes as i32, ..Ask::default() };
        let topic = self.arguments.topic.as_str();
        let frames: Vec<Vec<u8>> =
            offsets.map(|at| requests::fetch(version, ask(at), topic, &[0])).collect();
        let run = self.load(&frames, frames.len(), 1);
        assert!(run.received > bytes / 2, "{} bytes came", run.received);
        run
    }

    fn fetch_many(&mut self) -> Run {
        let partitions = self.topic(1000);
        self.produce_to_all(&partitions);
        let version = self.version(FETCH);
        let ask = Ask { max_bytes: 1 << 20, ..Ask::default() };
        let frame = requests::fetch(version, ask, &self.arguments.topic, &partitions);
        let (_, size) = requests::fetched(&self.link.call(&frame), version);
        assert!(size >= partitions.len() * self.arguments.shape.record_bytes, "{size} bytes");
        self.load(&[frame], self.arguments.requests, 1)
    }

    /// One record to each partition, by one request.
    fn produce_to_all(&mut self, partitions: &[i32]) -> Vec<u8> {
        let version = self.version(PRODUCE);
        let shape = Shape { batch_bytes: 0, ..self.arguments.shape.clone() };
        let (batch, _) = requests::batch(&shape);
        let to = (self.arguments.topic.as_str(), partitions);
        let frame = requests::produce(version, self.arguments.acks, to, &batch);
        self.warm_up(std::slice::from_ref(&frame));
        frame
    }

    fn produce_many(&mut self) -> Run {
        let partitions = self.topic(500);
        let frame = self.produce_to_all(&partitions);
        let run = self.load(&[frame], self.arguments.requests, self.arguments.window);
        self.check_produced(&run.last);
        run
    }

    fn fetch_idle(&mut self) -> Run {
        let partitions = self.topic(100);
        let version = self.version(FETCH);
        assert!(version >= 7, "the server has no fetch sessions");
        let topic = self.arguments.topic.clone();
        let open = Ask { max_wait_ms: 0, session_epoch: 0, ..Ask::default() };
        let reply = self.link.call(&requests::fetch(version, open, &topic, &partitions));
        let (session_id, _) = requests::fetched(&reply, version);
        assert_ne!(session_id, 0, "no fetch session was given");
        let frames: Vec<Vec<u8>> = (1..=self.arguments.requests as i32)
            .map(|session_epoch| {
                let ask = Ask { session_id, session_epoch, ..open };
                requests::fetch(version, ask, &topic, &[])
            })
            .collect();
        let run = self.load(&frames, frames.len(), 1);
        requests::fetched(&run.last, version);
        run
    }

    /// The time from the send of a Produce to the arrival of the Fetch reply on another connection.
    fn wait(&mut self) -> Run {
        let partitions = self.topic(1);
        let (produce, fetch) = (self.version(PRODUCE), self.version(FETCH));
        let topic = self.arguments.topic.clone();
        let shape = Shape { batch_bytes: 0, ..self.arguments.shape.clone() };
        let (batch, _) = requests::batch(&shape);
        let to = (topic.as_str(), partitions.as_slice());
        let record = requests::produce(produce, self.arguments.acks, to, &batch);
        let mut waiting = Link::connect(&self.arguments.bootstrap);
        let mut run = Run::default();
        let mut offset = requests::produced(&self.link.call(&record), produce) + 1;
        let before = self.usage.cpu_s();
        let start = Instant::now();
        for _ in 0..self.arguments.requests {
            let ask = Ask { offset, max_wait_ms: 5_000, ..Ask::default() };
            waiting.send(&requests::fetch(fetch, ask, &topic, &partitions));
            spin(Duration::from_micros(400));
            let sent = Instant::now();
            self.link.send(&record);
            let reply = waiting.reply();
            run.latencies.push(sent.elapsed().as_nanos() as u64);
            offset = requests::produced(&self.link.reply(), produce) + 1;
            let (_, size) = requests::fetched(&reply, fetch);
            assert!(size > 0, "the Fetch came back empty");
            run.received += reply.len();
            run.requests += 1;
        }
        run.seconds = start.elapsed().as_secs_f64();
        run.cpu_s = before.and_then(|before| self.usage.cpu_s().map(|after| after - before));
        run
    }

    fn fetch_v2(&mut self) -> Run {
        let partitions = self.topic(1);
        let (produce, _) = self.produce_frames(&partitions);
        self.warm_up(&produce);
        self.warm_up(&produce);
        let ask = Ask { max_bytes: 1 << 20, ..Ask::default() };
        let frame = requests::fetch(2, ask, &self.arguments.topic, &partitions);
        let (_, size) = requests::fetched(&self.link.call(&frame), 2);
        assert!(size > self.arguments.shape.batch_bytes / 2, "{size} bytes of converted records");
        self.load(&[frame], self.arguments.requests, 1)
    }
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn report(mode: &str, mut run: Run, usage: &Usage) {
    run.latencies.sort_unstable();
    let percentile = |share: f64| {
        let index = (run.latencies.len() as f64 * share) as usize;
        run.latencies
            .get(index.min(run.latencies.len().saturating_sub(1)))
            .map(|ns| *ns as f64 / 1e3)
    };
    let bytes = run.sent.max(run.received) as f64;
    let mut fields = vec![
        format!("\"mode\": \"{mode}\""),
        format!("\"requests\": {}", run.requests),
        format!("\"bytes\": {bytes}"),
        format!("\"seconds\": {:.6}", run.seconds),
        format!("\"requests_s\": {:.1}", run.requests as f64 / run.seconds),
        format!("\"mb_s\": {:.1}", bytes / 1e6 / run.seconds),
    ];
    for (name, share) in [("p50_us", 0.5), ("p99_us", 0.99)] {
        if let Some(value) = percentile(share) {
            fields.push(format!("\"{name}\": {value:.1}"));
        }
    }
    if let Some(cpu_s) = run.cpu_s {
        fields.push(format!("\"cpu_s\": {cpu_s:.6}"));
        fields.push(format!("\"cpu_s_gb\": {:.4}", cpu_s * 1e9 / bytes.max(1.0)));
        fields.push(format!("\"cpu_us_request\": {:.3}", cpu_s * 1e6 / run.requests as f64));
    }
    if let Some(resident) = usage.resident() {
        fields.push(format!("\"resident_bytes\": {resident}"));
    }
    fields.extend(run.more.iter().map(|(name, value)| format!("\"{name}\": {value:.6}")));
    println!("{{{}}}", fields.join(", "));
}
