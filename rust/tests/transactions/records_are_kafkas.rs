//! Keys and values of `__transaction_state`, beside bytes in Kafka's layout.

use krust::broker::transactions::records::{
    TopicNames, TransactionRecord, read, value_version, write_key, write_value,
};
use krust::broker::transactions::transaction::{
    ClientTransactionVersion, ProducerIdentity, Transaction, TransactionState,
};
use krust::ids::TopicPartition;
use krust::wire::Writer;

/// The key of `id`.
const KEY: &[u8] = b"\x00\x00\x00\x02id";
/// A value of version 0: an open transaction of three partitions.
const KAFKAS: &[u8] = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x03\x00\x00\xea\x60\x01\
    \x00\x00\x00\x02\x00\x01a\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x05\
    \x00\x01b\x00\x00\x00\x01\x00\x00\x00\x01\
    \x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x03\xe8";

fn ongoing() -> Transaction {
    let partitions = [("a", 0), ("a", 5), ("b", 1)];
    Transaction {
        producer: ProducerIdentity { id: 7, epoch: 3 },
        previous_producer_id: -1,
        next_producer_id: -1,
        last_epoch: -1,
        timeout_ms: 60_000,
        state: TransactionState::Ongoing,
        partitions: partitions.map(|(topic, number)| TopicPartition::new(topic, number)).into(),
        start_ms: 1000,
        last_update_ms: 1024,
        client_version: ClientTransactionVersion::V0,
    }
}

fn written(transaction: &Transaction, version: i16) -> Vec<u8> {
    let mut writer = Writer::new();
    write_value(transaction, version, &mut writer);
    writer.buf
}

#[test]
fn a_value_of_version_0_has_kafkas_bytes() {
    assert_eq!(written(&ongoing(), 0), KAFKAS);
    let mut key = Writer::new();
    write_key("id", &mut key);
    assert_eq!(key.buf, KEY);
    let mut topics = TopicNames::default();
    let expected = TransactionRecord::Updated("id", ongoing());
    assert_eq!(read(Some(KEY), Some(KAFKAS), &mut topics).unwrap(), expected);
}

#[test]
fn a_value_of_version_1_keeps_the_ids_before_and_after_and_the_clients_version() {
    let before = Transaction {
        previous_producer_id: 5,
        next_producer_id: 9,
        client_version: ClientTransactionVersion::V2,
        ..ongoing()
    };
    let mut topics = TopicNames::default();
    for (feature, kept) in [(2, before.clone()), (1, before.clone()), (0, ongoing())] {
        let value = written(&before, value_version(feature));
        let found = read(Some(KEY), Some(&value), &mut topics).unwrap();
        assert_eq!(found, TransactionRecord::Updated("id", kept));
    }
}

#[test]
fn every_state_comes_back_and_a_dead_or_empty_value_removes_the_id() {
    let mut topics = TopicNames::default();
    for state in TransactionState::ALL {
        let mut before = Transaction { state, ..ongoing() };
        if state == TransactionState::Empty {
            before.partitions.clear();
        }
        let value = written(&before, 1);
        let expected = match state {
            TransactionState::Dead => TransactionRecord::Removed("id"),
            _ => TransactionRecord::Updated("id", before),
        };
        assert_eq!(read(Some(KEY), Some(&value), &mut topics).unwrap(), expected);
    }
    let removed = read(Some(KEY), None, &mut topics).unwrap();
    assert_eq!(removed, TransactionRecord::Removed("id"));
}

#[test]
fn records_of_later_versions_are_passed_over_and_broken_ones_are_errors() {
    let mut topics = TopicNames::default();
    let later = read(Some(b"\x00\x01\x00\x02id"), Some(KAFKAS), &mut topics).unwrap();
    assert_eq!(later, TransactionRecord::Other);
    let later = read(Some(KEY), Some(b"\x00\x02anything"), &mut topics).unwrap();
    assert_eq!(later, TransactionRecord::Other);
    for cut in 0..KAFKAS.len() {
        assert!(read(Some(KEY), KAFKAS.get(..cut), &mut topics).is_err(), "{cut}");
    }
    assert!(read(None, None, &mut topics).is_err());
}

#[test]
fn transactions_of_one_topic_share_its_name() {
    let mut topics = TopicNames::default();
    let mut names = Vec::new();
    for _ in 0..2 {
        let found = read(Some(KEY), Some(KAFKAS), &mut topics).unwrap();
        let TransactionRecord::Updated(_, transaction) = found else { panic!("{found:?}") };
        names.extend(transaction.partitions.into_iter().map(|it| it.topic));
    }
    assert!(std::sync::Arc::ptr_eq(&names[0], &names[1]));
    assert!(std::sync::Arc::ptr_eq(&names[0], &names[3]));
}
