//! Produce (0), v0-13: appends one batch to each of some partitions.
//! Behaviour: each batch is checked in place and staged; what one readable event brought is
//!     committed together, once per partition, and then answered in order. What takes long to check
//!     or to convert is handed to a worker, and what follows it waits. acks=0: no reply, an
//!     error closes the connection; 1: the leader has it; -1: all in-sync replicas have it (fewer
//!     than `min.insync.replicas`: NOT_ENOUGH_REPLICAS, 19). Where appends are flushed before the
//!     acknowledgement, 1 and -1 wait for the disk. Past `timeout_ms`: REQUEST_TIMED_OUT (7).
//!     A batch an idempotent producer sent before: the original's offsets. No key on a compacted
//!     topic: INVALID_RECORD (87). A batch above `max.message.bytes`: 10.
//! Version notes: v0-v2 go by the magic byte of what is sent, and are converted to magic 2; v0 and
//!     v1 allow acks above 1, which wait for all in-sync replicas, from v2 on that is 21; v3 and
//!     later: exactly one batch of magic 2, else 87; zstd below v7: 76; v8 adds what is wrong with
//!     which record; v10 the present leader where it is not this one; v13 topic ids.
//! Not done: transactions. A transactional id or batch is refused with
//!     TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), as InitProducerId has refused the id before.

mod append;
mod faults;
mod long;
mod reply;
mod share;

use std::ops::Range;
use std::sync::Arc;

use super::super::apis::Outcome;
use super::super::call::{Call, Head, POOL_WAIT_MS, Request};
use super::super::image::ClusterImage;
use super::super::parked::{Parked, Wait};
use super::super::partition::{Acks, Partition, Wakes};
use super::super::reply::Replies;
use super::super::service::Flow;
use super::super::{Behind, Broker, Session, ThreadState};
use super::Named;
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::protocol::produce::{ProduceRequest, TopicProduceData};
use crate::storage::Stage;
use crate::wire::DecodeError;

use append::Append;
use faults::Told;
use long::Long;
pub(crate) use reply::Waiting;
use share::Share;

/// The first version that names topics by id.
const IDS_FROM: i16 = 13;
/// A request may name so many partitions without records for them ...
const MANY_PARTITIONS: usize = 10_000;
/// ... and more only with so many bytes for each: a batch has 61 and a message 26 at least.
const LEAST_RECORDS: usize = 24;
/// So many parts a thread keeps memory for.
const KEPT_PARTS: usize = 4096;
/// How far back a partition is looked for among those that are to be committed.
const LOOK_BACK: usize = 4;

/// Memory that one reactor thread uses again from event to event.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    parts: Vec<Part>,
    commits: Vec<(Arc<Partition>, Stage)>,
    converted: Vec<u8>,
}

/// What became of the records for one partition of a request.
#[derive(Debug)]
pub(crate) struct Part {
    partition: Option<Arc<Partition>>,
    stage: Option<Stage>,
    error: ErrorCode,
    /// What is wrong with which records, where that is known.
    told: Option<Box<Told>>,
    base_offset: i64,
    log_append_time: i64,
    log_start_offset: i64,
    /// One past the last record.
    wanted: Offset,
}

/// How a request is answered, once its batches are committed.
enum Answer {
    /// Not at all, since its acks are 0.
    None,
    /// Not at all, and it failed.
    Close,
    Now,
    /// When watermarks have passed its records.
    Later(Waiting),
}

impl Answer {
    /// Of a request of some version whose parts are these. They are moved out where it is late.
    fn of(message: &ProduceRequest<'_>, (version, parts): (i16, &mut [Part])) -> Self {
        let acks = match message.acks {
            0 if parts.iter().any(|part| part.error != ErrorCode::None) => return Self::Close,
            0 => return Self::None,
            1 => Acks::Leader,
            _ => Acks::All,
        };
        match parts.iter().all(|part| part.is_acknowledged(acks)) {
            true => Self::Now,
            false => Self::Later(Waiting::new(acks, message, (version, parts))),
        }
    }
}

/// The Produce requests of one event.
pub(crate) struct Staging<'e> {
    image: &'e ClusterImage,
    now_ms: i64,
    requests: Vec<Staged<'e>>,
}

/// A request whose batches are staged.
struct Staged<'e> {
    head: Head,
    message: ProduceRequest<'e>,
    parts: Range<usize>,
}

impl<'e> Staging<'e> {
    /// Nothing is staged yet.
    pub(crate) fn new(image: &'e ClusterImage, now_ms: i64) -> Self {
        Self { image, now_ms, requests: Vec::new() }
    }

    /// Stages the batches of a request, or hands it to a worker where that takes long.
    pub(crate) fn stage(&mut self, call: &mut Call<'_, 'e>) -> Outcome {
        let message = ProduceRequest::decode(&mut call.reader(), call.version())?;
        let Request { head, client_id, size, .. } = call.request;
        let count: usize = message.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
        if count > MANY_PARTITIONS && size / count < LEAST_RECORDS {
            return Err(DecodeError::Memory);
        }
        let start = call.thread.produce.parts.len();
        let append = Append {
            node: call.broker.settings.load().node_id,
            version: head.version,
            now_ms: self.now_ms,
            refused: refusal(&message, head.version),
            needs_isr: !matches!(message.acks, 0 | 1),
            may_write_internal: client_id == Some("__admin_client"),
            share: Share::of(size),
        };
        if !call.thread.produce.stage(self.image, (&append, &message, 0)) {
            return Ok(self.hand_over(call, append, (&message, start)));
        }
        throttle(call, &message);
        let head = call.request.head;
        let parts = start..call.thread.produce.parts.len();
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
        if lease.is_none() && call.thread.produce.parts.len() == start {
            call.session.behind = Behind::WaitsWithIt;
            call.replies.mute(POOL_WAIT_MS);
            return Flow::Go;
        }
        throttle(call, message);
        call.thread.produce.commit(&mut Wakes {
            here: Some((call.thread.index, &mut call.thread.look)),
            mailbox: call.broker,
        });
        let parts = call.thread.produce.parts.split_off(start);
        if self.finish(call.broker, call.thread, (call.session, call.replies)) == Flow::Close {
            return Flow::Close;
        }
        let timeout_ms = i64::from(message.timeout_ms.max(0));
        let long = Long {
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
        (session, replies): (&mut Session, &mut Replies),
    ) -> Flow {
        if self.requests.is_empty() {
            return Flow::Go;
        }
        thread
            .produce
            .commit(&mut Wakes { here: Some((thread.index, &mut thread.look)), mailbox: broker });
        let mut flow = Flow::Go;
        let mut scratch = std::mem::take(&mut thread.produce);
        for request in self.requests.drain(..) {
            let parts = scratch.parts.get_mut(request.parts.clone()).unwrap_or_default();
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
                    let parked = Parked {
                        conn: session.peer.conn,
                        slot: replies.park_holding(size_of_val::<[Part]>(parts)),
                        head: request.head,
                        deadline_ms: Some(deadline_ms),
                        wait: Wait::Produce(waiting),
                        lease: None,
                    };
                    park(thread, parked, session);
                }
            }
        }
        scratch.parts.clear();
        scratch.parts.shrink_to(KEPT_PARTS);
        thread.produce = scratch;
        flow
    }
}

/// Keeps a request that waits, and looks once more.
fn park(thread: &mut ThreadState, parked: Parked, session: &mut Session) {
    let id = thread.parked.name();
    if let Wait::Produce(waiting) = &parked.wait
        && waiting.begin(thread.index, id)
    {
        thread.look.push(id);
    }
    thread.parked.begin(id, parked, session);
}

/// Tells a client to wait whose requests or their bytes are more than they may be.
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

fn named<'a>(topic: &TopicProduceData<'a>, version: i16) -> Named<'a> {
    let id = (version >= IDS_FROM).then_some(topic.topic_id);
    Named { topic: topic.name, id }
}

impl Scratch {
    /// Stages the parts of a request from number `from` on. False where one of them takes this
    /// thread too long: those before it are staged.
    fn stage(
        &mut self,
        image: &ClusterImage,
        (append, message, from): (&Append, &ProduceRequest<'_>, usize),
    ) -> bool {
        let mut skip = from;
        for topic in &message.topic_data {
            let found = named(topic, append.version).find(image);
            for data in &topic.partition_data {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let part = match found {
                    Ok(found) => append.partition(found, data, &mut self.converted),
                    Err(error) => Some(Part::refused(error)),
                };
                let Some(part) = part else { return false };
                self.commit_later(&part);
                self.parts.push(part);
            }
        }
        true
    }

    /// Writes what is staged, moves watermarks, and puts failures into the parts.
    fn commit(&mut self, wakes: &mut Wakes<'_>) {
        for (partition, stage) in self.commits.drain(..) {
            if partition.log.commit(stage).is_err() {
                // Part of it may have been written before the failure: each stage knows.
                let parts = self.parts.iter_mut().filter(|part| {
                    part.partition.as_ref().is_some_and(|other| Arc::ptr_eq(other, &partition))
                });
                parts.for_each(Part::settle);
            }
            partition.advance(wakes);
        }
    }

    /// Notes what a part needs committed. A partition that several batches of the event went to is
    /// noted once, with the last of them.
    fn commit_later(&mut self, part: &Part) {
        let (Some(partition), Some(stage)) = (&part.partition, part.stage) else { return };
        let recent = self.commits.iter_mut().rev().take(LOOK_BACK);
        match recent.into_iter().find(|(other, _)| Arc::ptr_eq(other, partition)) {
            Some((_, last)) => *last = stage,
            None => self.commits.push((Arc::clone(partition), stage)),
        }
    }
}

impl Part {
    /// Nothing was appended.
    fn refused(error: ErrorCode) -> Self {
        Self {
            partition: None,
            stage: None,
            error,
            told: None,
            base_offset: -1,
            log_append_time: -1,
            log_start_offset: -1,
            wanted: Offset(0),
        }
    }

    /// Asks what became of the stage after a commit of its partition failed.
    fn settle(&mut self) {
        let (Some(partition), Some(stage)) = (&self.partition, self.stage) else { return };
        if let Err(error) = partition.log.commit(stage) {
            *self = Self::refused(super::super::errors::of_storage(&error));
        }
    }

    /// Whether it may be answered: it failed, or has passed the watermark.
    fn is_acknowledged(&self, acks: Acks) -> bool {
        self.error != ErrorCode::None
            || self.partition.as_ref().is_none_or(|p| p.acknowledged(acks) >= self.wanted)
    }
}
