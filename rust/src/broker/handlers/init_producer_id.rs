//! InitProducerId (22), v0-5: an id for an idempotent producer.
//! Behaviour: ids come in blocks from the policy (`AllocateProducerIds`); while none is left the
//!     request is parked and the next block asked for once. The epoch is 0. A producer that names
//!     the id and epoch it has (v3) gets a new id all the same, which Kafka's clients accept.
//!     Each id lies above all that the logs of this broker name (see `proven`): the rest of a block
//!     is not used; where nothing of it is left another one is asked for, a few times.
//! Version notes: v2 is flexible; v3 adds the producer's present id and epoch.
//! Not done: transactions. A transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), fatal
//!     and at once; COORDINATOR_NOT_AVAILABLE would make clients wait for ever. v6 (two-phase
//!     commit) is not served.

use std::ops::Range;

use parking_lot::Mutex;

use super::super::apis::Outcome;
use super::super::call::{Call, Head};
use super::super::parked::Wait;
use super::super::policy::{Asked, Client, Event};
use super::super::service::Flow;
use super::super::{Broker, Output, ParkedId, Wake, unserved};
use crate::protocol::ErrorCode;
use crate::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use crate::protocol::value::{Value, ValueError};

/// The ids at hand, and who waits for more.
#[derive(Debug, Default)]
pub(crate) struct ProducerIds {
    state: Mutex<Block>,
}

/// So many blocks in a row may have no id that can be used, before those who wait are told to ask
/// again later.
const USELESS_BLOCKS: u32 = 3;

#[derive(Debug, Default)]
struct Block {
    left: Range<i64>,
    /// Ids below this one are known to logs.
    floor: i64,
    /// Blocks since the last one that had an id above the floor.
    useless: u32,
    asked: bool,
    /// The last answer was this error: those who waited for it are told.
    error_code: i16,
    waiting: Vec<(usize, ParkedId)>,
}

impl ProducerIds {
    /// From now on only ids above `highest` are given.
    pub(crate) fn begin_above(&self, highest: i64) {
        let mut block = self.state.lock();
        block.floor = block.floor.max(highest.saturating_add(1));
        let first = block.left.start.max(block.floor).min(block.left.end);
        block.left.start = first;
    }

    /// The lowest id that may be given.
    pub(crate) fn floor(&self) -> i64 {
        self.state.lock().floor
    }
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let request = InitProducerIdRequest::decode(&mut call.reader(), call.version())?;
    if let Some(transactional_id) = request.transactional_id {
        unserved::tell(call, transactional_id);
        let error_code = ErrorCode::TransactionalIdAuthorizationFailed.code();
        call.reply(|writer, version| refused(error_code).encode(writer, version));
        return Ok(Flow::Go);
    }
    let taken = call.broker.producer_ids.state.lock().left.next();
    if let Some(id) = taken {
        call.reply(|writer, version| given(id).encode(writer, version));
        return Ok(Flow::Go);
    }
    let id = call.park(Some(call.decision_deadline_ms(0)), Wait::ProducerId);
    call.broker.wait_for_producer_ids(call.thread.index, id);
    Ok(Flow::Hold)
}

/// The reply, if there is an id by now, or there will be none.
pub(crate) fn resume(
    broker: &Broker,
    (thread, id): (usize, ParkedId),
    head: Head,
) -> Option<Output> {
    let (taken, error_code) = {
        let mut state = broker.producer_ids.state.lock();
        (state.left.next(), state.error_code)
    };
    match taken {
        Some(id) => Some(head.output(|writer, version| given(id).encode(writer, version))),
        None if error_code != 0 => {
            Some(head.output(|writer, version| refused(error_code).encode(writer, version)))
        }
        None => {
            broker.wait_for_producer_ids(thread, id);
            None
        }
    }
}

fn given(producer_id: i64) -> InitProducerIdResponse {
    InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() }
}

fn refused(error_code: i16) -> InitProducerIdResponse {
    InitProducerIdResponse { error_code, producer_id: -1, producer_epoch: -1, ..Default::default() }
}

impl Broker {
    /// Adds a request to those who wait, and asks for a block if nobody has.
    fn wait_for_producer_ids(&self, thread: usize, id: ParkedId) {
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
        let ticket = self.tickets.open(Asked::ProducerIds);
        let node = i64::from(self.settings.load().node_id);
        self.policy.submit(Event {
            ticket,
            api: "AllocateProducerIds",
            version: 0,
            request: Value::Map(vec![("broker_id".into(), Value::Int(node))]),
            client: Client::default(),
            lease: None,
        });
    }

    /// The policy gave a block: `producer_id_start`, `producer_id_len`, or an `error_code`.
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
            self.post(thread, Wake::Look(id));
        }
        Ok(())
    }
}
