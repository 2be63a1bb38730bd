//! EndTxn (26), v0-5: commits or aborts a producer's transaction.
//! Behaviour: the answer leaves when the decision is committed in the transactional id's partition
//!     of `__transaction_state`, and all markers are written or 20 ms have passed (`end_reply`).
//!     Until all are, the next transaction is refused with CONCURRENT_TRANSACTIONS (51).
//!     A transaction that has ended the same way already is answered again, with that code while
//!     its markers are being written.
//! Errors: INVALID_TXN_STATE (48): it ended otherwise, or there is none.
//!     COORDINATOR_NOT_AVAILABLE (15): the decision is not committed in time. NOT_COORDINATOR (16).
//!     INVALID_PRODUCER_ID_MAPPING (49): another producer id. PRODUCER_FENCED (90): another epoch.
//!     INVALID_REQUEST (42): an empty transactional id.
//! Authorization: Write on the transactional id, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53).
//! Version notes: before v2 PRODUCER_FENCED is sent as INVALID_PRODUCER_EPOCH (47). From v5 on
//!     (KIP-890) each EndTxn bumps the epoch and returns the producer to go on with; an abort
//!     without a transaction is allowed.

use crate::broker::handlers::end_reply::Decided;
use crate::broker::handlers::producer_reply::{
    self, Attempt, AttemptResult, ProducerApi, ProducerReply,
};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Write;
use crate::broker::state::acls::ResourceType::TransactionalId;
use crate::broker::transactions::step::{Event, Outcome};
use crate::broker::transactions::transaction::{ClientTransactionVersion, ProducerIdentity};
use crate::protocol::ErrorCode;
use crate::protocol::end_txn::{EndTxnRequest, EndTxnResponse};
use crate::wire::{Reader, Writer};

/// The first version with PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;
/// The first version that bumps the epoch.
const BUMPS_FROM: i16 = 5;

static API: ProducerApi = ProducerApi {
    attempt,
    encode,
    refuse: |head, _, error| {
        head.output(|writer, version| encode(ProducerReply::refused(error), writer, version))
    },
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = EndTxnRequest::decode(&mut call.reader(), call.version())?;
    if call.access().check(Write, TransactionalId, request.transactional_id) {
        return producer_reply::answer(call, &API);
    }
    let refused = ProducerReply::refused(ErrorCode::TransactionalIdAuthorizationFailed);
    call.reply(|writer, version| encode(refused, writer, version));
    Ok(Flow::Go)
}

fn attempt(broker: &Broker, (body, version): (&[u8], i16), new_id: Option<i64>) -> AttemptResult {
    let request = EndTxnRequest::decode(&mut Reader::new(body), version)?;
    if request.transactional_id.is_empty() {
        return Ok(ErrorCode::InvalidRequest.into());
    }
    let producer = ProducerIdentity { id: request.producer_id, epoch: request.producer_epoch };
    let client = match version >= BUMPS_FROM {
        true => ClientTransactionVersion::V2,
        false => ClientTransactionVersion::V0,
    };
    let commit = request.committed;
    let event = Event::EndTxn { producer, commit, version: client, new_id };
    Ok(match broker.step_transaction(request.transactional_id, &event) {
        Ok(applied) => match applied.outcome {
            Outcome::Done(producer) | Outcome::WriteMarkers { producer, .. } => {
                let reply = ProducerReply { error: ErrorCode::None, producer };
                match applied.ending {
                    Some(ending) => Attempt::Ends(reply, Decided { at: applied.at, ending }),
                    None => Attempt::Reply(reply, Some(applied.at)),
                }
            }
            _ => Attempt::NeedsProducerId,
        },
        Err(error) => error.into(),
    })
}

fn encode(reply: ProducerReply, writer: &mut Writer, version: i16) {
    let error = match reply.error {
        ErrorCode::ProducerFenced if version < FENCED_FROM => ErrorCode::InvalidProducerEpoch,
        error => error,
    };
    let response = EndTxnResponse {
        error_code: error.code(),
        producer_id: reply.producer.id,
        producer_epoch: reply.producer.epoch,
        ..Default::default()
    };
    response.encode(writer, version);
}
