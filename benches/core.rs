//! krust's core with a policy of a few lines in Python's place: what the Rust half costs alone.
//!
//!     core --dir DIR [--threads N] [--busy-us N]
//!
//! Serves on 127.0.0.1, prints `{"port": .., "pid": ..}`, ends when standard input closes. Knows
//! CreateTopics and DeleteTopics, which is what the driver asks of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a program that measures stops at the first surprise"
)]

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use krust::broker::image::{BrokerImage, PartitionState, TopicDelta, TopicSettings};
use krust::broker::{Broker, Delta, Event, Mailbox, Policy, Settings, Store};
use krust::clock::{Clock, SystemClock};
use krust::ids::{Epoch, TopicId};
use krust::net::{Endpoint, Mailboxes, Options, Server};
use krust::protocol::value::Value;
use krust::storage::{DirOptions, Intervals, LogDir};

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
    while let Some(flag) = given.next() {
        let value = given.next().expect("a value after each flag");
        match flag.as_str() {
            "--dir" => dir = PathBuf::from(value),
            "--threads" => threads = value.parse().expect("a number"),
            "--busy-us" => busy_poll_us = value.parse().expect("a number"),
            other => panic!("unknown flag {other}"),
        }
    }
    let (sender, events) = channel();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let dir = LogDir::open(&dir, &DirOptions::default()).expect("--dir");
    let policy = Arc::new(Post(Mutex::new(sender)));
    let broker =
        Broker::new(Settings::default(), Store::new(vec![dir]), policy, Arc::clone(&clock));
    broker.start_syncing(Intervals::default(), None).expect("a thread");
    let mailboxes = Mailboxes::new(threads);
    broker.connect(Arc::clone(&mailboxes) as Arc<dyn Mailbox<_>>);
    let endpoint = Endpoint { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port: 0 };
    let options = Options { endpoints: vec![endpoint], busy_poll_us, ..Options::default() };
    let server = Server::start(options, Arc::clone(&broker), mailboxes, clock).expect("a port");
    let port = server.bound().first().expect("an address").address.port();
    println!("{{\"port\": {port}, \"pid\": {}}}", std::process::id());
    io::stdout().flush().expect("standard output");
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    decide(&broker, &events);
}

/// Answers events for ever.
fn decide(broker: &Broker, events: &Receiver<Event>) {
    let this = BrokerImage { id: 0, rack: None, endpoints: Vec::new() };
    apply(broker, Delta { version: 1, brokers: Some(vec![this]), ..Delta::default() });
    for (version, event) in (2..).zip(events.iter()) {
        let creates = event.api == "CreateTopics";
        let names: Vec<&Value> = match (&event.request, creates) {
            (request, true) => list(request, "topics").iter().collect(),
            (request, false) => list(request, "topic_names").iter().collect(),
        };
        let topics = names
            .iter()
            .map(|one| match creates {
                true => (text(one.field("name")).into(), Some(topic(one, version))),
                false => (text(Some(one)).into(), None),
            })
            .collect();
        apply(broker, Delta { version, topics, ..Delta::default() });
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

fn apply(broker: &Broker, delta: Delta) {
    let failures = broker.apply(delta);
    assert!(failures.is_empty(), "{failures:?}");
}

fn topic(asked: &Value, number: u64) -> TopicDelta {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    let mut settings = TopicSettings::default();
    settings.log.file_delete_delay_ms = 1;
    let partition =
        PartitionState { leader: 0, leader_epoch: Epoch(0), isr: vec![0], replicas: vec![0] };
    let count = match asked.field("num_partitions") {
        Some(Value::Int(count)) => usize::try_from(*count).expect("a count"),
        _ => 1,
    };
    TopicDelta { id: TopicId(id), internal: false, settings, partitions: vec![partition; count] }
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
