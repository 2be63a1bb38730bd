//! The first batches of transactions (KIP-890): the coordinator confirms them, then they are
//! staged.
//!
//! A batch that begins a transaction in its partition is left out of the stage, and the log hands
//! out a guard. The coordinator says whether the partition belongs to the transaction, or adds it
//! (from v12 on). Then the batch is staged with the guard. A coordinator on this broker answers at
//! once, so that nothing waits. Else the request is delayed; the connection's later requests are
//! handled after it, and a worker stages the batch.
//! Threads: a network thread or a worker.

use std::sync::Arc;

use crate::broker::handlers::produce::append::{AppendRules, NotStaged, UnverifiedPartition};
use crate::broker::handlers::produce::long::LongProduce;
use crate::broker::handlers::produce::partition_result::{PartitionResult, named};
use crate::broker::handlers::produce::scratch::ProduceScratch;
use crate::broker::handlers::verify_or_add::{CoordinatorAnswers, VerifyOrAddRequest};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::{
    DelayedContext, DelayedOperation, OperationProgress, WorkerTask,
};
use crate::broker::state::image::ClusterImage;
use crate::broker::state::transactions::verify_or_add::VerifyOrAdd;
use crate::broker::state::waking::DelayedId;
use crate::protocol::ErrorCode;
use crate::protocol::produce::ProduceRequest;
use crate::storage::Verification;

/// The first version with TRANSACTION_ABORTABLE.
const ABORTABLE_FROM: i16 = 11;
/// The first version that adds the partition to the transaction. Each transaction of such a
/// producer has an epoch of its own.
pub(crate) const ADDS_FROM: i16 = 12;

/// A request that waits for the coordinator.
#[derive(Debug)]
pub(crate) struct DelayedVerification {
    pub(crate) produce: LongProduce,
    pub(crate) answers: Arc<CoordinatorAnswers>,
}

/// What is known of the transactions of a request before the coordinator is asked.
pub(crate) fn unverified(broker: &Broker, version: i16) -> Verification {
    if version >= ADDS_FROM || broker.settings.load().transactions.verifies_partitions {
        return Verification::Required;
    }
    Verification::NotRequired
}

/// Asks the coordinator for partitions. All must be of one producer.
pub(crate) fn verify_or_add(
    broker: &Broker,
    (message, version): (&ProduceRequest<'_>, i16),
    unverified: &[UnverifiedPartition],
) -> Arc<CoordinatorAnswers> {
    let Some(first) = unverified.first() else { return Arc::default() };
    let partitions = unverified.iter().map(|one| one.partition.clone());
    let request = VerifyOrAddRequest {
        transactional_id: message.transactional_id.unwrap_or_default(),
        producer: first.batch.producer,
        partitions: partitions.collect(),
        mode: if version >= ADDS_FROM { VerifyOrAdd::Add } else { VerifyOrAdd::Verify },
    };
    CoordinatorAnswers::begin(broker, request)
}

/// The code that a client gets for an answer of the coordinator. Clients retry
/// NOT_ENOUGH_REPLICAS without asking for metadata.
fn of_coordinator(answer: ErrorCode, version: i16) -> ErrorCode {
    match answer {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if version < ABORTABLE_FROM => ErrorCode::InvalidTxnState,
        ErrorCode::ConcurrentTransactions if version < ADDS_FROM => ErrorCode::NotEnoughReplicas,
        ErrorCode::NetworkException
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => ErrorCode::NotEnoughReplicas,
        code => code,
    }
}

impl ProduceScratch {
    /// Refuses the partitions whose batch is of another producer than the first one that must be
    /// verified: a transaction has one.
    pub(crate) fn refuse_other_producers(&mut self) {
        let Some(producer) = self.unverified.first().map(|first| first.batch.producer) else {
            return;
        };
        let results = &mut self.results;
        self.unverified.retain(|one| {
            let is_its = one.batch.producer == producer;
            if !is_its && let Some(result) = results.get_mut(one.at) {
                *result = PartitionResult::refused(ErrorCode::InvalidProducerIdMapping);
            }
            is_its
        });
    }

    /// Stages the partitions that the coordinator has confirmed, by its `codes`. The request's
    /// results begin at `start`. Those that take too long on this thread stay in `unverified`.
    pub(crate) fn confirm(
        &mut self,
        image: &ClusterImage,
        (rules, message, start): (&mut AppendRules, &ProduceRequest<'_>, usize),
        codes: &[ErrorCode],
    ) {
        let required = rules.verification;
        let mut answered = std::mem::take(&mut self.unverified).into_iter().zip(codes).peekable();
        let topics = message.topic_data.iter();
        let partitions =
            topics.flat_map(|topic| topic.partition_data.iter().map(move |data| (topic, data)));
        for (number, (topic, data)) in partitions.enumerate() {
            let is_it = |(one, _): &(UnverifiedPartition, &ErrorCode)| one.at == start + number;
            let Some((unverified, code)) = answered.next_if(is_it) else { continue };
            let guard = unverified.batch.guard;
            let has_own_epoch = rules.version >= ADDS_FROM;
            rules.verification = Verification::ConfirmedBy { guard, has_own_epoch };
            let found = named(topic, rules.version).find(image);
            let result = match (code, found) {
                (ErrorCode::None, Ok(found)) => rules.partition(found, data, &mut self.converted),
                (ErrorCode::None, Err(error)) => Ok(PartitionResult::refused(error)),
                (code, _) => Ok(PartitionResult::refused(of_coordinator(*code, rules.version))),
            };
            let result = match result {
                Ok(result) => result,
                Err(NotStaged::Unverified(_)) => {
                    PartitionResult::refused(ErrorCode::InvalidTxnState)
                }
                Err(NotStaged::TakesLong) => {
                    self.unverified.push(unverified);
                    continue;
                }
            };
            self.commit_later(&result);
            if let Some(place) = self.results.get_mut(unverified.at) {
                *place = result;
            }
        }
        rules.verification = required;
    }
}

impl DelayedOperation for DelayedVerification {
    fn try_complete(
        mut self: Box<Self>,
        _: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        if self.answers.codes().is_none() {
            if !is_late {
                return OperationProgress::Waits(self);
            }
            let count = self.produce.unverified.len();
            self.answers = CoordinatorAnswers::refused(count, ErrorCode::NetworkException);
        }
        let Self { produce, answers } = *self;
        OperationProgress::Works(WorkerTask {
            account: None,
            run: Box::new(move |broker| produce.run(broker, Some(answers))),
        })
    }

    fn begin(&mut self, thread: usize, id: DelayedId) -> bool {
        self.answers.wait(thread, id)
    }

    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {}
}
