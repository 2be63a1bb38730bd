//! InitProducerId (22), v0-5: assigns an id and an epoch to an idempotent or transactional
//!     producer.
//! Behaviour: the policy allocates blocks of ids (`AllocateProducerIds`). While no id is left,
//!     requests are delayed and one new block is asked for. Without a transactional id the epoch is
//!     0. A producer that sends its present id and epoch (v3) then receives a new id, which Kafka's
//!     clients accept. Each assigned id is larger than every id in this broker's logs (see
//!     `proven`); smaller ids of a block are skipped. If a whole block is skipped, another is asked
//!     for, a few times. A transactional id gets the next epoch, and with it every earlier producer
//!     of that id is fenced. An open transaction is aborted first, and the answer is
//!     CONCURRENT_TRANSACTIONS (51).
//! Errors: INVALID_REQUEST (42): an empty transactional id. INVALID_TRANSACTION_TIMEOUT (50).
//!     PRODUCER_FENCED (90): another producer was initialised since. COORDINATOR_LOAD_IN_PROGRESS
//!     (14), COORDINATOR_NOT_AVAILABLE (15), NOT_COORDINATOR (16).
//! Authorization: Write on the transactional id, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53).
//!     Without one (KIP-679) Write on some topic, or IdempotentWrite on the cluster, else
//!     CLUSTER_AUTHORIZATION_FAILED (31).
//! Version notes: v2 is flexible. v3 adds the producer's present id and epoch. Before v4
//!     PRODUCER_FENCED is sent as INVALID_PRODUCER_EPOCH (47).
//! Not done: v6 (two-phase commit) is not served.

use crate::broker::handlers::producer_reply::{
    self, Attempt, AttemptResult, ProducerApi, ProducerReply,
};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Write;
use crate::broker::state::acls::ResourceType::TransactionalId;
use crate::broker::transactions::step::{Event, Outcome};
use crate::broker::transactions::transaction::{
    NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity,
};
use crate::protocol::ErrorCode;
use crate::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::wire::{Reader, Writer};

/// The first version with PRODUCER_FENCED.
const FENCED_FROM: i16 = 4;

static API: ProducerApi = ProducerApi {
    attempt,
    encode,
    refuse: |head, _, error| {
        head.output(|writer, version| encode(ProducerReply::refused(error), writer, version))
    },
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = InitProducerIdRequest::decode(&mut call.reader(), call.version())?;
    let access = call.access();
    let refused = match request.transactional_id {
        Some(id) if !access.check(Write, TransactionalId, id) => {
            ErrorCode::TransactionalIdAuthorizationFailed
        }
        None if !access.may_write_idempotently() => ErrorCode::ClusterAuthorizationFailed,
        _ => return producer_reply::answer(call, &API),
    };
    call.reply(|writer, version| encode(ProducerReply::refused(refused), writer, version));
    Ok(Flow::Go)
}

fn attempt(broker: &Broker, (body, version): (&[u8], i16), new_id: Option<i64>) -> AttemptResult {
    let request = InitProducerIdRequest::decode(&mut Reader::new(body), version)?;
    let Some(id) = request.transactional_id else {
        let reply = |id| {
            let producer = ProducerIdentity { id, epoch: 0 };
            Attempt::Reply(ProducerReply { error: ErrorCode::None, producer }, None)
        };
        return Ok(new_id.map_or(Attempt::NeedsProducerId, reply));
    };
    let expected = ProducerIdentity { id: request.producer_id, epoch: request.producer_epoch };
    let has_id = expected.id != NO_PRODUCER_ID;
    if id.is_empty() || has_id != (expected.epoch != NO_PRODUCER_EPOCH) {
        return Ok(ErrorCode::InvalidRequest.into());
    }
    let timeout_ms = request.transaction_timeout_ms;
    let expected = has_id.then_some(expected);
    let event = Event::InitProducerId { timeout_ms, expected, new_id };
    Ok(match broker.step_transaction(id, &event) {
        Ok(applied) => match applied.outcome {
            Outcome::NeedsProducerId => Attempt::NeedsProducerId,
            Outcome::Done(producer) => {
                let reply = ProducerReply { error: ErrorCode::None, producer };
                Attempt::Reply(reply, Some(applied.at))
            }
            _ => {
                let reply = ProducerReply::refused(ErrorCode::ConcurrentTransactions);
                Attempt::Reply(reply, Some(applied.at))
            }
        },
        Err(error) => error.into(),
    })
}

fn encode(reply: ProducerReply, writer: &mut Writer, version: i16) {
    let error = match reply.error {
        ErrorCode::ProducerFenced if version < FENCED_FROM => ErrorCode::InvalidProducerEpoch,
        error => error,
    };
    let ProducerIdentity { id, epoch } = reply.producer;
    let response = InitProducerIdResponse {
        error_code: error.code(),
        producer_id: id,
        producer_epoch: epoch,
        ..Default::default()
    };
    response.encode(writer, version);
}
