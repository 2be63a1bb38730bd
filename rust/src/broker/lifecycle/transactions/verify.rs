//! Asks the coordinator of a transaction for partitions, wherever it is.
//!
//! Threads: any. The answer may come before [`Broker::verify_or_add_partitions`] returns, or later
//! on any thread.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::state::coordinator::shards::partition_for;
use crate::broker::state::image::PeerAddress;
use crate::broker::state::inter_broker::{InterBroker, PeerPartitions};
use crate::broker::state::transactions::shard::TOPIC;
use crate::broker::state::transactions::verify_or_add::VerifyOrAdd;
use crate::broker::transactions::step::{Event, Outcome};
use crate::broker::transactions::transaction::ProducerIdentity;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;

/// Takes the coordinator's answer. It must not block.
pub(crate) type VerifyOrAddCallback = Box<dyn FnOnce(&Broker, Result<(), ErrorCode>) + Send>;

impl Broker {
    /// Has the coordinator verify or add partitions of a producer's transaction, and calls `then`
    /// with its answer once the state that it was made from is committed.
    pub(crate) fn verify_or_add_partitions(
        &self,
        transactional_id: &str,
        producer: ProducerIdentity,
        (partitions, mode): (&[TopicPartition], VerifyOrAdd),
        then: VerifyOrAddCallback,
    ) {
        if let Some((address, threads)) = self.coordinator_elsewhere(transactional_id) {
            let me = self.me.clone();
            let then = move |codes: Vec<ErrorCode>| {
                if let Some(broker) = me.upgrade() {
                    then(&broker, first_error(codes));
                }
            };
            return threads.add_partitions(
                &address,
                PeerPartitions {
                    transactional_id: transactional_id.into(),
                    producer_id: producer.id,
                    producer_epoch: producer.epoch,
                    verify_only: mode == VerifyOrAdd::Verify,
                    partitions: partitions.to_vec(),
                    then: Box::new(then),
                },
            );
        }
        let event = match mode {
            VerifyOrAdd::Verify => Event::Verify { producer, partitions },
            VerifyOrAdd::Add => Event::AddPartitions { producer, partitions },
        };
        let applied = match self.step_transaction(transactional_id, &event) {
            Ok(applied) => applied,
            Err(error) => return then(self, Err(error)),
        };
        let answer = match applied.outcome {
            Outcome::Verified(codes) => first_error(codes),
            _ => Ok(()),
        };
        let me = self.me.clone();
        let callback = move |outcome: Result<(), ErrorCode>| {
            if let Some(broker) = me.upgrade() {
                then(&broker, outcome.and(answer));
            }
        };
        self.on_commit(&applied.at, Box::new(callback));
    }

    /// The coordinator of a transactional id and the threads that ask it. `None`: it is this
    /// broker, or it cannot be asked now.
    fn coordinator_elsewhere(&self, id: &str) -> Option<(PeerAddress, &Arc<dyn InterBroker>)> {
        let image = self.image.load();
        let partitions = &image.topic(TOPIC)?.partitions;
        let partition = partitions.get(partition_for(id, partitions.len()))?;
        self.peer(partition.state.leader)
    }
}

fn first_error(codes: Vec<ErrorCode>) -> Result<(), ErrorCode> {
    codes.into_iter().find(|code| *code != ErrorCode::None).map_or(Ok(()), Err)
}
