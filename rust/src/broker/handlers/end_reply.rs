//! Delays the reply that ends a transaction until its markers are written, at most [`WAIT_MS`].
//!
//! Kafka replies as soon as the decision is committed. A producer that begins its next transaction
//! at once would then get CONCURRENT_TRANSACTIONS, and clients wait 20 ms or more before they try
//! again; markers are written in less. Also, who reads with `read_committed` after the reply sees
//! the records, unless the time ran out. A marker that takes longer, because its leader is down,
//! costs the producer no more than this.
//! Threads: the connection's network thread.

use std::sync::Arc;

use crate::broker::handlers::group_reply;
use crate::broker::handlers::producer_reply::{ProducerApi, ProducerReply};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::Call;
use crate::broker::requests::delayed::{
    DelayedContext, DelayedOperation, NextWait, OperationProgress,
};
use crate::broker::requests::service::Flow;
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::transactions::markers::EndingTransaction;
use crate::broker::state::waking::DelayedId;
use crate::wire::Writer;

/// The longest wait for markers: what Java's client waits before it tries again.
const WAIT_MS: i64 = 20;

/// A decision to end a transaction.
#[derive(Debug)]
pub(crate) struct Decided {
    /// Where it was appended.
    pub(crate) at: AppendedAt,
    pub(crate) ending: Arc<EndingTransaction>,
}

/// A request whose reply is known and waits for the markers.
#[derive(Debug)]
struct DelayedEndReply {
    api: &'static ProducerApi,
    body: Box<[u8]>,
    reply: ProducerReply,
    decided: Decided,
}

/// Sends the reply once the markers are written, or after a while.
pub(crate) fn answer(
    call: &mut Call<'_, '_>,
    api: &'static ProducerApi,
    reply: ProducerReply,
    decided: Decided,
) -> Flow {
    let body = call.request.body.into();
    let waiting = DelayedEndReply { api, body, reply, decided };
    let (thread, id) = (call.thread.index, call.thread.delayed.name());
    if waiting.decided.ending.wait(thread, id) {
        call.thread.to_retry.push(id);
    }
    call.delay_as(id, Some(deadline_ms(call.broker)), Box::new(waiting));
    Flow::Go
}

/// What a request that was delayed before does with its reply.
pub(crate) fn continue_with(
    delayed: &mut DelayedContext<'_>,
    (api, body): (&'static ProducerApi, Box<[u8]>),
    reply: ProducerReply,
    decided: Decided,
) -> OperationProgress {
    let waiting = Box::new(DelayedEndReply { api, body, reply, decided });
    if waiting.decided.ending.wait(delayed.thread.index, delayed.id) {
        return waiting.try_complete(delayed, false);
    }
    let deadline_ms = deadline_ms(delayed.broker);
    OperationProgress::WaitsFor(NextWait { operation: waiting, deadline_ms })
}

fn deadline_ms(broker: &Broker) -> i64 {
    broker.clock.monotonic_ms().saturating_add(WAIT_MS)
}

impl DelayedOperation for DelayedEndReply {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        if !self.decided.ending.is_over() && !is_late {
            return OperationProgress::Waits(self);
        }
        let Self { api, body, reply, decided } = *self;
        let encode = |writer: &mut Writer, version| (api.encode)(reply, writer, version);
        group_reply::continue_with(at, vec![decided.at], (body, api.refuse), encode)
    }

    /// The end may still wake it: nothing has its id then.
    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {}
}
