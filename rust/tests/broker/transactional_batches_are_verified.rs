//! The first batch of a transaction in a partition waits for the coordinator of the transaction.

use krust::broker::image::{PartitionState, TopicDelta, TopicSettings};
use krust::broker::transactions::transaction::{ProducerIdentity, TransactionState};
use krust::broker::{MetadataDelta, Settings, TransactionSettings};
use krust::ids::{Epoch, Offset, TopicId};
use krust::protocol::RecordsField;
use krust::protocol::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, TopicRequest,
};
use krust::protocol::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use krust::record::compression::Codec;
use krust::wire::Reader;

use crate::double::{Conn, Frame, TestBroker, frame};
use crate::records::{TOPIC, batch, batch_with, produce, produced, produced_to};
use crate::replicas::alive;
use crate::transactions::{
    ID, TRANSACTIONS, add, added, create_topics, ended, fixture, last_state, markers, producer,
    transactions_topic, wait_until_complete,
};

/// A batch of a producer's transaction.
fn in_txn(producer: ProducerIdentity, base_sequence: i32) -> Vec<u8> {
    batch_with(&["a"], Codec::None, |fields| {
        fields.transactional = true;
        fields.base_sequence = base_sequence;
        (fields.producer_id, fields.producer_epoch) = (producer.id, producer.epoch);
    })
}

/// A Produce of [`ID`] to some partitions of [`TOPIC`].
fn send(version: i16, partitions: &[(i32, &[u8])]) -> Frame {
    send_as(ID.0, version, partitions)
}

fn send_as(id: &str, version: i16, partitions: &[(i32, &[u8])]) -> Frame {
    let data = partitions.iter().map(|(index, records)| PartitionProduceData {
        index: *index,
        records: RecordsField::Bytes(records),
    });
    let request = ProduceRequest {
        transactional_id: Some(id),
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC,
            topic_id: TopicId([1; 16]),
            partition_data: data.collect(),
        }],
    };
    frame(0, version, |writer, version| request.encode(writer, version))
}

/// The code of each partition.
fn sent(fixture: &mut TestBroker, conn: &mut Conn, request: &Frame) -> Vec<i16> {
    let reply = fixture.ask(conn, request);
    produced_to(request.version, &reply).iter().map(|(code, _)| *code).collect()
}

fn offsets(fixture: &TestBroker, partition: i32) -> (Offset, Offset) {
    let image = fixture.broker.image();
    let partition = image.topic(TOPIC).unwrap().partition(partition).unwrap();
    let log = &partition.local.as_ref().unwrap().log;
    (log.last_stable_offset(), log.log_end_offset())
}

#[test]
fn a_transactional_batch_needs_a_transactional_id() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer(&mut fixture, &mut conn, ID.0);
    for version in [3, 11, 12, 13] {
        let reply = fixture.ask(&mut conn, &produce(version, -1, &in_txn(producer, 0)));
        assert_eq!(produced(version, &reply).0, 53);
    }
    assert_eq!(sent(&mut fixture, &mut conn, &send(11, &[(0, &batch(&["plain"]))])), [0]);
}

#[test]
fn a_partition_that_was_not_added_is_refused_in_the_code_of_the_version() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer(&mut fixture, &mut conn, ID.0);
    let batch = in_txn(producer, 0);
    for version in 3..=11 {
        let code = if version < 11 { 48 } else { 120 };
        assert_eq!(sent(&mut fixture, &mut conn, &send(version, &[(0, &batch)])), [code]);
    }
    assert_eq!(added(&mut fixture, &mut conn, &add(3, ID.0, producer, &[0])), [0]);
    for version in 3..=11 {
        let code = if version < 11 { 48 } else { 120 };
        let request = send(version, &[(1, &batch), (2, &batch)]);
        assert_eq!(sent(&mut fixture, &mut conn, &request), [code, code]);
    }
    assert_eq!(offsets(&fixture, 1), (Offset(0), Offset(0)));
}

#[test]
fn an_added_partition_takes_batches_until_the_transaction_ends() {
    for version in [3, 11] {
        let mut fixture = fixture();
        let mut conn = fixture.connect();
        let producer = producer(&mut fixture, &mut conn, ID.0);
        added(&mut fixture, &mut conn, &add(3, ID.0, producer, &[0, 1]));
        let batch = in_txn(producer, 0);
        let request = send(version, &[(0, &batch), (1, &batch), (2, &batch)]);
        let code = if version < 11 { 48 } else { 120 };
        assert_eq!(sent(&mut fixture, &mut conn, &request), [0, 0, code]);
        let next = send(version, &[(0, &in_txn(producer, 1))]);
        assert_eq!(sent(&mut fixture, &mut conn, &next), [0]);
        assert_eq!(offsets(&fixture, 0), (Offset(0), Offset(2)));
        assert_eq!(ended(&mut fixture, &mut conn, (3, ID.0, producer, true)).0, 0);
        wait_until_complete(&fixture);
        assert_eq!(offsets(&fixture, 0), (Offset(3), Offset(3)));
        let late = send(version, &[(0, &in_txn(producer, 2))]);
        assert_eq!(sent(&mut fixture, &mut conn, &late), [code]);
    }
}

#[test]
fn version_12_adds_the_partitions_itself() {
    for version in [12, 13] {
        let mut fixture = fixture();
        let mut conn = fixture.connect();
        let mut producer = producer(&mut fixture, &mut conn, ID.0);
        for round in 0..3 {
            let batch = in_txn(producer, 0);
            let request = send(version, &[(0, &batch), (2, &batch)]);
            assert_eq!(sent(&mut fixture, &mut conn, &request), [0, 0], "round {round}");
            assert_eq!(last_state(&fixture), Some(TransactionState::Ongoing));
            let (code, next) = ended(&mut fixture, &mut conn, (5, ID.0, producer, true));
            assert_eq!((code, next.epoch), (0, producer.epoch + 1));
            wait_until_complete(&fixture);
            let late = send(version, &[(0, &in_txn(producer, 1))]);
            assert_eq!(sent(&mut fixture, &mut conn, &late), [47], "its epoch has ended");
            producer = next;
        }
        let epochs: Vec<i16> = markers(&fixture, 0).iter().map(|marker| marker.1).collect();
        assert_eq!(epochs, [1, 2, 3]);
        assert!(markers(&fixture, 1).is_empty());
    }
}

#[test]
fn an_old_or_unknown_producer_is_refused() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let old = producer(&mut fixture, &mut conn, ID.0);
    let new = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, new, &[0]));
    let stranger = ProducerIdentity { id: new.id + 7, epoch: 0 };
    for version in [11, 12] {
        let zombie = send(version, &[(0, &in_txn(old, 0))]);
        assert_eq!(sent(&mut fixture, &mut conn, &zombie), [47]);
        let request = send(version, &[(0, &in_txn(stranger, 0))]);
        assert_eq!(sent(&mut fixture, &mut conn, &request), [49]);
        let request = send_as("nobody", version, &[(0, &in_txn(new, 0))]);
        assert_eq!(sent(&mut fixture, &mut conn, &request), [49]);
    }
    assert_eq!(offsets(&fixture, 0).1, Offset(0));
}

#[test]
fn a_request_has_one_transactional_producer() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer(&mut fixture, &mut conn, ID.0);
    let other = ProducerIdentity { id: producer.id + 7, epoch: 0 };
    let request = send(12, &[(0, &in_txn(producer, 0)), (1, &in_txn(other, 0))]);
    assert_eq!(sent(&mut fixture, &mut conn, &request), [0, 49]);
}

/// Removes the topic of transactional ids, so that this broker coordinates none.
fn without_coordinator(fixture: &mut TestBroker) {
    let topics = vec![(TRANSACTIONS.into(), None)];
    fixture.apply(MetadataDelta { topics, ..MetadataDelta::default() });
}

#[test]
fn a_partition_is_verified_once_in_a_transaction() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, producer, &[0, 1]));
    assert_eq!(sent(&mut fixture, &mut conn, &send(11, &[(0, &in_txn(producer, 0))])), [0]);
    without_coordinator(&mut fixture);
    assert_eq!(sent(&mut fixture, &mut conn, &send(11, &[(0, &in_txn(producer, 1))])), [0]);
    for version in [3, 11, 12] {
        let first = send(version, &[(1, &in_txn(producer, 0))]);
        assert_eq!(sent(&mut fixture, &mut conn, &first), [19], "clients retry it");
    }
}

#[test]
fn without_verification_only_version_12_asks_the_coordinator() {
    let transactions =
        TransactionSettings { verifies_partitions: false, ..TransactionSettings::default() };
    let mut fixture = TestBroker::with(Settings { transactions, ..Settings::default() });
    create_topics(&mut fixture);
    let mut conn = fixture.connect();
    let producer = producer(&mut fixture, &mut conn, ID.0);
    assert_eq!(sent(&mut fixture, &mut conn, &send(11, &[(0, &in_txn(producer, 0))])), [0]);
    without_coordinator(&mut fixture);
    assert_eq!(sent(&mut fixture, &mut conn, &send(11, &[(1, &in_txn(producer, 0))])), [0]);
    assert_eq!(sent(&mut fixture, &mut conn, &send(12, &[(2, &in_txn(producer, 0))])), [19]);
}

/// Replicates the topic of transactional ids to brokers 0 and 1, of which these are in sync.
fn replicate(fixture: &mut TestBroker, isr: &[i32], partition_epoch: i32) {
    let state = PartitionState {
        leader: 0,
        leader_epoch: Epoch(0),
        isr: isr.to_vec(),
        replicas: isr.to_vec(),
        partition_epoch,
    };
    let made = transactions_topic();
    let delta = TopicDelta {
        id: TopicId([made.id; 16]),
        internal: true,
        settings: TopicSettings { log: made.config, ..TopicSettings::default() },
        partitions: (0..made.partitions).map(|number| (number, state.clone())).collect(),
    };
    let topics = vec![(TRANSACTIONS.into(), Some(delta))];
    fixture.apply(MetadataDelta { topics, ..MetadataDelta::default() });
}

/// A producer whose coordinator's log must be copied by broker 1 from now on.
fn with_a_waiting_coordinator() -> (TestBroker, Conn, ProducerIdentity) {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let producer = producer(&mut fixture, &mut conn, ID.0);
    alive(&mut fixture, &[0, 1]);
    replicate(&mut fixture, &[0, 1], 3);
    (fixture, conn, producer)
}

#[test]
fn a_produce_waits_until_its_partition_is_added_for_good_and_later_requests_wait_behind_it() {
    let (mut fixture, mut conn, producer) = with_a_waiting_coordinator();
    let first = send(12, &[(0, &in_txn(producer, 0)), (1, &in_txn(producer, 0))]);
    let second = send(12, &[(0, &in_txn(producer, 1))]);
    fixture.event(&mut conn, &[first.bytes.clone(), second.bytes.clone()]);
    fixture.turn(&mut [&mut conn]);
    assert!(conn.is_waiting() && conn.sent.is_empty());
    assert_eq!(offsets(&fixture, 0).1, Offset(0));
    replicate(&mut fixture, &[0], 4);
    fixture.turn_until_sent(&mut conn);
    let reply = conn.reply(&first);
    assert_eq!(produced_to(12, &reply), [(0, 0), (0, 0)]);
    fixture.turn_until_sent(&mut conn);
    let reply = conn.reply(&second);
    assert_eq!(produced_to(12, &reply), [(0, 1)]);
}

#[test]
fn a_produce_is_refused_when_the_coordinator_does_not_answer_in_time() {
    let (mut fixture, mut conn, producer) = with_a_waiting_coordinator();
    let request = send(12, &[(0, &in_txn(producer, 0))]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert!(conn.is_waiting());
    fixture.clock.advance(30_000);
    fixture.turn_until_sent(&mut conn);
    let reply = conn.reply(&request);
    assert_eq!(produced(12, &reply).0, 19);
    assert_eq!(offsets(&fixture, 0).1, Offset(0));
}

#[test]
fn a_connection_that_closes_while_its_produce_waits_leaves_nothing_behind() {
    let (mut fixture, mut conn, producer) = with_a_waiting_coordinator();
    let request = send(12, &[(0, &in_txn(producer, 0))]);
    fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
    assert!(conn.is_waiting());
    fixture.close(conn);
    replicate(&mut fixture, &[0], 4);
    let mut other = fixture.connect();
    fixture.turn(&mut [&mut other]);
    assert_eq!(offsets(&fixture, 0).1, Offset(0));
}

#[test]
fn described_producers_have_their_open_transaction_and_the_epoch_of_its_last_coordinator() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let first = producer(&mut fixture, &mut conn, ID.0);
    let mut described = |fixture: &mut TestBroker| {
        let topics = vec![TopicRequest { name: TOPIC, partition_indexes: vec![0] }];
        let request = DescribeProducersRequest { topics };
        let request = frame(61, 0, |writer, version| request.encode(writer, version));
        let reply = fixture.ask(&mut conn, &request);
        let response = DescribeProducersResponse::decode(&mut Reader::new(&reply), 0).unwrap();
        let state = &response.topics[0].partitions[0].active_producers[0];
        (state.producer_epoch, state.coordinator_epoch, state.current_txn_start_offset)
    };
    let mut client = fixture.connect();
    assert_eq!(sent(&mut fixture, &mut client, &send(12, &[(0, &batch(&["plain"]))])), [0]);
    assert_eq!(sent(&mut fixture, &mut client, &send(12, &[(0, &in_txn(first, 0))])), [0]);
    assert_eq!(described(&mut fixture), (0, -1, 1));
    let (_, next) = ended(&mut fixture, &mut client, (5, ID.0, first, false));
    wait_until_complete(&fixture);
    assert_eq!(described(&mut fixture), (1, 0, -1));
    assert_eq!(sent(&mut fixture, &mut client, &send(12, &[(0, &in_txn(next, 0))])), [0]);
    assert_eq!(described(&mut fixture), (1, 0, 3));
}
