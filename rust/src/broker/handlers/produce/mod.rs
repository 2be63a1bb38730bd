//! Produce (0), v0-13: appends a batch to each of some partitions.
//! Behaviour: each batch is checked in place and staged. The batches of one readable event are
//!     committed together, once per partition, and answered in order. A worker does long checks,
//!     conversions and appends that need a new segment; later requests of the connection wait for
//!     it. acks=0: no reply, an error closes the connection. acks=1: the leader has appended the
//!     batch. acks=-1: all in-sync replicas have it. It needs min(`min.insync.replicas`, replicas)
//!     of them: if fewer are in sync before the append, NOT_ENOUGH_REPLICAS (19); if the set
//!     shrinks before they have it, NOT_ENOUGH_REPLICAS_AFTER_APPEND (20). A leader that is cut off
//!     from its followers and the controller answers NOT_LEADER_OR_FOLLOWER (6) and closes the
//!     connection: the client would ask the same broker who leads. If appends are flushed before
//!     the acknowledgement, 1 and -1 wait for the disk. After `timeout_ms`: REQUEST_TIMED_OUT (7).
//!     A repeated batch of an idempotent producer returns the original offsets, and one behind a
//!     batch that was refused for a temporary reason is refused for the same. A record without a
//!     key on a compacted topic is INVALID_RECORD (87), a batch above `max.message.bytes`
//!     MESSAGE_TOO_LARGE (10).
//! Transactions: a transactional batch needs a transactional id in the request, else
//!     TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), and all of a request must be of one producer,
//!     else INVALID_PRODUCER_ID_MAPPING (49). The first one of a transaction in a partition waits
//!     for the coordinator (see `verified`). Errors then: INVALID_PRODUCER_EPOCH (47): another
//!     epoch. INVALID_PRODUCER_ID_MAPPING: another producer id. INVALID_TXN_STATE (48), from v11 on
//!     TRANSACTION_ABORTABLE (120): the partition does not belong to the transaction.
//!     NOT_ENOUGH_REPLICAS: the coordinator cannot answer. A batch that comes after the transaction
//!     has ended is INVALID_TXN_STATE, and INVALID_PRODUCER_EPOCH if its epoch has ended too.
//! Authorization: Write on the topic, else TOPIC_AUTHORIZATION_FAILED (29). If a batch is
//!     transactional, Write on the transactional id, else every partition is
//!     TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53).
//! Version notes: v0-v2 use the magic byte of each message set and are converted to magic 2. v0 and
//!     v1 allow acks above 1, which wait for all in-sync replicas; from v2 on that is
//!     INVALID_REQUIRED_ACKS (21). From v3 on, exactly one batch of magic 2 is allowed, else
//!     INVALID_RECORD. zstd below v7 is UNSUPPORTED_COMPRESSION_TYPE (76). v8 adds record errors.
//!     v10 adds the current leader if this broker is not the leader. v12 adds the partitions to the
//!     transaction, or answers CONCURRENT_TRANSACTIONS (51) while the last one is being ended. v13
//!     adds topic ids.

mod append;
mod faults;
mod inflation_budget;
mod long;
mod partition_result;
mod refused;
mod reply;
mod scratch;
mod verified;

use std::ops::Range;
use std::sync::Arc;

use crate::broker::handlers::produce::append::AppendRules;
use crate::broker::handlers::produce::inflation_budget::InflationBudget;
use crate::broker::handlers::produce::long::LongProduce;
use crate::broker::handlers::produce::partition_result::PartitionResult;
use crate::broker::handlers::produce::reply::DelayedProduce;
use crate::broker::handlers::produce::scratch::ProduceReply;
pub(crate) use crate::broker::handlers::produce::scratch::ProduceScratch;
use crate::broker::handlers::produce::verified::DelayedVerification;
use crate::broker::handlers::verify_or_add::{self, CoordinatorAnswers};
use crate::broker::requests::access::Access;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult, POOL_WAIT_MS};
use crate::broker::requests::connection::{ConnectionContext, FollowingFrames};
use crate::broker::requests::delayed::{DelayedOperation, DelayedRequest, ThreadState};
use crate::broker::requests::head::{Head, Request};
use crate::broker::requests::reply::Replies;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Write;
use crate::broker::state::acls::ResourceType::TransactionalId;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::waking::Wakes;
use crate::protocol::ErrorCode;
use crate::protocol::produce::ProduceRequest;
use crate::record::batch::Batch;
use crate::storage::Verification;
use crate::wire::DecodeError;

/// A request may name this many partitions without records ...
const MANY_PARTITIONS: usize = 10_000;
/// ... and more only with this many bytes for each: a batch has at least 61 bytes, a message 26.
const LEAST_RECORDS: usize = 24;
/// The most results that a thread keeps memory for.
const KEPT_RESULTS: usize = 4096;
/// The Produce requests of one event.
pub(crate) struct StagedRequests<'e, 's> {
    image: &'e ClusterImage,
    now_ms: i64,
    scratch: &'s mut ProduceScratch,
    requests: Vec<StagedRequest<'e>>,
}

/// A request whose batches are staged.
struct StagedRequest<'e> {
    head: Head,
    message: ProduceRequest<'e>,
    results: Range<usize>,
}

impl<'e, 's> StagedRequests<'e, 's> {
    /// No request is staged yet.
    pub(crate) fn new(
        image: &'e ClusterImage,
        now_ms: i64,
        scratch: &'s mut ProduceScratch,
    ) -> Self {
        Self { image, now_ms, scratch, requests: Vec::new() }
    }

    /// Stages the batches of a request, or passes it to a worker if that takes long.
    pub(crate) fn stage(&mut self, call: &mut Call<'_, 'e>) -> HandlerResult {
        let message = ProduceRequest::decode(&mut call.reader(), call.version())?;
        let Request { head, client_id, size, .. } = call.request;
        let count: usize = message.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
        if count > MANY_PARTITIONS && size / count < LEAST_RECORDS {
            return Err(DecodeError::Memory);
        }
        let start = self.scratch.results.len();
        let access = call.access();
        let mut rules = AppendRules {
            node: call.broker.settings.load().node_id,
            version: head.version,
            now_ms: self.now_ms,
            refused: refusal(&message, head.version, &access),
            needs_isr: !matches!(message.acks, 0 | 1),
            may_write_internal: client_id == Some("__admin_client"),
            has_transaction: message.transactional_id.is_some(),
            verification: match message.transactional_id {
                Some(_) => verified::unverified(call.broker, head.version),
                None => Verification::Required,
            },
            access,
            budget: InflationBudget::of(size),
        };
        if !self.scratch.stage(self.image, (&rules, &message, 0)) {
            return Ok(self.hand_over(call, (rules, None), (&message, start)));
        }
        if !self.scratch.unverified.is_empty() {
            let answers = self.verify(call.broker, &mut rules, (&message, start));
            if answers.is_some() || !self.scratch.unverified.is_empty() {
                return Ok(self.hand_over(call, (rules, answers), (&message, start)));
            }
        }
        throttle(call, &message);
        let head = call.request.head;
        let results = start..self.scratch.results.len();
        self.requests.push(StagedRequest { head, message, results });
        Ok(Flow::Go)
    }

    /// Asks the coordinator for the unverified partitions of a request, and stages those that it
    /// confirms at once. Those that take too long stay unverified. `Some`: it has not answered.
    fn verify(
        &mut self,
        broker: &Broker,
        rules: &mut AppendRules,
        (message, start): (&ProduceRequest<'_>, usize),
    ) -> Option<Arc<CoordinatorAnswers>> {
        self.scratch.refuse_other_producers();
        let request = (message, rules.version);
        let answers = verified::verify_or_add(broker, request, &self.scratch.unverified);
        let Some(codes) = answers.codes() else { return Some(answers) };
        self.scratch.confirm(self.image, (rules, message, start), &codes);
        None
    }

    /// Passes a request to a worker, or has it wait for the coordinator first; its results from
    /// `start` on are staged. Batches keep their order: those that are staged are committed first,
    /// and later requests wait.
    fn hand_over(
        &mut self,
        call: &mut Call<'_, 'e>,
        (rules, answers): (AppendRules, Option<Arc<CoordinatorAnswers>>),
        (message, start): (&ProduceRequest<'_>, usize),
    ) -> Flow {
        let lease = call.broker.memory.lease(call.request.size);
        if lease.is_none() && self.scratch.results.len() == start {
            call.connection.following_frames = FollowingFrames::WaitForRetry;
            call.replies.mute(POOL_WAIT_MS);
            return Flow::Go;
        }
        throttle(call, message);
        self.scratch.commit(&mut Wakes {
            here: Some((call.thread.index, &mut call.thread.to_retry)),
            waker: call.broker,
        });
        let results = self.scratch.results.split_off(start);
        let mut unverified = std::mem::take(&mut self.scratch.unverified);
        unverified.iter_mut().for_each(|one| one.at -= start);
        if self.finish(call.broker, call.thread, (call.connection, call.replies)) == Flow::Close {
            return Flow::Close;
        }
        let produce = LongProduce {
            head: call.request.head,
            body: call.request.body.to_vec(),
            rules: rules.on_a_worker(),
            results,
            unverified,
            refused_batches: Arc::clone(&call.connection.refused_batches),
        };
        match answers {
            None => call.hand_over(lease, move |broker| produce.run(broker, None)),
            Some(answers) => {
                let delayed = DelayedVerification { produce, answers };
                call.wait(Box::new(delayed), (verify_or_add::WAIT_MS, lease));
            }
        }
        Flow::Hold
    }

    /// Commits the staged batches and replies. `Close` if a request without a reply failed.
    pub(crate) fn finish(
        &mut self,
        broker: &Broker,
        thread: &mut ThreadState,
        (connection, replies): (&mut ConnectionContext, &mut Replies),
    ) -> Flow {
        if self.requests.is_empty() {
            return Flow::Go;
        }
        self.scratch
            .commit(&mut Wakes { here: Some((thread.index, &mut thread.to_retry)), waker: broker });
        let mut flow = Flow::Go;
        for request in self.requests.drain(..) {
            let results = self.scratch.results.get_mut(request.results.clone()).unwrap_or_default();
            let version = request.head.version;
            let settled = (&request.message, &mut *results);
            refused::settle(&connection.refused_batches, (self.image, version), settled);
            match ProduceReply::of(&request.message, (request.head.version, results)) {
                ProduceReply::None => {}
                ProduceReply::Close => flow = Flow::Close,
                ProduceReply::Now => {
                    let output = replies.ready();
                    reply::write(request.head, output, (self.image, &request.message, results));
                    if results.iter().any(|result| result.is_cut_off) {
                        flow = Flow::Close;
                    }
                }
                ProduceReply::Later(waiting) => {
                    let deadline_ms =
                        broker.clock.monotonic_ms() + i64::from(request.message.timeout_ms.max(0));
                    let conn = connection.peer.conn;
                    let delayed = |operation| DelayedRequest {
                        conn,
                        slot: replies.reserve_holding(size_of_val::<[PartitionResult]>(results)),
                        head: request.head,
                        deadline_ms: Some(deadline_ms),
                        operation,
                        lease: None,
                    };
                    delay(thread, (waiting, delayed), connection);
                }
            }
        }
        self.scratch.results.clear();
        self.scratch.results.shrink_to(KEPT_RESULTS);
        flow
    }
}

/// Delays a request, and retries it if its watermarks have moved meanwhile.
fn delay(
    thread: &mut ThreadState,
    (mut operation, delayed): (
        DelayedProduce,
        impl FnOnce(Box<dyn DelayedOperation>) -> DelayedRequest,
    ),
    connection: &mut ConnectionContext,
) {
    let id = thread.delayed.name();
    if operation.begin(thread.index, id) {
        thread.to_retry.push(id);
    }
    thread.delayed.begin(id, delayed(Box::new(operation)), connection);
}

fn throttle(call: &mut Call<'_, '_>, message: &ProduceRequest<'_>) {
    if message.acks != 0 {
        call.throttle_for_time();
    }
    call.throttle_for_bytes();
}

fn has_transactional_batch(message: &ProduceRequest<'_>) -> bool {
    let mut data = message.topic_data.iter().flat_map(|topic| &topic.partition_data);
    data.any(|data| {
        let batch = Batch::parse(data.records.bytes().unwrap_or_default());
        batch.is_ok_and(|batch| batch.is_transactional())
    })
}

/// The error of the whole request, if it has one.
fn refusal(message: &ProduceRequest<'_>, version: i16, access: &Access) -> Option<ErrorCode> {
    if let Some(id) = message.transactional_id
        && !access.is_unlimited()
        && has_transactional_batch(message)
        && !access.check(Write, TransactionalId, id)
    {
        return Some(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    let known_acks = matches!(message.acks, -1..=1) || version < 2 && message.acks > 1;
    (!known_acks).then_some(ErrorCode::InvalidRequiredAcks)
}
