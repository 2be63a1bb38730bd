//! InitProducerId (22), v0-5: assigns an id to an idempotent producer.
//! Behaviour: the policy allocates blocks of ids (`AllocateProducerIds`). While no id is left,
//!     requests are delayed and one new block is asked for. The epoch is 0. A producer that sends
//!     its present id and epoch (v3) receives a new id, which Kafka's clients accept. Each assigned
//!     id is larger than every id in this broker's logs (see `proven`); smaller ids of a block are
//!     skipped. If a whole block is skipped, another is asked for, a few times.
//! Version notes: v2 is flexible. v3 adds the producer's present id and epoch.
//! Not done: transactions. A transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), which
//!     is fatal at once; clients would retry COORDINATOR_NOT_AVAILABLE for ever. v6 (two-phase
//!     commit) is not served.

use crate::broker::policy::{Event, RequestClient};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::decisions::TicketHolder;
use crate::broker::requests::delayed::{DelayedContext, DelayedOperation, OperationProgress, Wake};
use crate::broker::requests::service::Flow;
use crate::broker::state::waking::DelayedId;
use crate::protocol::ErrorCode;
use crate::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::protocol::value::{Value, ValueError};

/// After this many blocks in a row without a usable id, waiting clients get a retriable error.
const USELESS_BLOCKS: u32 = 3;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = InitProducerIdRequest::decode(&mut call.reader(), call.version())?;
    if let Some(transactional_id) = request.transactional_id {
        call.broker.unserved_ids.warn(call.request.client_id, transactional_id);
        let error_code = ErrorCode::TransactionalIdAuthorizationFailed.code();
        call.reply(|writer, version| refused(error_code).encode(writer, version));
        return Ok(Flow::Go);
    }
    let taken = call.broker.producer_ids.state.lock().left.next();
    if let Some(id) = taken {
        call.reply(|writer, version| given(id).encode(writer, version));
        return Ok(Flow::Go);
    }
    let id = call.delay(Some(call.decision_deadline_ms(0)), Box::new(DelayedProducerId));
    call.broker.wait_for_producer_ids(call.thread.index, id);
    Ok(Flow::Hold)
}

/// A request that waits for the next block of ids.
#[derive(Debug)]
struct DelayedProducerId;

impl DelayedOperation for DelayedProducerId {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        let (taken, error_code) = {
            let mut state = at.broker.producer_ids.state.lock();
            (state.left.next(), state.error_code)
        };
        let response = match taken {
            Some(id) => given(id),
            None if error_code != 0 => refused(error_code),
            None if is_late => return OperationProgress::Fails,
            None => {
                at.broker.wait_for_producer_ids(at.thread.index, at.id);
                return OperationProgress::Waits(self);
            }
        };
        OperationProgress::Answered(
            at.head.output(|writer, version| response.encode(writer, version)),
        )
    }

    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {}
}

fn given(producer_id: i64) -> InitProducerIdResponse {
    InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() }
}

fn refused(error_code: i16) -> InitProducerIdResponse {
    InitProducerIdResponse { error_code, producer_id: -1, producer_epoch: -1, ..Default::default() }
}

impl Broker {
    /// Delays a request, and asks the policy for a block unless one is on its way.
    fn wait_for_producer_ids(&self, thread: usize, id: DelayedId) {
        {
            let mut state = self.producer_ids.state.lock();
            state.waiting.push((thread, id));
            if std::mem::replace(&mut state.asked, true) {
                return;
            }
        }
        self.ask_for_producer_ids();
    }

    fn ask_for_producer_ids(&self) {
        let ticket = self.tickets.open(TicketHolder::ProducerIds);
        let node = i64::from(self.settings.load().node_id);
        self.policy.submit(Event {
            ticket,
            api: "AllocateProducerIds",
            version: 0,
            request: Value::Map(vec![("broker_id".into(), Value::Int(node))]),
            client: RequestClient::default(),
            lease: None,
        });
    }

    /// Takes the policy's answer: a block (`producer_id_start`, `producer_id_len`) or an
    /// `error_code`.
    pub(crate) fn producer_ids_came(&self, response: &Value) -> Result<(), ValueError> {
        let number = |name| match response.field(name) {
            Some(Value::Int(number)) => *number,
            _ => 0,
        };
        let (start, len) = (number("producer_id_start"), number("producer_id_len"));
        let waiting = {
            let mut state = self.producer_ids.state.lock();
            let end = start.saturating_add(len.max(0));
            let first = start.max(state.floor).min(end);
            let is_useless = first == end && end > start;
            state.useless = if is_useless { state.useless + 1 } else { 0 };
            if is_useless && state.useless < USELESS_BLOCKS {
                drop(state);
                self.ask_for_producer_ids();
                return Ok(());
            }
            state.asked = false;
            state.error_code = match number("error_code") {
                0 if first == end => ErrorCode::CoordinatorNotAvailable.code(),
                code => ErrorCode::from(i16::try_from(code).unwrap_or(-1)).code(),
            };
            state.left = first..end;
            std::mem::take(&mut state.waiting)
        };
        for (thread, id) in waiting {
            self.post(thread, Wake::Recheck(id));
        }
        Ok(())
    }
}
