//! Partitions that a coordinator adds to a transaction, or looks for in it, as AddPartitionsToTxn
//! (24) in its form for brokers.
//!
//! A message names a transactional id once, because the answer names only the id. So questions of
//! one producer about partitions leave as one, and additions leave one after the other.
//! Version notes: brokers ask in v4 and v5. A peer without them cannot look for partitions: it is
//!     taken to have them, as Kafka does, and adds none.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::PeerApi;
use super::thread::OpenPeer;
use crate::broker::inter_broker::PeerPartitions;
use crate::client::connection::ApiRequest;
use crate::client::error::Result;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction, KEY,
};
use crate::wire::Writer;

/// The first version in which brokers ask.
const FIRST_VERSION: i16 = 4;
/// The most requests in a message.
const BATCH_MAX: usize = 1000;

impl PeerApi for PeerPartitions {
    const NAME: &'static str = "txn-partitions";

    fn take_batch(queue: &mut VecDeque<Self>) -> Vec<Self> {
        let mut asked: HashMap<Arc<str>, (bool, i64, i16)> = HashMap::new();
        let mut batch = Vec::new();
        let mut left = VecDeque::new();
        while let Some(request) = queue.pop_front() {
            let who = (request.verify_only, request.producer_id, request.producer_epoch);
            let fits = batch.len() < BATCH_MAX
                && match asked.entry(Arc::clone(&request.transactional_id)) {
                    Entry::Vacant(entry) => *entry.insert(who) == who,
                    Entry::Occupied(entry) => request.verify_only && *entry.get() == who,
                };
            if fits { batch.push(request) } else { left.push_back(request) }
        }
        *queue = left;
        batch
    }

    fn ask(batch: &mut Vec<Self>, peer: &mut OpenPeer<'_>) -> Result<()> {
        let version = peer.connection.versions().pick(KEY, i16::MAX);
        let Some(version) = version.filter(|version| *version >= FIRST_VERSION) else {
            for request in batch.drain(..) {
                let code = match request.verify_only {
                    true => ErrorCode::None,
                    false => ErrorCode::UnsupportedVersion,
                };
                request.fail(code);
            }
            return Ok(());
        };
        let transactions = transactions(batch);
        let message = AddPartitionsToTxnRequest { transactions, ..Default::default() };
        let encode = |writer: &mut Writer| message.encode(writer, version);
        let reply = peer.call(&ApiRequest { key: KEY, version, encode: &encode })?;
        drop(message);
        let response = AddPartitionsToTxnResponse::decode(&mut reply.body(), version)
            .map_err(|error| peer.connection.bad(error))?;
        if response.error_code != 0 {
            let code = match ErrorCode::from(response.error_code) {
                // A coordinator that does not take this broker for one.
                ErrorCode::ClusterAuthorizationFailed => ErrorCode::InvalidTxnState,
                code => code,
            };
            batch.drain(..).for_each(|request| request.fail(code));
            return Ok(());
        }
        let mut codes = HashMap::new();
        for transaction in &response.results_by_transaction {
            for topic in &transaction.topic_results {
                for partition in &topic.results_by_partition {
                    let code = ErrorCode::from(partition.partition_error_code);
                    let index = partition.partition_index;
                    codes.insert((transaction.transactional_id, topic.name, index), code);
                }
            }
        }
        for request in batch.drain(..) {
            let code = |it: &TopicPartition| {
                let key = (&*request.transactional_id, &*it.topic, it.partition);
                codes.get(&key).copied().unwrap_or(ErrorCode::NetworkException)
            };
            let codes = request.partitions.iter().map(code).collect();
            (request.then)(codes);
        }
        Ok(())
    }

    fn fail(self, error: ErrorCode) {
        (self.then)(vec![error; self.partitions.len()]);
    }
}

fn transactions(batch: &[PeerPartitions]) -> Vec<AddPartitionsToTxnTransaction<'_>> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut transactions: Vec<AddPartitionsToTxnTransaction<'_>> = Vec::new();
    for request in batch {
        let place = *places.entry(&request.transactional_id).or_insert(transactions.len());
        if place == transactions.len() {
            transactions.push(AddPartitionsToTxnTransaction {
                transactional_id: &request.transactional_id,
                producer_id: request.producer_id,
                producer_epoch: request.producer_epoch,
                verify_only: request.verify_only,
                topics: Vec::new(),
            });
        }
        let Some(transaction) = transactions.get_mut(place) else { continue };
        for TopicPartition { topic, partition } in &request.partitions {
            let topics = &mut transaction.topics;
            match topics.iter_mut().find(|it| *it.name == **topic) {
                Some(known) if known.partitions.contains(partition) => {}
                Some(known) => known.partitions.push(*partition),
                None => topics
                    .push(AddPartitionsToTxnTopic { name: topic, partitions: vec![*partition] }),
            }
        }
    }
    transactions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str, verify_only: bool, partition: i32) -> PeerPartitions {
        PeerPartitions {
            transactional_id: id.into(),
            producer_id: 1,
            producer_epoch: 0,
            verify_only,
            partitions: vec![TopicPartition::new("orders", partition)],
            then: Box::new(|_| {}),
        }
    }

    #[test]
    fn questions_of_one_producer_leave_as_one_and_additions_one_by_one() {
        let mut queue = VecDeque::from([
            request("a", true, 0),
            request("b", false, 0),
            request("a", true, 1),
            request("a", true, 0),
            request("b", false, 1),
            request("a", false, 2),
        ]);
        let batch = PeerPartitions::take_batch(&mut queue);
        let named = transactions(&batch);
        let named: Vec<_> =
            named.iter().map(|it| (it.transactional_id, &*it.topics[0].partitions)).collect();
        assert_eq!(named, [("a", [0, 1].as_slice()), ("b", &[0])]);
        assert_eq!(queue.len(), 2);
    }
}
