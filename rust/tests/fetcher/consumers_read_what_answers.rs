//! A consumer reads the partitions whose brokers answer, and a poll ends in time.

use std::net::TcpListener;
use std::time::Duration;

use krust::client::cluster::Cluster;
use krust::client::consumer::{Assignment, Consumer, ConsumerConfig};
use krust::client::{Address, ClientOptions};

use crate::double::{Made, Pair, TOPIC, batch};

/// A consumer of partitions 0 and 1, whose requests may take for ever.
fn consumer(port: u16) -> Consumer {
    let bootstrap = vec![Address { host: "127.0.0.1".to_owned(), port }];
    let request_timeout = Duration::from_secs(600);
    let options = ClientOptions { request_timeout, ..ClientOptions::new(bootstrap) };
    let mut consumer = Consumer::new(Cluster::new(options), ConsumerConfig::default());
    let assignment =
        |partition| Assignment { topic: TOPIC.to_owned(), partition, offset: 0, end: None };
    consumer.assign(&[assignment(0), assignment(1)]);
    consumer
}

#[test]
fn a_leader_that_does_not_answer_delays_no_partition_of_another() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut pair = Pair::new(0, Made::default());
    let port = pair.nodes[1].port();
    pair.nodes[1].meet(&[(0, silent.local_addr().unwrap().port()), (1, port)]);
    pair.nodes[1].assign([(0, 0, 0), (1, 1, 0)]);
    pair.nodes[1].client().produce(1, &batch(&[b"of the other leader"])).unwrap();
    let mut consumer = consumer(port);
    let mut chunks = Vec::new();
    while chunks.is_empty() {
        chunks = consumer.poll(Duration::from_millis(100)).unwrap();
    }
    assert_eq!(chunks.iter().map(|chunk| chunk.partition).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_poll_ends_in_time_though_no_broker_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut consumer = consumer(silent.local_addr().unwrap().port());
    for _ in 0..3 {
        assert!(consumer.poll(Duration::from_millis(10)).unwrap().is_empty());
    }
}
