//! Requests about transactions between brokers: each ends with an answer or an error, and in time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use krust::broker::TxnMarker;
use krust::broker::image::PeerAddress;
use krust::broker::inter_broker::{InterBroker, PeerMarker, PeerPartitions};
use krust::ids::TopicPartition;
use krust::inter_broker::InterBrokerThreads;
use krust::protocol::ErrorCode;
use krust::protocol::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use krust::protocol::api_versions::{ApiVersion, ApiVersionsResponse};
use krust::record::control::EndTransactionMarker;
use krust::wire::{Reader, Writer};

use crate::double::{Made, Node, Pair, TOPIC, closed_port, until};

/// How long a peer may be silent in these tests. What ends earlier did not wait for it.
const LONG: Duration = Duration::from_secs(50);
/// Much less than that, and much for a busy machine.
const SHORT: Duration = Duration::from_secs(20);

fn at(port: u16) -> PeerAddress {
    PeerAddress { broker: 0, host: "127.0.0.1".into(), port }
}

/// Asks for a marker. Returns where its code arrives.
fn write_marker(
    threads: &InterBrokerThreads,
    port: u16,
    (producer_id, partition): (i64, i32),
) -> Receiver<Vec<ErrorCode>> {
    let (sender, receiver) = channel();
    let marker = TxnMarker {
        ends: EndTransactionMarker {
            producer_id,
            producer_epoch: 0,
            coordinator_epoch: 1,
            commit: true,
        },
        transaction_version: 0,
    };
    let partition = TopicPartition::new(TOPIC, partition);
    let then = Box::new(move |codes| sender.send(codes).unwrap());
    threads.write_marker(&at(port), PeerMarker { marker, partition, then });
    receiver
}

fn add_partitions(
    threads: &InterBrokerThreads,
    port: u16,
    (id, verify_only): (&str, bool),
) -> Receiver<Vec<ErrorCode>> {
    let (sender, receiver) = channel();
    let request = PeerPartitions {
        transactional_id: id.into(),
        producer_id: 7,
        producer_epoch: 1,
        verify_only,
        partitions: vec![TopicPartition::new(TOPIC, 0), TopicPartition::new(TOPIC, 1)],
        then: Box::new(move |codes| sender.send(codes).unwrap()),
    };
    threads.add_partitions(&at(port), request);
    receiver
}

fn threads_of(node: &Node) -> Arc<InterBrokerThreads> {
    InterBrokerThreads::start(&node.broker)
}

fn code(answer: &Receiver<Vec<ErrorCode>>) -> ErrorCode {
    answer.recv_timeout(LONG * 2).unwrap()[0]
}

/// A listener that accepts connections and never answers.
fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn a_marker_reaches_the_leader_on_another_broker() {
    let pair = Pair::new(2, Made::default());
    let threads = threads_of(&pair.nodes[1]);
    let answers: Vec<_> = (0..200)
        .map(|n| write_marker(&threads, pair.nodes[0].port(), (n, (n % 2) as i32)))
        .collect();
    assert!(answers.iter().all(|answer| code(answer) == ErrorCode::None));
    assert_eq!([0, 1].map(|number| pair.nodes[0].end(number)), [100, 100]);
    assert_eq!(threads.threads(), 1);
}

#[test]
fn a_broker_that_does_not_lead_the_partition_says_so() {
    let mut pair = Pair::new(1, Made::default());
    let threads = threads_of(&pair.nodes[1]);
    let port = pair.nodes[0].port();
    assert_eq!(code(&write_marker(&threads, port, (1, 0))), ErrorCode::None);
    pair.elect(1);
    assert_eq!(code(&write_marker(&threads, port, (2, 0))), ErrorCode::NotLeaderOrFollower);
    let unknown = write_marker(&threads, port, (1, 9));
    assert_eq!(code(&unknown), ErrorCode::UnknownTopicOrPartition);
}

#[test]
fn a_peer_that_is_away_is_an_error_until_it_comes_back() {
    let pair = Pair::new(1, Made::default());
    let threads = threads_of(&pair.nodes[1]);
    assert_eq!(code(&write_marker(&threads, closed_port(), (1, 0))), ErrorCode::NetworkException);
    let port = pair.nodes[0].port();
    pair.cut_off(true);
    assert_eq!(code(&write_marker(&threads, port, (1, 0))), ErrorCode::NetworkException);
    pair.cut_off(false);
    assert_eq!(code(&write_marker(&threads, port, (1, 0))), ErrorCode::None);
}

#[test]
fn a_peer_that_restarted_meanwhile_is_asked_on_a_new_connection() {
    let mut pair = Pair::new(1, Made::default());
    let threads = threads_of(&pair.nodes[1]);
    assert_eq!(code(&write_marker(&threads, pair.nodes[0].port(), (1, 0))), ErrorCode::None);
    let [leader, follower] = pair.nodes;
    pair.nodes = [leader.again(), follower];
    pair.meet();
    pair.elect(0);
    assert_eq!(code(&write_marker(&threads, pair.nodes[0].port(), (2, 0))), ErrorCode::None);
}

#[test]
fn a_silent_peer_is_a_timeout() {
    let pair = Pair::new(1, Made::default());
    pair.nodes[1].set(|settings| settings.inter_broker.request_timeout_ms = 50);
    let (_listener, port) = silent();
    let threads = threads_of(&pair.nodes[1]);
    assert_eq!(code(&write_marker(&threads, port, (1, 0))), ErrorCode::RequestTimedOut);
}

#[test]
fn a_broker_closes_while_a_peer_is_silent_and_every_request_ends() {
    let mut pair = Pair::new(1, Made::default());
    pair.nodes[1].set(|settings| settings.inter_broker.request_timeout_ms = 50_000);
    let (_listener, port) = silent();
    let threads = threads_of(&pair.nodes[1]);
    let asked = write_marker(&threads, port, (1, 0));
    let queued = write_marker(&threads, port, (2, 0));
    let start = Instant::now();
    pair.nodes[1].close();
    assert!(start.elapsed() < SHORT, "{:?}", start.elapsed());
    let late = write_marker(&threads, port, (3, 0));
    assert_eq!([asked, queued, late].each_ref().map(code), [ErrorCode::NetworkException; 3]);
    assert_eq!(threads.threads(), 0);
}

#[test]
fn a_thread_without_requests_ends_and_another_begins() {
    let pair = Pair::new(1, Made::default());
    pair.nodes[1].set(|settings| settings.inter_broker.idle_ms = 1);
    let threads = threads_of(&pair.nodes[1]);
    for producer in 0..3 {
        let answer = write_marker(&threads, pair.nodes[0].port(), (producer, 0));
        assert_eq!(code(&answer), ErrorCode::None);
        until(|| threads.threads() == 0, || "the thread is still there".to_owned());
    }
}

/// A peer that serves AddPartitionsToTxn up to `last`, and answers each transaction with `codes`.
fn coordinator(last: i16, codes: [i16; 2]) -> u16 {
    let (listener, port) = silent();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap(), last, codes);
        }
    });
    port
}

fn serve(mut stream: TcpStream, last: i16, codes: [i16; 2]) {
    let mut length = [0; 4];
    while stream.read_exact(&mut length).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut frame).unwrap();
        let mut reader = Reader::new(&frame);
        let (key, version) = (reader.i16().unwrap(), reader.i16().unwrap());
        let mut writer = Writer::new();
        writer.buf.extend_from_slice(&[0; 4]);
        writer.buf.extend_from_slice(&frame[4..8]);
        if key == 18 {
            let range = |api_key, max_version| ApiVersion { api_key, min_version: 0, max_version };
            let api_keys = vec![range(18, 4), range(24, last)];
            ApiVersionsResponse { api_keys, ..Default::default() }.encode(&mut writer, version);
        } else {
            writer.buf.push(0);
            answer(&frame, version, codes).encode(&mut writer, version);
        }
        let length = u32::try_from(writer.buf.len() - 4).unwrap();
        writer.buf[..4].copy_from_slice(&length.to_be_bytes());
        stream.write_all(&writer.buf).unwrap();
    }
}

fn answer(frame: &[u8], version: i16, codes: [i16; 2]) -> AddPartitionsToTxnResponse<'_> {
    let client_id = usize::from(u16::from_be_bytes([frame[8], frame[9]]));
    let mut body = Reader::new(&frame[10 + client_id + 1..]);
    let request = AddPartitionsToTxnRequest::decode(&mut body, version).unwrap();
    let result = |partition_index, partition_error_code| AddPartitionsToTxnPartitionResult {
        partition_index,
        partition_error_code,
    };
    let results = request.transactions.iter().map(|it| AddPartitionsToTxnResult {
        transactional_id: it.transactional_id,
        topic_results: vec![AddPartitionsToTxnTopicResult {
            name: it.topics[0].name,
            results_by_partition: vec![result(1, codes[1]), result(0, codes[0])],
        }],
    });
    let results_by_transaction = results.collect();
    AddPartitionsToTxnResponse { results_by_transaction, ..Default::default() }
}

#[test]
fn a_coordinator_answers_for_each_partition() {
    let pair = Pair::new(0, Made::default());
    let threads = threads_of(&pair.nodes[1]);
    let port = coordinator(5, [0, 48]);
    let answers: Vec<_> =
        (0..50).map(|n| add_partitions(&threads, port, (&format!("id-{n}"), n % 2 == 0))).collect();
    for answer in answers {
        let codes = answer.recv_timeout(LONG).unwrap();
        assert_eq!(codes, [ErrorCode::None, ErrorCode::InvalidTxnState]);
    }
}

#[test]
fn a_coordinator_that_cannot_look_for_partitions_is_taken_to_have_them() {
    let pair = Pair::new(0, Made::default());
    let threads = threads_of(&pair.nodes[1]);
    let port = coordinator(3, [48, 48]);
    assert_eq!(code(&add_partitions(&threads, port, ("a", true))), ErrorCode::None);
    assert_eq!(code(&add_partitions(&threads, port, ("a", false))), ErrorCode::UnsupportedVersion);
}
