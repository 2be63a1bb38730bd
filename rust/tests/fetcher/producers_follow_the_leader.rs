//! A producer's batches reach a new leader in order, and one that failed harms no later one.

use std::collections::HashMap;
use std::time::Duration;

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
        let bootstrap = vec![Address { host: "127.0.0.1".to_owned(), port }];
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
    producer.producer.partitions(TOPIC, Duration::from_secs(60)).unwrap();
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
