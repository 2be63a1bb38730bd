//! The records of `__transaction_state` in Kafka's layout: the key is a transactional id, the value
//! its producer and its present or last transaction. A record without a value is a tombstone.
//!
//! Value version 0 is written while the finalized feature `transaction.version` is 0, else version
//! 1, which adds the ids before and after and the client's version.
//! Not promised: that versions later than Kafka 4.3's are understood.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::broker::transactions::transaction::{
    ClientTransactionVersion, NO_PRODUCER_EPOCH, ProducerIdentity, Transaction, TransactionState,
};
use crate::ids::TopicPartition;
use crate::protocol::transaction_log_key::TransactionLogKey;
use crate::protocol::transaction_log_value::{PartitionsSchema, TransactionLogValue};
use crate::wire::{DecodeError, Writer};

const KEY: i16 = 0;

/// The names of topics, each stored once, because many transactions have the same topics.
#[derive(Debug, Default)]
pub struct TopicNames(HashSet<Arc<str>>);

impl TopicNames {
    /// The name, as it is stored.
    pub fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(name) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = name.into();
        self.0.insert(Arc::clone(&shared));
        shared
    }
}

/// A record of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionRecord<'a> {
    /// The id is in this state.
    Updated(&'a str, Transaction),
    /// The id is forgotten.
    Removed(&'a str),
    /// A record of a later version.
    Other,
}

/// The version of values while the finalized feature `transaction.version` is `feature`.
pub fn value_version(feature: i16) -> i16 {
    i16::from(feature > 0)
}

/// Appends the key of a transactional id.
pub fn write_key(transactional_id: &str, writer: &mut Writer) {
    TransactionLogKey { transactional_id }.write(KEY, writer);
}

/// Appends the value.
pub fn write_value(transaction: &Transaction, version: i16, writer: &mut Writer) {
    let mut partitions: Vec<PartitionsSchema<'_>> = Vec::new();
    for TopicPartition { topic, partition } in &transaction.partitions {
        match partitions.last_mut() {
            Some(last) if *last.topic == **topic => last.partition_ids.push(*partition),
            _ => partitions.push(PartitionsSchema { topic, partition_ids: vec![*partition] }),
        }
    }
    let is_empty = transaction.state == TransactionState::Empty;
    let value = TransactionLogValue {
        producer_id: transaction.producer.id,
        producer_epoch: transaction.producer.epoch,
        transaction_timeout_ms: transaction.timeout_ms,
        transaction_status: transaction.state as i8,
        transaction_partitions: (!is_empty).then_some(partitions),
        transaction_last_update_timestamp_ms: transaction.last_update_ms,
        transaction_start_timestamp_ms: transaction.start_ms,
        previous_producer_id: transaction.previous_producer_id,
        next_producer_id: transaction.next_producer_id,
        client_transaction_version: transaction.client_version as i16,
        ..TransactionLogValue::default()
    };
    value.write(version, writer);
}

/// Reads a record. Errors: the key or the value does not have the layout of its version, or the
/// state is unknown.
pub fn read<'a>(
    key: Option<&'a [u8]>,
    value: Option<&[u8]>,
    topics: &mut TopicNames,
) -> Result<TransactionRecord<'a>, DecodeError> {
    let Some(key) = TransactionLogKey::read(key.unwrap_or_default())? else {
        return Ok(TransactionRecord::Other);
    };
    let id = key.transactional_id;
    let Some(value) = value else { return Ok(TransactionRecord::Removed(id)) };
    let Some(value) = TransactionLogValue::read(value)? else {
        return Ok(TransactionRecord::Other);
    };
    match TransactionState::from_number(value.transaction_status) {
        None => Ok(TransactionRecord::Other),
        Some(TransactionState::Dead) => Ok(TransactionRecord::Removed(id)),
        Some(state) => Ok(TransactionRecord::Updated(id, transaction(&value, state, topics))),
    }
}

fn transaction(
    value: &TransactionLogValue<'_>,
    state: TransactionState,
    topics: &mut TopicNames,
) -> Transaction {
    let mut partitions = BTreeSet::new();
    for PartitionsSchema { topic, partition_ids } in value.transaction_partitions.iter().flatten() {
        let topic = topics.shared(topic);
        let each = partition_ids.iter().map(|id| TopicPartition::new(Arc::clone(&topic), *id));
        partitions.extend(each);
    }
    Transaction {
        producer: ProducerIdentity { id: value.producer_id, epoch: value.producer_epoch },
        previous_producer_id: value.previous_producer_id,
        next_producer_id: value.next_producer_id,
        last_epoch: NO_PRODUCER_EPOCH,
        timeout_ms: value.transaction_timeout_ms,
        state,
        partitions,
        start_ms: value.transaction_start_timestamp_ms,
        last_update_ms: value.transaction_last_update_timestamp_ms,
        client_version: ClientTransactionVersion::from_number(value.client_transaction_version),
    }
}
