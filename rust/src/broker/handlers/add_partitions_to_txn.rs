//! AddPartitionsToTxn (24), v0-5: adds partitions to a producer's transaction.
//! Behaviour: the first partition begins the transaction. A partition that does not exist is
//!     UNKNOWN_TOPIC_OR_PARTITION (3); then none of its transaction is added, and the others are
//!     OPERATION_NOT_ATTEMPTED (55). Else all partitions of a transaction get the same answer. It
//!     leaves when they are committed in the log.
//! Errors of a transaction: INVALID_REQUEST (42): an empty transactional id.
//!     INVALID_PRODUCER_ID_MAPPING (49): another producer id. PRODUCER_FENCED (90): another epoch.
//!     CONCURRENT_TRANSACTIONS (51): markers of the last transaction are being written.
//!     COORDINATOR_LOAD_IN_PROGRESS (14), COORDINATOR_NOT_AVAILABLE (15), NOT_COORDINATOR (16).
//! Authorization: a client needs Write on the transactional id, else
//!     TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), and on the topics, else
//!     TOPIC_AUTHORIZATION_FAILED (29). From v4 on ClusterAction, else the whole request is
//!     CLUSTER_AUTHORIZATION_FAILED (31).
//! Verification: a leader that asks whether partitions belong to a transaction (`verify_only`) gets
//!     TRANSACTION_ABORTABLE (120) for those that do not.
//! Version notes: v0-3 are a client's, for one transaction. Before v2 PRODUCER_FENCED is sent as
//!     INVALID_PRODUCER_EPOCH (47). From v4 on a request has many transactions, and each may be
//!     `verify_only`, which is for brokers: CLUSTER_AUTHORIZATION_FAILED (31) on another listener.

use std::sync::Arc;

use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::handlers::group_reply;
use crate::broker::requests::access::Access;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::{ClusterAction, Write};
use crate::broker::state::acls::ResourceType::{Topic, TransactionalId};
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::image::ClusterImage;
use crate::broker::transactions::step::{Event, Outcome};
use crate::broker::transactions::transaction::ProducerIdentity;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult, AddPartitionsToTxnTransaction,
    V3AndBelowPartitionResult, V3AndBelowTopicResult,
};
use crate::wire::Reader;

/// The first version with PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;
/// The first version with many transactions.
const MANY_FROM: i16 = 4;

/// One transaction of a request.
struct TransactionPart<'f> {
    id: &'f str,
    producer: ProducerIdentity,
    verify_only: bool,
    /// Each topic with its partitions, in the request's order.
    topics: Vec<(&'f str, Vec<i32>)>,
}

/// A code for each partition of a transaction, in the request's order.
type Codes = Vec<ErrorCode>;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let version = call.version();
    let request = AddPartitionsToTxnRequest::decode(&mut call.reader(), version)?;
    let parts = parts(request, version);
    let access = call.access();
    let is_verified = parts.iter().any(|part| part.verify_only);
    if is_verified && !call.connection.is_brokers_own
        || version >= MANY_FROM && !access.check_cluster(ClusterAction)
    {
        let refused = ErrorCode::ClusterAuthorizationFailed;
        let response =
            AddPartitionsToTxnResponse { error_code: refused.code(), ..Default::default() };
        call.reply(|writer, version| response.encode(writer, version));
        return Ok(Flow::Go);
    }
    let image = call.image();
    let mut appended = Vec::new();
    let run = |part: &TransactionPart<'_>| match part.refused(&access, version) {
        Some(codes) => codes,
        None => part.run(call.broker, &image, &mut appended),
    };
    let codes: Vec<Codes> = parts.iter().map(run).collect();
    let response = respond(&parts, codes, version);
    group_reply::answer(call, appended, refuse, |writer, version| {
        response.encode(writer, version);
    })
}

/// The transactions of a request; one that is named twice is taken once.
fn parts<'f>(request: AddPartitionsToTxnRequest<'f>, version: i16) -> Vec<TransactionPart<'f>> {
    if version < MANY_FROM {
        let topics = request.v3_and_below_topics.into_iter();
        return vec![TransactionPart {
            id: request.v3_and_below_transactional_id,
            producer: ProducerIdentity {
                id: request.v3_and_below_producer_id,
                epoch: request.v3_and_below_producer_epoch,
            },
            verify_only: false,
            topics: topics.map(|topic| (topic.name, topic.partitions)).collect(),
        }];
    }
    let mut first = FirstOnly::default();
    let transactions = request.transactions.into_iter();
    let named = transactions.filter(|one| first.passes(one.transactional_id));
    let part = |one: AddPartitionsToTxnTransaction<'f>| {
        let topics = one.topics.into_iter();
        TransactionPart {
            id: one.transactional_id,
            producer: ProducerIdentity { id: one.producer_id, epoch: one.producer_epoch },
            verify_only: one.verify_only,
            topics: topics.map(|topic| (topic.name, topic.partitions)).collect(),
        }
    };
    named.map(part).collect()
}

impl TransactionPart<'_> {
    /// The codes if the client may not do what a client asks for.
    fn refused(&self, access: &Access, version: i16) -> Option<Codes> {
        if version >= MANY_FROM {
            return None;
        }
        if !access.check(Write, TransactionalId, self.id) {
            let refused = ErrorCode::TransactionalIdAuthorizationFailed;
            return Some(vec![refused; self.partition_count()]);
        }
        let codes = self.topics.iter().flat_map(|(topic, partitions)| {
            let code = match access.check(Write, Topic, topic) {
                true => ErrorCode::OperationNotAttempted,
                false => ErrorCode::TopicAuthorizationFailed,
            };
            std::iter::repeat_n(code, partitions.len())
        });
        let codes: Codes = codes.collect();
        codes.contains(&ErrorCode::TopicAuthorizationFailed).then_some(codes)
    }

    /// Adds or verifies the partitions. `appended` gets what the answer waits for.
    fn run(&self, broker: &Broker, image: &ClusterImage, appended: &mut Vec<AppendedAt>) -> Codes {
        let found = match self.partitions(image) {
            Ok(found) => found,
            Err(codes) => return codes,
        };
        let all = |error| vec![error; found.len()];
        if self.id.is_empty() {
            return all(ErrorCode::InvalidRequest);
        }
        let (producer, partitions) = (self.producer, found.as_slice());
        let event = match self.verify_only {
            true => Event::Verify { producer, partitions },
            false => Event::AddPartitions { producer, partitions },
        };
        match broker.step_transaction(self.id, &event) {
            Ok(applied) => {
                appended.push(applied.at);
                match applied.outcome {
                    Outcome::Verified(codes) => codes,
                    _ => all(ErrorCode::None),
                }
            }
            Err(error) => all(error),
        }
    }

    /// The partitions. Errors: some do not exist.
    fn partitions(&self, image: &ClusterImage) -> Result<Vec<TopicPartition>, Codes> {
        let mut found = Vec::new();
        for (name, partitions) in &self.topics {
            let topic = image.topic(name);
            found.extend(partitions.iter().map(|partition| {
                let topic = topic.filter(|topic| topic.partition(*partition).is_some())?;
                Some(TopicPartition::new(Arc::clone(&topic.name), *partition))
            }));
        }
        let code = |one: &Option<_>| match one {
            Some(_) => ErrorCode::OperationNotAttempted,
            None => ErrorCode::UnknownTopicOrPartition,
        };
        if found.iter().any(Option::is_none) {
            return Err(found.iter().map(code).collect());
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn partition_count(&self) -> usize {
        self.topics.iter().map(|(_, partitions)| partitions.len()).sum()
    }
}

/// The reply if nothing was committed.
fn refuse(head: Head, body: &[u8], error: ErrorCode) -> Output {
    let request = AddPartitionsToTxnRequest::decode(&mut Reader::new(body), head.version);
    let parts = parts(request.unwrap_or_default(), head.version);
    let codes = parts.iter().map(|part| vec![error; part.partition_count()]).collect();
    let response = respond(&parts, codes, head.version);
    head.output(|writer, version| response.encode(writer, version))
}

fn respond<'f>(
    parts: &[TransactionPart<'f>],
    codes: Vec<Codes>,
    version: i16,
) -> AddPartitionsToTxnResponse<'f> {
    let sent = |code: ErrorCode| match code {
        ErrorCode::ProducerFenced if version < FENCED_FROM => ErrorCode::InvalidProducerEpoch,
        code => code,
    };
    let mut response = AddPartitionsToTxnResponse::default();
    for (part, codes) in parts.iter().zip(codes) {
        let mut codes = codes.into_iter().map(sent);
        let mut topics = Vec::with_capacity(part.topics.len());
        for (name, partitions) in &part.topics {
            let results: Vec<(i32, i16)> =
                partitions.iter().copied().zip(codes.by_ref().map(ErrorCode::code)).collect();
            topics.push((*name, results));
        }
        if version < MANY_FROM {
            response.results_by_topic_v3_and_below = topics.into_iter().map(old_topic).collect();
        } else {
            let topic_results = topics.into_iter().map(topic_result).collect();
            let transactional_id = part.id;
            let result = AddPartitionsToTxnResult { transactional_id, topic_results };
            response.results_by_transaction.push(result);
        }
    }
    response
}

fn topic_result<'f>(
    (name, results): (&'f str, Vec<(i32, i16)>),
) -> AddPartitionsToTxnTopicResult<'f> {
    let result = |(partition_index, partition_error_code)| AddPartitionsToTxnPartitionResult {
        partition_index,
        partition_error_code,
    };
    AddPartitionsToTxnTopicResult {
        name,
        results_by_partition: results.into_iter().map(result).collect(),
    }
}

fn old_topic<'f>((name, results): (&'f str, Vec<(i32, i16)>)) -> V3AndBelowTopicResult<'f> {
    let result = |(partition_index, partition_error_code)| V3AndBelowPartitionResult {
        partition_index,
        partition_error_code,
    };
    V3AndBelowTopicResult { name, results_by_partition: results.into_iter().map(result).collect() }
}
