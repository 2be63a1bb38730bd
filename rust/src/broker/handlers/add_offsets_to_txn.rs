//! AddOffsetsToTxn (25), v0-4: adds the offsets of a group to a producer's transaction.
//! Behaviour: the group's partition of `__consumer_offsets` is added as AddPartitionsToTxn would
//!     add it, with the same errors. An empty group id is INVALID_GROUP_ID (24). While there is no
//!     `__consumer_offsets` the answer is COORDINATOR_NOT_AVAILABLE (15), and the topic is created.
//! Authorization: Write on the transactional id, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53);
//!     Read on the group, else GROUP_AUTHORIZATION_FAILED (30).
//! Version notes: before v2 PRODUCER_FENCED (90) is sent as INVALID_PRODUCER_EPOCH (47).

use std::sync::Arc;

use crate::broker::handlers::{find_coordinator, group_reply};
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::acls::Operation::{Read, Write};
use crate::broker::state::acls::ResourceType::{Group, TransactionalId};
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::coordinator::shards::partition_for;
use crate::broker::state::groups::shard::TOPIC;
use crate::broker::transactions::step::Event;
use crate::broker::transactions::transaction::ProducerIdentity;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use crate::wire::Writer;

/// The first version with PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = AddOffsetsToTxnRequest::decode(&mut call.reader(), call.version())?;
    let (error, at) = match add(call, &request) {
        Ok(at) => (ErrorCode::None, Some(at)),
        Err(error) => (error, None),
    };
    group_reply::answer(call, at.into_iter().collect(), refuse, |writer, version| {
        encode(error, writer, version);
    })
}

fn add(
    call: &mut Call<'_, '_>,
    request: &AddOffsetsToTxnRequest<'_>,
) -> Result<AppendedAt, ErrorCode> {
    let access = call.access();
    if !access.check(Write, TransactionalId, request.transactional_id) {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    if !access.check(Read, Group, request.group_id) {
        return Err(ErrorCode::GroupAuthorizationFailed);
    }
    if request.transactional_id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let image = call.image();
    let Some(topic) = image.topic(TOPIC) else {
        find_coordinator::request_topic(call, TOPIC);
        return Err(ErrorCode::CoordinatorNotAvailable);
    };
    let index = partition_for(request.group_id, topic.partitions.len());
    let index = i32::try_from(index).map_err(|_| ErrorCode::CoordinatorNotAvailable)?;
    let partitions = [TopicPartition::new(Arc::clone(&topic.name), index)];
    let producer = ProducerIdentity { id: request.producer_id, epoch: request.producer_epoch };
    let event = Event::AddPartitions { producer, partitions: &partitions };
    Ok(call.broker.step_transaction(request.transactional_id, &event)?.at)
}

fn refuse(head: Head, _: &[u8], error: ErrorCode) -> Output {
    head.output(|writer, version| encode(error, writer, version))
}

fn encode(error: ErrorCode, writer: &mut Writer, version: i16) {
    let error = match error {
        ErrorCode::ProducerFenced if version < FENCED_FROM => ErrorCode::InvalidProducerEpoch,
        error => error,
    };
    let response = AddOffsetsToTxnResponse { error_code: error.code(), ..Default::default() };
    response.encode(writer, version);
}
