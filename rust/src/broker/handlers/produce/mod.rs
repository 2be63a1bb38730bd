//! Produce (0), v0-13: appends a batch to each of some partitions.
//! Behaviour: each batch is checked in place and staged. The batches of one readable event are
//!     committed together, once per partition, and answered in order. A worker does long checks,
//!     conversions and appends that need a new segment; later requests of the connection wait for
//!     it. acks=0: no reply, an error closes
//!     the connection. acks=1: the leader has appended the batch. acks=-1: all in-sync replicas
//!     have it. It needs min(`min.insync.replicas`, replicas) of them: if fewer are in sync before
//!     the append, NOT_ENOUGH_REPLICAS (19); if the set shrinks before they have it,
//!     NOT_ENOUGH_REPLICAS_AFTER_APPEND (20). If appends are flushed
//!     before the acknowledgement, 1 and -1 wait for the disk. After `timeout_ms`:
//!     REQUEST_TIMED_OUT (7). A repeated batch of an idempotent producer returns the original
//!     offsets. A record without a key on a compacted topic is INVALID_RECORD (87), a batch above
//!     `max.message.bytes` 10.
//! Version notes: v0-v2 use the magic byte of each message set and are converted to magic 2. v0 and
//!     v1 allow acks above 1, which wait for all in-sync replicas; from v2 on that is 21. From v3
//!     on, exactly one batch of magic 2 is allowed, else 87. zstd below v7 is 76. v8 adds record
//!     errors. v10 adds the current leader if this broker is not the leader. v13 adds topic ids.
//! Not done: transactions. A transactional id or batch is refused with
//!     TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), as in InitProducerId.

mod append;
mod faults;
mod long;
mod parts;
mod reply;
mod scratch;
mod share;

use std::ops::Range;

use crate::broker::handlers::produce::append::Append;
use crate::broker::handlers::produce::long::LongProduce;
use crate::broker::handlers::produce::parts::Part;
use crate::broker::handlers::produce::reply::DelayedProduce;
use crate::broker::handlers::produce::scratch::Answer;
pub(crate) use crate::broker::handlers::produce::scratch::Scratch;
use crate::broker::handlers::produce::share::WorkerShare;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, Outcome, POOL_WAIT_MS};
use crate::broker::requests::connection::{Behind, ConnectionContext};
use crate::broker::requests::delayed::{DelayedOperation, DelayedRequest, ThreadState};
use crate::broker::requests::head::{Head, Request};
use crate::broker::requests::reply::Replies;
use crate::broker::requests::service::Flow;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::waking::Wakes;
use crate::protocol::ErrorCode;
use crate::protocol::produce::ProduceRequest;
use crate::wire::DecodeError;

/// A request may name so many partitions without records for them ...
const MANY_PARTITIONS: usize = 10_000;
/// ... and more only with so many bytes for each: a batch has 61 and a message 26 at least.
const LEAST_RECORDS: usize = 24;
/// The most parts that a thread keeps memory for.
const KEPT_PARTS: usize = 4096;
/// The Produce requests of one event.
pub(crate) struct Staging<'e, 's> {
    image: &'e ClusterImage,
    now_ms: i64,
    scratch: &'s mut Scratch,
    requests: Vec<Staged<'e>>,
}

/// A request whose batches are staged.
struct Staged<'e> {
    head: Head,
    message: ProduceRequest<'e>,
    parts: Range<usize>,
}

impl<'e, 's> Staging<'e, 's> {
    /// Nothing is staged yet.
    pub(crate) fn new(image: &'e ClusterImage, now_ms: i64, scratch: &'s mut Scratch) -> Self {
        Self { image, now_ms, scratch, requests: Vec::new() }
    }

    /// Stages the batches of a request, or hands it to a worker where that takes long.
    pub(crate) fn stage(&mut self, call: &mut Call<'_, 'e>) -> Outcome {
        let message = ProduceRequest::decode(&mut call.reader(), call.version())?;
        let Request { head, client_id, size, .. } = call.request;
        let count: usize = message.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
        if count > MANY_PARTITIONS && size / count < LEAST_RECORDS {
            return Err(DecodeError::Memory);
        }
        let start = self.scratch.parts.len();
        let append = Append {
            node: call.broker.settings.load().node_id,
            version: head.version,
            now_ms: self.now_ms,
            refused: refusal(&message, head.version),
            needs_isr: !matches!(message.acks, 0 | 1),
            may_write_internal: client_id == Some("__admin_client"),
            share: WorkerShare::of(size),
        };
        if !self.scratch.stage(self.image, (&append, &message, 0)) {
            return Ok(self.hand_over(call, append, (&message, start)));
        }
        throttle(call, &message);
        let head = call.request.head;
        let parts = start..self.scratch.parts.len();
        self.requests.push(Staged { head, message, parts });
        Ok(Flow::Go)
    }

    /// Has a worker go on with a request, of which the parts from `start` on are staged. Batches
    /// keep their order: what is staged is committed before, and what follows waits.
    fn hand_over(
        &mut self,
        call: &mut Call<'_, 'e>,
        append: Append,
        (message, start): (&ProduceRequest<'_>, usize),
    ) -> Flow {
        let lease = call.broker.memory.lease(call.request.size);
        if lease.is_none() && self.scratch.parts.len() == start {
            call.session.behind = Behind::WaitsWithIt;
            call.replies.mute(POOL_WAIT_MS);
            return Flow::Go;
        }
        throttle(call, message);
        self.scratch.commit(&mut Wakes {
            here: Some((call.thread.index, &mut call.thread.look)),
            waker: call.broker,
        });
        let parts = self.scratch.parts.split_off(start);
        if self.finish(call.broker, call.thread, (call.session, call.replies)) == Flow::Close {
            return Flow::Close;
        }
        let timeout_ms = i64::from(message.timeout_ms.max(0));
        let long = LongProduce {
            head: call.request.head,
            body: call.request.body.to_vec(),
            append: append.on_a_worker(),
            parts,
            deadline_ms: call.broker.clock.monotonic_ms() + timeout_ms,
        };
        call.hand_over(lease, move |broker| long.run(broker));
        Flow::Hold
    }

    /// Commits what is staged and answers. `Close` where an unanswered request failed.
    pub(crate) fn finish(
        &mut self,
        broker: &Broker,
        thread: &mut ThreadState,
        (session, replies): (&mut ConnectionContext, &mut Replies),
    ) -> Flow {
        if self.requests.is_empty() {
            return Flow::Go;
        }
        self.scratch
            .commit(&mut Wakes { here: Some((thread.index, &mut thread.look)), waker: broker });
        let mut flow = Flow::Go;
        for request in self.requests.drain(..) {
            let parts = self.scratch.parts.get_mut(request.parts.clone()).unwrap_or_default();
            match Answer::of(&request.message, (request.head.version, parts)) {
                Answer::None => {}
                Answer::Close => flow = Flow::Close,
                Answer::Now => {
                    let output = replies.ready();
                    reply::write(request.head, output, (self.image, &request.message, parts));
                }
                Answer::Later(waiting) => {
                    let deadline_ms =
                        broker.clock.monotonic_ms() + i64::from(request.message.timeout_ms.max(0));
                    let conn = session.peer.conn;
                    let delayed = |operation| DelayedRequest {
                        conn,
                        slot: replies.reserve_holding(size_of_val::<[Part]>(parts)),
                        head: request.head,
                        deadline_ms: Some(deadline_ms),
                        operation,
                        lease: None,
                    };
                    delay(thread, (waiting, delayed), session);
                }
            }
        }
        self.scratch.parts.clear();
        self.scratch.parts.shrink_to(KEPT_PARTS);
        flow
    }
}

/// Tells a client to wait whose requests or their bytes are more than they may be.
/// Keeps a request that waits, and looks once more.
fn delay(
    thread: &mut ThreadState,
    (mut operation, delayed): (
        DelayedProduce,
        impl FnOnce(Box<dyn DelayedOperation>) -> DelayedRequest,
    ),
    session: &mut ConnectionContext,
) {
    let id = thread.delayed.name();
    if operation.begin(thread.index, id) {
        thread.look.push(id);
    }
    thread.delayed.begin(id, delayed(Box::new(operation)), session);
}

fn throttle(call: &mut Call<'_, '_>, message: &ProduceRequest<'_>) {
    if message.acks != 0 {
        call.throttle_for_time();
    }
    call.throttle_for_bytes();
}

/// Why a request is refused as a whole.
fn refusal(message: &ProduceRequest<'_>, version: i16) -> Option<ErrorCode> {
    let known_acks = matches!(message.acks, -1..=1) || version < 2 && message.acks > 1;
    if !known_acks {
        Some(ErrorCode::InvalidRequiredAcks)
    } else if message.transactional_id.is_some() {
        Some(ErrorCode::TransactionalIdAuthorizationFailed)
    } else {
        None
    }
}
