//! A producer's batches reach a new leader in order, and one that failed harms no later one.

use std::collections::HashMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use krust::client::cluster::Cluster;
use krust::client::producer::{DeliveryReport, Producer, ProducerConfig};
use krust::client::{Address, ClientOptions};
use krust::record::batch::NewRecord;
use krust::storage::LogConfig;

use crate::double::{Made, Pair, TOPIC, closed_port, until};
use crate::proxy::{PRODUCE, Proxy};

const METADATA: i16 = 3;
const MESSAGE_TOO_LARGE: i16 = 10;
const OUT_OF_ORDER_SEQUENCE: i16 = 45;

/// An idempotent producer that has one batch for each record.
struct OneByOne {
    producer: Producer,
    reports: Vec<DeliveryReport>,
}

impl OneByOne {
    fn new(port: u16, request_timeout: Duration) -> Self {
        Self::with(&[port], request_timeout)
    }

    fn with(ports: &[u16], request_timeout: Duration) -> Self {
        let address = |port: &u16| Address { host: "127.0.0.1".to_owned(), port: *port };
        let bootstrap = ports.iter().map(address).collect();
        let options = ClientOptions {
            request_timeout,
            retry_backoff: Duration::from_millis(10),
            ..ClientOptions::new(bootstrap)
        };
        let config = ProducerConfig {
            idempotent: true,
            linger: Duration::ZERO,
            create_topics: false,
            ..ProducerConfig::default()
        };
        let producer = Producer::new(Cluster::new(options), config).unwrap();
        Self { producer, reports: Vec::new() }
    }

    /// Sends a record, as far as that may be sent now.
    fn send(&mut self, partition: i32, value: &[u8]) {
        let record =
            NewRecord { timestamp: 1_700_000_000_000, key: None, value: Some(value), headers: &[] };
        self.producer.send(TOPIC, Some(partition), &record).unwrap();
        self.poll();
    }

    /// Waits for metadata that are requested now.
    fn look_up(&mut self) {
        let now = Instant::now();
        while !matches!(self.producer.partitions(TOPIC, now), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn poll(&mut self) {
        self.producer.poll().unwrap();
        self.reports.extend(self.producer.take_delivery_reports());
    }

    /// Waits for this number of reports, and takes them: partition, offset and error code of each.
    fn reports(&mut self, count: usize) -> Vec<(i32, i64, i16)> {
        while self.reports.len() < count {
            self.poll();
            std::thread::sleep(Duration::from_millis(1));
        }
        let outcome = |report: &DeliveryReport| {
            let code = report.error.as_ref().map_or(0, krust::client::Error::code);
            (report.partition, report.base_offset, code)
        };
        std::mem::take(&mut self.reports).iter().map(outcome).collect()
    }
}

#[test]
fn a_new_leader_gets_no_batch_before_the_old_one_has_answered() {
    let mut pair = Pair::new(2, Made::default());
    let proxy = Proxy::start(pair.nodes[0].port(), HashMap::new());
    pair.meet_at(proxy.port);
    let bootstrap = Proxy::start(pair.nodes[1].port(), HashMap::new());
    let mut producer = OneByOne::new(bootstrap.port, Duration::from_secs(600));
    producer.send(0, b"first");
    assert_eq!(producer.reports(1), [(0, 0, 0)]);
    pair.agree(1);

    proxy.pass(1);
    producer.send(0, b"second");
    until(|| proxy.seen(PRODUCE).len() == 2, || format!("{:?}", proxy.seen(PRODUCE)));
    pair.elect(1);
    producer.look_up();
    producer.send(0, b"third");
    producer.send(1, b"other partition");
    // Broker 1 answers in order, so it would have refused the third record before.
    assert_eq!(producer.reports(1), [(1, 0, 0)]);

    proxy.pass(usize::MAX);
    assert_eq!(producer.reports(2), [(0, 1, 0), (0, 2, 0)]);
    assert_eq!(pair.nodes[1].end(0), 3);
}

#[test]
fn a_late_refusal_of_an_abandoned_producer_id_fails_no_later_batch() {
    let log = LogConfig { max_message_bytes: 1000, ..LogConfig::default() };
    let mut pair = Pair::new(1, Made { log, ..Made::default() });
    let proxy = Proxy::start(pair.nodes[0].port(), HashMap::new());
    pair.meet_at(proxy.port);
    let mut producer = OneByOne::new(proxy.port, Duration::from_secs(600));
    producer.send(0, b"first");
    assert_eq!(producer.reports(1), [(0, 0, 0)]);

    proxy.pass(1);
    producer.send(0, &[0; 2000]);
    producer.send(0, b"behind it");
    proxy.pass(2);
    assert_eq!(producer.reports(1), [(0, -1, MESSAGE_TOO_LARGE)]);
    producer.send(0, b"later");
    proxy.pass(usize::MAX);
    assert_eq!(producer.reports(2), [(0, -1, OUT_OF_ORDER_SEQUENCE), (0, 1, 0)]);
}

#[test]
fn a_leader_that_refuses_connections_is_tried_again_after_the_back_off() {
    let mut pair = Pair::new(0, Made::default());
    let proxy = Proxy::start(pair.nodes[1].port(), HashMap::new());
    let brokers = [(0, closed_port()), (1, proxy.port)];
    pair.nodes[1].meet(&brokers);
    pair.nodes[1].assign([(0, 0, 0), (1, 1, 0)]);
    let mut producer = OneByOne::new(proxy.port, Duration::from_secs(2));
    let before = proxy.seen(METADATA).len();
    producer.send(0, b"nobody takes it");
    let tries = proxy.seen(METADATA).len() - before;
    assert!(tries <= 3, "{tries} look-ups in one call");
    producer.send(1, b"the other leader takes it");
    assert_eq!(producer.reports(1), [(1, 0, 0)]);
}

/// A port that accepts connections and never answers.
fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn a_leader_that_does_not_answer_delays_no_batch_for_another() {
    let mut pair = Pair::new(0, Made::default());
    let proxy = Proxy::start(pair.nodes[1].port(), HashMap::new());
    let (_listener, port) = silent();
    pair.nodes[1].meet(&[(0, port), (1, proxy.port)]);
    pair.nodes[1].assign([(0, 0, 0), (1, 1, 0)]);
    let mut producer = OneByOne::new(proxy.port, Duration::from_secs(600));
    producer.send(0, b"nobody takes it");
    producer.send(1, b"the other leader takes it");
    assert_eq!(producer.reports(1), [(1, 0, 0)]);
}

#[test]
fn a_bootstrap_broker_that_does_not_answer_is_passed_over() {
    let mut pair = Pair::new(1, Made::default());
    let proxy = Proxy::start(pair.nodes[0].port(), HashMap::new());
    pair.meet_at(proxy.port);
    let (_listener, port) = silent();
    let mut producer = OneByOne::with(&[port, proxy.port], Duration::from_millis(100));
    producer.look_up();
    producer.send(0, b"delivered");
    assert_eq!(producer.reports(1), [(0, 0, 0)]);
}

#[test]
fn a_broker_whose_metadata_are_old_is_not_asked_for_ever() {
    let mut pair = Pair::new(0, Made::default());
    let proxies = [0, 1].map(|at: usize| Proxy::start(pair.nodes[at].port(), HashMap::new()));
    let brokers = [(0, closed_port()), (1, proxies[1].port)];
    pair.nodes.iter_mut().for_each(|node| node.meet(&brokers));
    pair.nodes[0].assign([(0, 0, 0)]);
    pair.nodes[1].assign([(0, 1, 1)]);
    let ports = [proxies[0].port, proxies[1].port];
    let mut producer = OneByOne::with(&ports, Duration::from_secs(2));
    producer.send(0, b"delivered to the new leader");
    assert_eq!(producer.reports(1), [(0, 0, 0)]);
}

#[test]
fn a_full_buffer_is_sent_though_no_batch_in_it_is_full() {
    let mut pair = Pair::new(2, Made::default());
    let proxy = Proxy::start(pair.nodes[0].port(), HashMap::new());
    pair.meet_at(proxy.port);
    let options = ClientOptions {
        retry_backoff: Duration::from_millis(10),
        ..ClientOptions::new(vec![Address { host: "127.0.0.1".to_owned(), port: proxy.port }])
    };
    let config = ProducerConfig {
        linger: Duration::from_secs(600),
        batch_bytes: 1000,
        buffer_bytes: 800,
        delivery_timeout: Duration::from_secs(10),
        create_topics: false,
        ..ProducerConfig::default()
    };
    let mut producer = Producer::new(Cluster::new(options), config).unwrap();
    for (partition, size) in [(0, 900), (1, 1000)] {
        let value = vec![7; size];
        let record = NewRecord { value: Some(&value), ..NewRecord::default() };
        producer.send(TOPIC, Some(partition), &record).unwrap();
    }
    assert_eq!(producer.held_bytes(), 0);
    assert_eq!((pair.nodes[0].end(0), pair.nodes[0].end(1)), (1, 1));
}
