//! Requests that change the producer of a transactional id, or assign a producer: InitProducerId
//! and EndTxn. They may need a fresh producer id, and wait for one while this broker has none.
//!
//! A request is tried without an id, and if it needs one again with it. So an id is taken only if
//! it is used. The reply then waits until the change is committed.
//! Threads: the connection's network thread.

use crate::broker::handlers::end_reply::{self, Decided};
use crate::broker::handlers::group_reply::{self, EncodeError};
use crate::broker::policy::{Event, RequestClient};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::decisions::TicketHolder;
use crate::broker::requests::delayed::{DelayedContext, DelayedOperation, OperationProgress, Wake};
use crate::broker::requests::service::Flow;
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::waking::DelayedId;
use crate::broker::transactions::transaction::ProducerIdentity;
use crate::protocol::ErrorCode;
use crate::protocol::value::{Value, ValueError};
use crate::wire::{DecodeError, Writer};

/// After this many blocks in a row without a usable id, waiting clients get a retriable error.
const USELESS_BLOCKS: u32 = 3;

/// Tries a request: its body, its version, perhaps a fresh producer id.
type TryRequest = fn(&Broker, (&[u8], i16), Option<i64>) -> AttemptResult;

/// How an API of this kind is handled.
#[derive(Debug)]
pub(crate) struct ProducerApi {
    /// Tries the request, given its body, its version and perhaps a fresh producer id.
    pub(crate) attempt: TryRequest,
    /// Encodes the reply.
    pub(crate) encode: fn(ProducerReply, &mut Writer, i16),
    /// Encodes a refusal.
    pub(crate) refuse: EncodeError,
}

/// The reply to a request of this kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProducerReply {
    pub(crate) error: ErrorCode,
    pub(crate) producer: ProducerIdentity,
}

/// What came of an attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The reply, and what it waits for.
    Reply(ProducerReply, Option<AppendedAt>),
    /// The reply to a transaction's end.
    Ends(ProducerReply, Decided),
    /// A fresh producer id is needed; nothing has changed.
    NeedsProducerId,
}

pub(crate) type AttemptResult = Result<Attempt, DecodeError>;

impl ProducerReply {
    pub(crate) fn refused(error: ErrorCode) -> Self {
        Self { error, producer: ProducerIdentity::NONE }
    }
}

impl From<ErrorCode> for Attempt {
    fn from(error: ErrorCode) -> Self {
        Self::Reply(ProducerReply::refused(error), None)
    }
}

/// Answers a request, now or later.
pub(crate) fn answer(call: &mut Call<'_, '_>, api: &'static ProducerApi) -> HandlerResult {
    let body = call.request.body;
    match attempt(call.broker, api, (body, call.version()))? {
        Attempt::Reply(reply, at) => {
            let encode = |writer: &mut Writer, version| (api.encode)(reply, writer, version);
            group_reply::answer(call, at.into_iter().collect(), api.refuse, encode)
        }
        Attempt::Ends(reply, decided) => Ok(end_reply::answer(call, api, reply, decided)),
        Attempt::NeedsProducerId => {
            let waiting = Box::new(DelayedProducerId { api, body: body.into() });
            let id = call.delay(Some(call.decision_deadline_ms(0)), waiting);
            call.broker.wait_for_producer_ids(call.thread.index, id);
            Ok(Flow::Hold)
        }
    }
}

fn attempt(broker: &Broker, api: &ProducerApi, request: (&[u8], i16)) -> AttemptResult {
    let first = (api.attempt)(broker, request, None)?;
    if !matches!(first, Attempt::NeedsProducerId) {
        return Ok(first);
    }
    let taken = broker.producer_ids.state.lock().left.next();
    match taken {
        Some(id) => (api.attempt)(broker, request, Some(id)),
        None => Ok(Attempt::NeedsProducerId),
    }
}

/// A request that waits for the next block of ids.
#[derive(Debug)]
struct DelayedProducerId {
    api: &'static ProducerApi,
    body: Box<[u8]>,
}

impl DelayedOperation for DelayedProducerId {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        let api = self.api;
        match attempt(at.broker, api, (&self.body, at.head.version)) {
            Err(_) => OperationProgress::Fails,
            Ok(Attempt::Reply(reply, appended)) => {
                let encode = |writer: &mut Writer, version| (api.encode)(reply, writer, version);
                let appended = appended.into_iter().collect();
                group_reply::continue_with(at, appended, (self.body, api.refuse), encode)
            }
            Ok(Attempt::Ends(reply, decided)) => {
                end_reply::continue_with(at, (api, self.body), reply, decided)
            }
            Ok(Attempt::NeedsProducerId) => {
                let error_code = at.broker.producer_ids.state.lock().error_code;
                match ErrorCode::from(error_code) {
                    ErrorCode::None if is_late => OperationProgress::Fails,
                    ErrorCode::None => {
                        at.broker.wait_for_producer_ids(at.thread.index, at.id);
                        OperationProgress::Waits(self)
                    }
                    error => OperationProgress::Answered((api.refuse)(at.head, &self.body, error)),
                }
            }
        }
    }

    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {}
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
