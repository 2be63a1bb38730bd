//! A restart at each point of a transaction, and logs that other brokers left.

use krust::broker::transactions::records::{write_key, write_value};
use krust::broker::transactions::transaction::TransactionState::{
    CompleteAbort, CompleteCommit, Ongoing, PrepareAbort, PrepareCommit,
};
use krust::broker::transactions::transaction::{ProducerIdentity, Transaction, TransactionState};
use krust::ids::TopicPartition;
use krust::record::batch::{BatchBuilder, BatchFields, NewRecord};
use krust::record::control::EndTransactionMarker;
use krust::wire::Writer;

use crate::double::{NOW_MS, TestBroker, until};
use crate::records::TOPIC;
use crate::transactions::{
    FIRST_ID, ID, TRANSACTIONS, add, added, create_topics, ended, fixture, last_state, markers,
    producer, states, wait_until_complete,
};

pub fn restarted(fixture: TestBroker) -> TestBroker {
    let mut fixture = fixture.again();
    create_topics(&mut fixture);
    fixture
}

/// Appends a state of [`ID`] as a coordinator that then ended.
pub fn append(fixture: &TestBroker, now: &Transaction) {
    append_all(fixture, &[(ID.0, now)]);
}

fn append_all(fixture: &TestBroker, all: &[(&str, &Transaction)]) {
    let mut builder = BatchBuilder::new();
    for (id, now) in all {
        let (mut key, mut value) = (Writer::new(), Writer::new());
        write_key(id, &mut key);
        write_value(now, 0, &mut value);
        let (key, value) = (Some(key.buf.as_slice()), Some(value.buf.as_slice()));
        builder.add(&NewRecord { timestamp: NOW_MS, key, value, headers: &[] });
    }
    let batch = builder.to_bytes(&BatchFields::default()).unwrap();
    append_to(fixture, (TRANSACTIONS, ID.1), &batch);
}

fn append_to(fixture: &TestBroker, (topic, partition): (&str, i32), bytes: &[u8]) {
    let image = fixture.broker.image();
    let partition = image.topic(topic).unwrap().partition(partition).unwrap();
    partition.local.as_ref().unwrap().log.append_as_leader(bytes).unwrap();
}

fn state(state: TransactionState) -> Transaction {
    let partitions = [0, 1].map(|number| TopicPartition::new(TOPIC, number));
    Transaction {
        producer: ProducerIdentity { id: 44, epoch: 3 },
        previous_producer_id: -1,
        next_producer_id: -1,
        last_epoch: -1,
        timeout_ms: 60_000,
        state,
        partitions: partitions.into(),
        start_ms: NOW_MS - 10,
        last_update_ms: NOW_MS,
        client_version: Default::default(),
    }
}

#[test]
fn an_open_transaction_goes_on_after_a_restart() {
    let mut fixture = fixture();
    let mut conn = fixture.connect();
    let first = producer(&mut fixture, &mut conn, ID.0);
    added(&mut fixture, &mut conn, &add(3, ID.0, first, &[0]));
    let mut fixture = restarted(fixture);
    let mut conn = fixture.connect();
    until("never loaded", || added(&mut fixture, &mut conn, &add(3, ID.0, first, &[1])) == [0]);
    assert_eq!(ended(&mut fixture, &mut conn, (4, ID.0, first, true)).0, 0);
    wait_until_complete(&fixture);
    for partition in [0, 1] {
        assert_eq!(markers(&fixture, partition), [(FIRST_ID, 0, true)]);
    }
}

#[test]
fn a_decided_end_is_carried_out_after_a_restart() {
    for (prepared, complete) in [(PrepareCommit, CompleteCommit), (PrepareAbort, CompleteAbort)] {
        let fixture = fixture();
        append(&fixture, &state(prepared));
        let fixture = restarted(fixture);
        wait_until_complete(&fixture);
        assert_eq!(last_state(&fixture), Some(complete));
        for partition in [0, 1] {
            assert_eq!(markers(&fixture, partition), [(44, 3, prepared == PrepareCommit)]);
        }
    }
}

#[test]
fn a_partition_that_has_its_marker_gets_no_second_one() {
    let fixture = fixture();
    append(&fixture, &state(PrepareCommit));
    let marker = EndTransactionMarker {
        producer_id: 44,
        producer_epoch: 3,
        coordinator_epoch: 0,
        commit: true,
    };
    append_to(&fixture, (TOPIC, 1), &marker.to_batch(NOW_MS).unwrap());
    let fixture = restarted(fixture);
    wait_until_complete(&fixture);
    for partition in [0, 1] {
        assert_eq!(markers(&fixture, partition), [(44, 3, true)]);
    }
    let fixture = restarted(fixture);
    assert_eq!(markers(&fixture, 0), [(44, 3, true)]);
    assert_eq!(states(&fixture, ID.1).len(), 2);
}

#[test]
fn an_open_transaction_of_another_broker_ends_when_its_time_is_up() {
    let fixture = fixture();
    append(&fixture, &state(Ongoing));
    let fixture = restarted(fixture);
    fixture.clock.advance(60_000);
    until("never aborted", || {
        fixture.broker.abort_timed_out_transactions();
        last_state(&fixture) != Some(Ongoing)
    });
    wait_until_complete(&fixture);
    assert_eq!(markers(&fixture, 0), [(44, 4, false)]);
}
