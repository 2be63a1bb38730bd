//! The delayed requests of one reactor thread. They wait for a watermark, for records, or for a
//! decision.
//!
//! Invariant: a request is in `requests` exactly while its slot is unfilled. It is in `timers`
//!     exactly while it is in `requests` and has a deadline.
//! Threads: owned by the reactor thread. Other threads know a request by its [`DelayedId`] only. An
//!     id that is no longer here is no error: the request was answered, or its connection was
//!     closed. Each connection lists its delayed requests, so that closing it does not search all.
//! Limits: each request has a deadline unless a worker handles it. A connection may have 1024
//!     delayed requests (`net::Options::delayed_max`) and is not read while it has more.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use ahash::HashMap;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::connection::ConnectionContext;
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::{Output, Slot};
use crate::broker::requests::service::{ConnId, Done, Flow};
use crate::broker::state::groups;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::quotas::account::Account;
use crate::broker::state::waking::DelayedId;
use crate::memory::Lease;
use crate::protocol::ErrorCode;

/// What a delayed request waits for, and how it goes on: Kafka's delayed operation, one for each
/// API that waits.
pub(crate) trait DelayedOperation: Debug + Send {
    /// How the request goes on, as things stand. `is_late`: its time is up, so that it is answered,
    /// fails, or has a worker.
    fn try_complete(self: Box<Self>, at: &mut Delayed<'_>, is_late: bool) -> Progress;

    /// Begins to wait, once a worker has gone on with the request. True: nothing may wake it.
    fn begin(&mut self, thread: usize, id: DelayedId) -> bool {
        let _ = (thread, id);
        false
    }

    /// The reply, now that the topics that it waits for were created, except these.
    fn topics_created(
        self: Box<Self>,
        at: &mut Delayed<'_>,
        refused: HashMap<String, ErrorCode>,
    ) -> Option<Output> {
        let _ = (at, refused);
        None
    }

    /// Its connection is gone: nobody has to wake it any more.
    fn cancel(&self, broker: &Broker, thread: usize, id: DelayedId);
}

/// Which thread handles a delayed request, and until when.
pub(crate) struct Delayed<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) thread: &'a mut ThreadState,
    pub(crate) id: DelayedId,
    pub(crate) head: Head,
    /// When its time is up, on the monotonic clock.
    pub(crate) deadline_ms: Option<i64>,
}

/// The state of a delayed request after a retry.
pub(crate) enum Progress {
    /// It is answered.
    Answered(Output),
    /// It is still waiting.
    Waits(Box<dyn DelayedOperation>),
    /// A worker finishes it.
    Works(Work),
    /// It cannot be answered: its connection is closed.
    Fails,
}

/// What a worker is to do for a request.
pub(crate) struct Work {
    /// Whose time it takes.
    pub(crate) account: Option<Arc<Account>>,
    pub(crate) run: Box<dyn FnOnce(&Broker) -> Worked + Send>,
}

/// A delayed request.
#[derive(Debug)]
pub(crate) struct DelayedRequest {
    pub(crate) conn: ConnId,
    pub(crate) slot: Slot,
    pub(crate) head: Head,
    /// When it is answered with what there is, on the monotonic clock.
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) operation: Box<dyn DelayedOperation>,
    /// Pays for a large one while it waits.
    pub(crate) lease: Option<Lease>,
}

/// All delayed requests of one reactor thread.
#[derive(Debug, Default)]
pub(crate) struct DelayedRequests {
    next: u64,
    requests: HashMap<DelayedId, DelayedRequest>,
    timers: BTreeSet<(i64, DelayedId)>,
}

impl DelayedRequests {
    /// The name the next request will have; it must be kept by [`DelayedRequests::keep`].
    pub(crate) fn name(&mut self) -> DelayedId {
        self.next += 1;
        DelayedId(self.next)
    }

    /// Keeps a request of this session, the first time.
    pub(crate) fn begin(
        &mut self,
        id: DelayedId,
        delayed: DelayedRequest,
        session: &mut ConnectionContext,
    ) {
        if session.delayed.len() == session.delayed.capacity() {
            session.delayed.retain(|id| self.requests.contains_key(id));
        }
        session.delayed.push(id);
        self.keep(id, delayed);
    }

    /// Keeps a request until it is taken.
    pub(crate) fn keep(&mut self, id: DelayedId, delayed: DelayedRequest) {
        if let Some(deadline_ms) = delayed.deadline_ms {
            self.timers.insert((deadline_ms, id));
        }
        self.requests.insert(id, delayed);
    }

    /// Takes a request out.
    pub(crate) fn take(&mut self, id: DelayedId) -> Option<DelayedRequest> {
        let delayed = self.requests.remove(&id)?;
        if let Some(deadline_ms) = delayed.deadline_ms {
            self.timers.remove(&(deadline_ms, id));
        }
        Some(delayed)
    }

    /// Takes out the next request whose time is up.
    pub(crate) fn expired(&mut self, now_ms: i64) -> Option<(DelayedId, DelayedRequest)> {
        let (deadline_ms, id) = *self.timers.first()?;
        if deadline_ms > now_ms {
            return None;
        }
        Some((id, self.take(id)?))
    }

    /// When the next request's time is up.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.timers.first().map(|(deadline_ms, _)| *deadline_ms)
    }
}

impl DelayedRequest {
    /// The request is answered.
    pub(crate) fn done(&self, output: Output) -> Done {
        Done { conn: self.conn, slot: self.slot, output, flow: Flow::Go }
    }

    /// The request cannot be answered.
    pub(crate) fn failed(&self) -> Done {
        Done { conn: self.conn, slot: self.slot, output: Output::default(), flow: Flow::Close }
    }
}

/// What other threads tell a reactor thread.
#[derive(Debug)]
pub enum Wake {
    /// An event that this request waits for may have happened: retry it.
    Recheck(DelayedId),
    /// This request is answered.
    Answer(DelayedId, Output),
    /// This request cannot be answered: its connection is closed.
    Fail(DelayedId),
    /// The topics that this Metadata request wanted were created, except these.
    Created(DelayedId, HashMap<String, ErrorCode>),
    /// A worker went on with this request, which now waits for something else.
    Waits(DelayedId, NowWaits),
}

/// The state of one reactor thread.
#[derive(Debug)]
pub struct ThreadState {
    pub(crate) index: usize,
    pub(crate) image: Arc<ClusterImage>,
    pub(crate) image_number: u64,
    pub(crate) delayed: DelayedRequests,
    /// Requests of this thread to retry before it waits again.
    pub(crate) look: Vec<DelayedId>,
    pub(crate) groups: groups::GroupScratch,
}

/// A worker's result for a request.
pub(crate) enum Worked {
    /// It is answered.
    Answer(Output),
    /// It waits for something else.
    Waits(NowWaits),
    /// It cannot be answered: its connection is closed.
    Fails,
}

impl Worked {
    /// It waits for something else until `deadline_ms`.
    pub(crate) fn wait(operation: Box<dyn DelayedOperation>, deadline_ms: i64) -> Self {
        Self::Waits(NowWaits { operation, deadline_ms })
    }
}

/// What a request waits for after a worker has gone on with it, and until when (monotonic
/// milliseconds).
#[derive(Debug)]
pub struct NowWaits {
    pub(crate) operation: Box<dyn DelayedOperation>,
    pub(crate) deadline_ms: i64,
}
