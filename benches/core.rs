//! krust's core with a policy of a few lines instead of Python: the cost of the Rust half alone.
//!
//!     core --dir DIR [--threads N] [--busy-us N] [--flush async|ack] [--sync-ms N]
//!
//! Serves on 127.0.0.1, prints `{"port": .., "pid": ..}`, answers each line on standard input with
//! with the cost of its syncs, and ends when the input closes. The policy knows CreateTopics and
//! DeleteTopics, which the driver needs. `--sync-ms`: makes each sync this much longer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a program that measures stops at the first surprise"
)]

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use krust::broker::image::{BrokerImage, PartitionState, TopicDelta, TopicSettings};
use krust::broker::{Broker, Event, LogManager, Mailbox, MetadataDelta, Policy, Settings};
use krust::clock::{Clock, SystemClock};
use krust::ids::{Epoch, TopicId};
use krust::net::{ListenAddress, Mailboxes, NetworkOptions, Server};
use krust::protocol::value::Value;
use krust::storage::files::{Disk, RealDisk};
use krust::storage::{Descriptors, DirOptions, Intervals, LogDir};

/// Segments whose files stay open: as many as `krust serve` has where `ulimit -n` is 20,000.
const DESCRIPTORS: usize = 9_000;

/// The machine's disk, whose syncs take longer.
#[derive(Debug)]
struct SlowDisk(Duration);

impl Disk for SlowDisk {
    fn sync_data(&self, file: &File) -> io::Result<()> {
        std::thread::sleep(self.0);
        RealDisk.sync_data(file)
    }
}

/// Hands events to the main thread.
struct Post(Mutex<Sender<Event>>);

impl Policy for Post {
    fn submit(&self, event: Event) {
        self.0.lock().unwrap().send(event).unwrap();
    }
}

fn main() {
    let mut given = std::env::args().skip(1);
    let (mut dir, mut threads, mut busy_poll_us) = (PathBuf::from("."), 1, 0);
    let (mut ack_flush, mut sync_ms) = (false, 0);
    while let Some(flag) = given.next() {
        let value = given.next().expect("a value after each flag");
        match flag.as_str() {
            "--dir" => dir = PathBuf::from(value),
            "--threads" => threads = value.parse().expect("a number"),
            "--flush" => ack_flush = value == "ack",
            "--sync-ms" => sync_ms = value.parse().expect("a number"),
            "--busy-us" => busy_poll_us = value.parse().expect("a number"),
            other => panic!("unknown flag {other}"),
        }
    }
    let (sender, events) = channel();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let disk = Arc::new(SlowDisk(Duration::from_millis(sync_ms)));
    let descriptors = Descriptors::new(DESCRIPTORS);
    let options = DirOptions { disk, descriptors, ..DirOptions::default() };
    let dir = LogDir::open(&dir, &options).expect("--dir");
    let policy = Arc::new(Post(Mutex::new(sender)));
    let broker = Broker::new(
        Settings::default(),
        LogManager::new(vec![Arc::clone(&dir)]),
        policy,
        Arc::clone(&clock),
    );
    broker.start_syncing(Intervals::default(), None).expect("a thread");
    let mailboxes = Mailboxes::new(threads);
    broker.connect(Arc::clone(&mailboxes) as Arc<dyn Mailbox<_>>);
    let endpoint = ListenAddress { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port: 0 };
    let options =
        NetworkOptions { endpoints: vec![endpoint], busy_poll_us, ..NetworkOptions::default() };
    let server = Server::start(options, Arc::clone(&broker), mailboxes, clock).expect("a port");
    let port = server.bound().first().expect("an address").address.port();
    println!("{{\"port\": {port}, \"pid\": {}}}", std::process::id());
    io::stdout().flush().expect("standard output");
    std::thread::spawn(move || {
        for _ in io::stdin().lock().lines() {
            let (count, total_ns, longest_ns) = sync_times(&dir);
            println!("{{\"syncs\": {count}, \"ns\": {total_ns}, \"longest_ns\": {longest_ns}}}");
        }
        std::process::exit(0);
    });
    decide((&broker, ack_flush), &events);
}

fn sync_times(dir: &LogDir) -> (u64, u64, u64) {
    let syncs = dir.syncs();
    (syncs.count, syncs.total_ns, syncs.longest_ns)
}

/// Answers events for ever.
fn decide((broker, ack_flush): (&Broker, bool), events: &Receiver<Event>) {
    let this = BrokerImage { id: 0, rack: None, endpoints: Vec::new() };
    apply(
        broker,
        MetadataDelta { version: 1, brokers: Some(vec![this]), ..MetadataDelta::default() },
    );
    for (version, event) in (2..).zip(events.iter()) {
        let creates = event.api == "CreateTopics";
        let names: Vec<&Value> = match (&event.request, creates) {
            (request, true) => list(request, "topics").iter().collect(),
            (request, false) => list(request, "topic_names").iter().collect(),
        };
        let topics = names
            .iter()
            .map(|one| match creates {
                true => (text(one.field("name")).into(), Some(topic(one, (version, ack_flush)))),
                false => (text(Some(one)).into(), None),
            })
            .collect();
        apply(broker, MetadataDelta { version, topics, ..MetadataDelta::default() });
        let results = names
            .iter()
            .map(|one| {
                let name = text(if creates { one.field("name") } else { Some(one) });
                Value::Map(vec![("name".into(), Value::Str(name))])
            })
            .collect();
        let field = if creates { "topics" } else { "responses" };
        let response = Value::Map(vec![(field.into(), Value::List(results))]);
        broker.answer(event.ticket, &response).expect("a response");
    }
}

fn apply(broker: &Broker, delta: MetadataDelta) {
    let failures = broker.apply(delta);
    assert!(failures.is_empty(), "{failures:?}");
}

fn topic(asked: &Value, (number, ack_flush): (u64, bool)) -> TopicDelta {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    let mut settings = TopicSettings::default();
    settings.log.file_delete_delay_ms = 1;
    settings.log.ack_flush = ack_flush;
    let partition = PartitionState {
        leader: 0,
        leader_epoch: Epoch(0),
        isr: vec![0],
        replicas: vec![0],
        partition_epoch: 0,
    };
    let count = match asked.field("num_partitions") {
        Some(Value::Int(count)) => i32::try_from(*count).expect("a count"),
        _ => 1,
    };
    let partitions = (0..count).map(|number| (number, partition.clone())).collect();
    TopicDelta { id: TopicId(id), internal: false, settings, partitions }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    match value.field(name) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::Str(text)) => text.clone(),
        other => panic!("a name, not {other:?}"),
    }
}
