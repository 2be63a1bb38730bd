//! DescribeTransactions (65), v0: producer, state and partitions of transactional ids.
//! Behaviour: describes the ids that this broker coordinates. An id that is named twice is answered
//!     once. The answer leaves when what it says is committed.
//! Errors of an id: COORDINATOR_LOAD_IN_PROGRESS (14), COORDINATOR_NOT_AVAILABLE (15) and
//!     NOT_COORDINATOR (16). INVALID_REQUEST (42): it is empty. TRANSACTIONAL_ID_NOT_FOUND (105).
//! Authorization: Describe on the id, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53). Topics that
//!     the client may not describe are left out.
//! Version notes: there is only v0.
//! Not done: nothing.

use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::handlers::group_reply;
use crate::broker::requests::access::Access;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::acls::Operation::Describe;
use crate::broker::state::acls::ResourceType::{Topic, TransactionalId};
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::transactions::transaction::Transaction;
use crate::protocol::ErrorCode;
use crate::protocol::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TopicData, TransactionState,
};
use crate::wire::Reader;

type DescribedId = Result<(Transaction, AppendedAt), ErrorCode>;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = DescribeTransactionsRequest::decode(&mut call.reader(), call.version())?;
    let ids = unique(&request);
    let access = call.access();
    let describe = |id: &&str| match access.check(Describe, TransactionalId, id) {
        true => describe(call.broker, id),
        false => Err(ErrorCode::TransactionalIdAuthorizationFailed),
    };
    let found: Vec<DescribedId> = ids.iter().map(describe).collect();
    let at = found.iter().flatten().map(|(_, at)| at.clone()).collect();
    let states = ids.iter().zip(&found).map(|(id, found)| match found {
        Ok((transaction, _)) => state(id, transaction, &access),
        Err(error) => refused(id, *error),
    });
    let response =
        DescribeTransactionsResponse { transaction_states: states.collect(), ..Default::default() };
    group_reply::answer(call, at, refuse, |writer, version| response.encode(writer, version))
}

fn unique<'f>(request: &DescribeTransactionsRequest<'f>) -> Vec<&'f str> {
    let mut first = FirstOnly::default();
    request.transactional_ids.iter().copied().filter(|id| first.passes(*id)).collect()
}

fn describe(broker: &Broker, id: &str) -> DescribedId {
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let shard = broker.transactions.shards.ready_of(id)?;
    let memory = shard.lock_ready()?;
    let found = memory.kept.by_id.get(id).cloned();
    Ok((found.ok_or(ErrorCode::TransactionalIdNotFound)?, shard.end(&memory)))
}

fn state<'a>(id: &'a str, transaction: &'a Transaction, access: &Access) -> TransactionState<'a> {
    let mut topics: Vec<TopicData<'a>> = Vec::new();
    let partitions = transaction.partitions.iter();
    for partition in partitions.filter(|it| access.sees(Describe, Topic, &it.topic)) {
        match topics.last_mut() {
            Some(last) if *last.topic == *partition.topic => {
                last.partitions.push(partition.partition);
            }
            _ => topics
                .push(TopicData { topic: &partition.topic, partitions: vec![partition.partition] }),
        }
    }
    TransactionState {
        error_code: ErrorCode::None.code(),
        transactional_id: id,
        transaction_state: transaction.state.name(),
        transaction_timeout_ms: transaction.timeout_ms,
        transaction_start_time_ms: transaction.start_ms,
        producer_id: transaction.producer.id,
        producer_epoch: transaction.producer.epoch,
        topics,
    }
}

fn refused(id: &str, error: ErrorCode) -> TransactionState<'_> {
    TransactionState { error_code: error.code(), transactional_id: id, ..Default::default() }
}

/// The reply if nothing was committed.
fn refuse(head: Head, body: &[u8], error: ErrorCode) -> Output {
    let request = DescribeTransactionsRequest::decode(&mut Reader::new(body), head.version);
    let request = request.unwrap_or_default();
    let states = unique(&request).into_iter().map(|id| refused(id, error));
    let response =
        DescribeTransactionsResponse { transaction_states: states.collect(), ..Default::default() };
    head.output(|writer, version| response.encode(writer, version))
}
