//! The delayed requests of one network thread. They wait for a watermark, for records, or for a
//! decision.
//!
//! Invariant: a request is in `requests` exactly while its slot is unfilled. It is in `timers`
//!     exactly while it is in `requests` and has a deadline.
//! Threads: owned by the network thread. Other threads know a request by its [`DelayedId`] only. An
//!     id that is no longer here is not an error: the request was answered, or its connection was
//!     closed. Each connection lists its delayed requests, so that closing it needs no search.
//! Limits: each request has a deadline unless a worker handles it. A connection may have 1024
//!     delayed requests (`net::NetworkOptions::delayed_max`) and is not read while it has as many.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use ahash::HashMap;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::connection::ConnectionContext;
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::{Output, Slot};
use crate::broker::requests::service::{ConnId, DelayedReply, Flow};
use crate::broker::state::groups;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::quotas::account::QuotaAccount;
use crate::broker::state::waking::DelayedId;
use crate::memory::Lease;
use crate::protocol::ErrorCode;

/// Kafka's delayed operation: what a delayed request waits for, and how it goes on. There is one
/// for each API that waits.
pub(crate) trait DelayedOperation: Debug + Send {
    /// Tries to complete the request. `is_late`: its deadline has passed, so it must be answered,
    /// fail, or go to a worker.
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress;

    /// Begins to wait after a worker has done its part. True: the caller must retry it, because
    /// nothing else may wake it.
    fn begin(&mut self, thread: usize, id: DelayedId) -> bool {
        let _ = (thread, id);
        false
    }

    /// The reply after the topics that it waits for were created. The map has those that were not
    /// created.
    fn topics_created(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        refused: HashMap<String, ErrorCode>,
    ) -> Option<Output> {
        let _ = (at, refused);
        None
    }

    /// Its connection was closed: it must not be woken any more.
    fn cancel(&self, broker: &Broker, thread: usize, id: DelayedId);
}

/// A delayed request and the thread that retries it.
pub(crate) struct DelayedContext<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) thread: &'a mut ThreadState,
    pub(crate) id: DelayedId,
    pub(crate) head: Head,
    /// Its deadline, on the monotonic clock.
    pub(crate) deadline_ms: Option<i64>,
}

/// The state of a delayed request after a retry.
pub(crate) enum OperationProgress {
    /// It is answered.
    Answered(Output),
    /// It waits for longer.
    Waits(Box<dyn DelayedOperation>),
    /// It waits for something else, until another deadline.
    WaitsFor(NextWait),
    /// A worker completes it.
    Works(WorkerTask),
    /// It is answered, and its connection is closed.
    Ends(Output),
    /// It cannot be answered: its connection is closed.
    Fails,
}

/// The work of a worker for one request.
pub(crate) struct WorkerTask {
    /// The quota account that the time counts for.
    pub(crate) account: Option<Arc<QuotaAccount>>,
    pub(crate) run: Box<dyn FnOnce(&Broker) -> WorkResult + Send>,
}

/// A delayed request.
#[derive(Debug)]
pub(crate) struct DelayedRequest {
    pub(crate) conn: ConnId,
    pub(crate) slot: Slot,
    pub(crate) head: Head,
    /// Its deadline, on the monotonic clock. Then it is answered as it is.
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) operation: Box<dyn DelayedOperation>,
    /// The memory of a large request while it waits.
    pub(crate) lease: Option<Lease>,
}

/// All delayed requests of one network thread.
#[derive(Debug, Default)]
pub(crate) struct DelayedRequests {
    next: u64,
    requests: HashMap<DelayedId, DelayedRequest>,
    timers: BTreeSet<(i64, DelayedId)>,
}

impl DelayedRequests {
    /// The id of the next delayed request. The caller passes it to [`DelayedRequests::begin`] or
    /// [`DelayedRequests::keep`].
    pub(crate) fn name(&mut self) -> DelayedId {
        self.next += 1;
        DelayedId(self.next)
    }

    /// Adds a new delayed request of a connection.
    pub(crate) fn begin(
        &mut self,
        id: DelayedId,
        delayed: DelayedRequest,
        connection: &mut ConnectionContext,
    ) {
        if connection.delayed.len() == connection.delayed.capacity() {
            connection.delayed.retain(|id| self.requests.contains_key(id));
        }
        connection.delayed.push(id);
        self.keep(id, delayed);
    }

    /// Adds a delayed request.
    pub(crate) fn keep(&mut self, id: DelayedId, delayed: DelayedRequest) {
        if let Some(deadline_ms) = delayed.deadline_ms {
            self.timers.insert((deadline_ms, id));
        }
        self.requests.insert(id, delayed);
    }

    /// Removes a request.
    pub(crate) fn take(&mut self, id: DelayedId) -> Option<DelayedRequest> {
        let delayed = self.requests.remove(&id)?;
        if let Some(deadline_ms) = delayed.deadline_ms {
            self.timers.remove(&(deadline_ms, id));
        }
        Some(delayed)
    }

    /// Removes the next request whose deadline has passed.
    pub(crate) fn expired(&mut self, now_ms: i64) -> Option<(DelayedId, DelayedRequest)> {
        let (deadline_ms, id) = *self.timers.first()?;
        if deadline_ms > now_ms {
            return None;
        }
        Some((id, self.take(id)?))
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.timers.first().map(|(deadline_ms, _)| *deadline_ms)
    }
}

impl DelayedRequest {
    /// The reply to the request.
    pub(crate) fn done(&self, output: Output) -> DelayedReply {
        DelayedReply { conn: self.conn, slot: self.slot, output, flow: Flow::Go }
    }

    /// The end of a request that cannot be answered.
    pub(crate) fn failed(&self) -> DelayedReply {
        DelayedReply {
            conn: self.conn,
            slot: self.slot,
            output: Output::default(),
            flow: Flow::Close,
        }
    }
}

/// A message from another thread to a network thread.
#[derive(Debug)]
pub enum Wake {
    /// Retry this request: an event that it waits for may have happened.
    Recheck(DelayedId),
    /// This request is answered.
    Answer(DelayedId, Output),
    /// This request cannot be answered: its connection is closed.
    Fail(DelayedId),
    /// The topics that this Metadata request wanted were created, except those in the map.
    Created(DelayedId, HashMap<String, ErrorCode>),
    /// A worker has done its part of this request, which now waits for something else.
    Waits(DelayedId, NextWait),
}

/// The state of one network thread.
#[derive(Debug)]
pub struct ThreadState {
    pub(crate) index: usize,
    pub(crate) image: Arc<ClusterImage>,
    pub(crate) image_number: u64,
    pub(crate) delayed: DelayedRequests,
    /// Requests of this thread that it must retry before it waits for events.
    pub(crate) to_retry: Vec<DelayedId>,
    pub(crate) groups: groups::GroupScratch,
}

/// A worker's result for a request.
pub(crate) enum WorkResult {
    /// It is answered.
    Answer(Output),
    /// It waits for something else.
    Waits(NextWait),
    /// It cannot be answered: its connection is closed.
    Fails,
}

impl WorkResult {
    /// It waits for something else until `deadline_ms`.
    pub(crate) fn wait(operation: Box<dyn DelayedOperation>, deadline_ms: i64) -> Self {
        Self::Waits(NextWait { operation, deadline_ms })
    }
}

/// What a request waits for after a worker has done its part, and its deadline in monotonic
/// milliseconds.
#[derive(Debug)]
pub struct NextWait {
    pub(crate) operation: Box<dyn DelayedOperation>,
    pub(crate) deadline_ms: i64,
}
