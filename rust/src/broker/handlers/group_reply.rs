//! Delays replies of coordinators until the state they were made from is committed.
//!
//! The high watermark must reach the log end offset that the group's partition had when the request
//! was handled. The reply is made at once, because the state in memory may be newer later. The
//! request's body is kept beside it, for a reply with an error.
//! Threads: the connection's network thread.

use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::delayed::{
    DelayedContext, DelayedOperation, NextWait, OperationProgress,
};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::partition::{Acks, Waiter};
use crate::broker::state::waking::DelayedId;
use crate::protocol::ErrorCode;
use crate::wire::Writer;

/// A request whose reply is ready and waits for the commit.
#[derive(Debug)]
struct DelayedGroupReply {
    at: Vec<AppendedAt>,
    reply: Output,
    body: Box<[u8]>,
    refuse: EncodeError,
}

/// Encodes the reply to a failed request, from the request's body.
pub(crate) type EncodeError = fn(Head, &[u8], ErrorCode) -> Output;

/// Sends the reply that `encode` writes once `at` is committed.
pub(crate) fn answer(
    call: &mut Call<'_, '_>,
    at: Vec<AppendedAt>,
    refuse: EncodeError,
    encode: impl FnOnce(&mut Writer, i16),
) -> HandlerResult {
    if at.iter().all(AppendedAt::is_committed) {
        call.reply(encode);
        return Ok(Flow::Go);
    }
    let reply = call.request.head.output(encode);
    let waiting = DelayedGroupReply { at, reply, body: call.request.body.into(), refuse };
    let deadline_ms = deadline_ms(call.broker);
    let (thread, id) = (call.thread.index, call.thread.delayed.name());
    waiting.begin(thread, id);
    if waiting.is_over() {
        call.thread.to_retry.push(id);
    }
    call.delay_as(id, Some(deadline_ms), Box::new(waiting));
    Ok(Flow::Go)
}

/// When a reply has waited for its commit for too long.
fn deadline_ms(broker: &Broker) -> i64 {
    let timeout_ms = broker.settings.load().offsets_commit_timeout_ms;
    broker.clock.monotonic_ms().saturating_add(timeout_ms)
}

/// What a request that was delayed before does with its reply: it waits for the commit of `at`.
pub(crate) fn continue_with(
    delayed: &mut DelayedContext<'_>,
    at: Vec<AppendedAt>,
    (body, refuse): (Box<[u8]>, EncodeError),
    encode: impl FnOnce(&mut Writer, i16),
) -> OperationProgress {
    let reply = delayed.head.output(encode);
    if at.iter().all(AppendedAt::is_committed) {
        return OperationProgress::Answered(reply);
    }
    let waiting = Box::new(DelayedGroupReply { at, reply, body, refuse });
    waiting.begin(delayed.thread.index, delayed.id);
    match waiting.try_complete(delayed, false) {
        OperationProgress::Waits(operation) => {
            let deadline_ms = deadline_ms(delayed.broker);
            OperationProgress::WaitsFor(NextWait { operation, deadline_ms })
        }
        done => done,
    }
}

impl DelayedGroupReply {
    fn begin(&self, thread: usize, delayed: DelayedId) {
        for AppendedAt { partition, end, .. } in &self.at {
            partition.wait(Waiter { acks: Acks::All, wanted: *end, thread, delayed });
        }
    }

    /// Whether everything is committed, or some of it never will be.
    fn is_over(&self) -> bool {
        self.failed()
            || self.at.iter().any(AppendedAt::is_held_up)
            || self.at.iter().all(AppendedAt::is_committed)
    }

    fn failed(&self) -> bool {
        self.at.iter().any(AppendedAt::is_lost)
    }
}

impl DelayedOperation for DelayedGroupReply {
    /// The reply. A partition that is not committed has failed or timed out.
    fn try_complete(
        mut self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        if !self.is_over() && !is_late {
            return OperationProgress::Waits(self);
        }
        self.cancel(at.broker, at.thread.index, at.id);
        if self.at.iter().all(AppendedAt::is_committed) {
            return OperationProgress::Answered(std::mem::take(&mut self.reply));
        }
        let error = match self.failed() {
            true => ErrorCode::NotCoordinator,
            false => ErrorCode::CoordinatorNotAvailable,
        };
        OperationProgress::Answered((self.refuse)(at.head, &self.body, error))
    }

    fn cancel(&self, _: &Broker, thread: usize, id: DelayedId) {
        for at in &self.at {
            at.partition.forget(thread, id);
        }
    }
}
