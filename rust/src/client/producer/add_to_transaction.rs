//! What a transaction gets besides records: its partitions, before version 2, and the offsets of a
//! group (KIP-447).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::Producer;
use super::coordinator::{CoordinatorRequest, CoordinatorType};
use super::transaction::{TransactionManager, TransactionState};
use crate::client::metadata::PartitionKey;
use crate::client::options::Wait;
use crate::client::{Error, Result};
use crate::protocol::add_offsets_to_txn::{self, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use crate::protocol::add_partitions_to_txn::{
    self, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, V3AndBelowTopic,
};
use crate::protocol::txn_offset_commit::{
    self, TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
};
use crate::wire::Writer;

/// Not attempted, because another partition of the request was refused.
const OPERATION_NOT_ATTEMPTED: i16 = 55;

/// Offsets to commit for a group in a transaction.
#[derive(Clone, Debug, Default)]
pub struct GroupOffsets {
    /// The group.
    pub group_id: String,
    /// The generation of the member that read the records; -1: there is no member.
    pub generation: i32,
    /// Its member id; empty: there is no member.
    pub member_id: String,
    /// Its `group.instance.id`.
    pub instance_id: Option<String>,
    /// Topic, partition, and the offset of the next record to read.
    pub offsets: Vec<(String, i32, i64)>,
}

impl Producer {
    /// Commits offsets of a group when the transaction commits.
    pub fn send_offsets(&mut self, group: &GroupOffsets, wait: &Wait) -> Result<()> {
        let identity = self.transaction_identity()?;
        let Some(manager) = self.transaction.as_mut() else { return Ok(()) };
        if manager.state != TransactionState::Open {
            return Err(Error::Invalid("the transaction is being ended".to_owned()));
        }
        let sent = manager.send_offsets(identity, group, wait);
        sent.map_err(|error| match error {
            // Without these offsets the transaction must not be committed.
            Error::Interrupted | Error::Invalid(_) => error,
            error => manager.fail(error, true),
        })
    }

    /// Adds the partitions of queued batches to the transaction. Returns whether batches may be
    /// sent now.
    pub(super) fn add_partitions(&mut self, wait: &Wait) -> Result<bool> {
        let Some(manager) = self.transaction.as_mut() else { return Ok(true) };
        if manager.is_v2 {
            return Ok(true);
        }
        let queued = self.accumulator.iter().filter(|(_, batches)| !batches.queue.is_empty());
        let missing: Vec<PartitionKey> = queued
            .map(|(key, _)| key)
            .filter(|key| !manager.partitions.contains(*key))
            .cloned()
            .collect();
        let Some(identity) = self.identity.filter(|_| !missing.is_empty()) else {
            return Ok(true);
        };
        let wait = wait.at_most(self.cluster.options().request_timeout);
        match manager.add_partitions(identity, missing, &wait) {
            Ok(()) => Ok(true),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) if error.retriable() => {
                // An answer may be lost, so the coordinator may have the partitions.
                manager.needs_epoch = true;
                self.retry_at = Some(Instant::now() + self.cluster.options().retry_backoff);
                Ok(false)
            }
            Err(error) => {
                manager.fail(error.clone(), true);
                self.fail_transaction(&error);
                Ok(false)
            }
        }
    }
}

impl TransactionManager {
    fn add_partitions(
        &mut self,
        identity: (i64, i16),
        missing: Vec<PartitionKey>,
        wait: &Wait,
    ) -> Result<()> {
        let Self { id, coordinators, .. } = self;
        let mut topics: BTreeMap<&Arc<str>, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in &missing {
            topics.entry(topic).or_default().push(*partition);
        }
        let topics =
            topics.into_iter().map(|(name, partitions)| V3AndBelowTopic { name, partitions });
        let body = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: id,
            v3_and_below_producer_id: identity.0,
            v3_and_below_producer_epoch: identity.1,
            v3_and_below_topics: topics.collect(),
            ..Default::default()
        };
        let request = CoordinatorRequest {
            name: "AddPartitionsToTxn",
            api: add_partitions_to_txn::KEY,
            last: 3, // later versions are for brokers
            encode: &|writer: &mut Writer, version: i16| body.encode(writer, version),
            decode: &|reply| {
                let answer = AddPartitionsToTxnResponse::decode(&mut reply.body(), reply.version)?;
                let codes = answer
                    .results_by_topic_v3_and_below
                    .iter()
                    .flat_map(|topic| &topic.results_by_partition)
                    .map(|partition| partition.partition_error_code);
                Ok((worst(codes), ()))
            },
        };
        self.started = true;
        coordinators.call((CoordinatorType::Transaction, id), &request, wait)?;
        self.partitions.extend(missing);
        Ok(())
    }

    fn send_offsets(
        &mut self,
        identity: (i64, i16),
        group: &GroupOffsets,
        wait: &Wait,
    ) -> Result<()> {
        self.started = true;
        if !self.is_v2 && !self.groups.contains(&group.group_id) {
            self.add_offsets(identity, &group.group_id, wait)?;
            self.groups.insert(group.group_id.clone());
        }
        let Self { id, coordinators, is_v2, .. } = self;
        let body = TxnOffsetCommitRequest {
            transactional_id: id,
            group_id: &group.group_id,
            producer_id: identity.0,
            producer_epoch: identity.1,
            generation_id: group.generation,
            member_id: &group.member_id,
            group_instance_id: group.instance_id.as_deref(),
            topics: by_topic(&group.offsets),
        };
        let request = CoordinatorRequest {
            name: "TxnOffsetCommit",
            api: txn_offset_commit::KEY,
            last: if *is_v2 { 5 } else { 4 },
            encode: &|writer: &mut Writer, version: i16| body.encode(writer, version),
            decode: &|reply| {
                let answer = TxnOffsetCommitResponse::decode(&mut reply.body(), reply.version)?;
                let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
                Ok((worst(partitions.map(|partition| partition.error_code)), ()))
            },
        };
        coordinators.call((CoordinatorType::Group, &group.group_id), &request, wait)
    }

    fn add_offsets(&mut self, identity: (i64, i16), group_id: &str, wait: &Wait) -> Result<()> {
        let Self { id, coordinators, .. } = self;
        let body = AddOffsetsToTxnRequest {
            transactional_id: id,
            producer_id: identity.0,
            producer_epoch: identity.1,
            group_id,
        };
        let request = CoordinatorRequest {
            name: "AddOffsetsToTxn",
            api: add_offsets_to_txn::KEY,
            last: 4,
            encode: &|writer: &mut Writer, version: i16| body.encode(writer, version),
            decode: &|reply| {
                let answer = AddOffsetsToTxnResponse::decode(&mut reply.body(), reply.version)?;
                Ok((answer.error_code, ()))
            },
        };
        coordinators.call((CoordinatorType::Transaction, id), &request, wait)
    }
}

fn by_topic(offsets: &[(String, i32, i64)]) -> Vec<TxnOffsetCommitRequestTopic<'_>> {
    let mut topics: BTreeMap<&str, Vec<TxnOffsetCommitRequestPartition<'_>>> = BTreeMap::new();
    for (topic, partition, offset) in offsets {
        topics.entry(topic).or_default().push(TxnOffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: *offset,
            committed_leader_epoch: -1,
            committed_metadata: Some(""),
        });
    }
    topics
        .into_iter()
        .map(|(name, partitions)| TxnOffsetCommitRequestTopic { name, partitions })
        .collect()
}

/// The code that decides what happens next: an error, not "not attempted because of another's".
fn worst(codes: impl Iterator<Item = i16>) -> i16 {
    let mut found = 0;
    for code in codes.filter(|code| *code != 0) {
        if found == 0 || found == OPERATION_NOT_ATTEMPTED {
            found = code;
        }
    }
    found
}
