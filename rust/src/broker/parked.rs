//! The requests of one reactor thread that wait: for a watermark, for records, for a decision.
//!
//! Invariant: a request is in `requests` exactly while its slot is unfilled, and in `timers`
//! exactly while it is in `requests` and has a deadline.
//! Threads: owned by the reactor thread; others know a request by its [`ParkedId`] only, and a name
//! that is no longer here is not an error: the request was answered, or its connection closed.
//! A connection's session lists its requests, so that closing it costs as much as it has parked.
//! Limits: each but those that a worker has has a deadline; a connection may park 1024
//!     (`net::Options::parked_max`), and is not read from beyond.

use std::collections::BTreeSet;

use ahash::HashMap;

use super::Session;
use super::call::Head;
use super::groups::waiting;
use super::handlers::{fetch, find_coordinator, metadata, produce};
use super::policy::Ticket;
use super::reply::{Output, Slot};
use super::service::{ConnId, Done, Flow};
use super::workers::Cancelled;
use crate::memory::Lease;

/// Names a parked request within its reactor thread; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkedId(pub u64);

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) conn: ConnId,
    pub(crate) slot: Slot,
    pub(crate) head: Head,
    /// When it is answered with what there is, on the monotonic clock.
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) wait: Wait,
    /// Pays for a large one while it waits.
    #[expect(dead_code, reason = "it is returned when the request is dropped")]
    pub(crate) lease: Option<Lease>,
}

/// What a request waits for.
#[derive(Debug)]
pub(crate) enum Wait {
    /// A watermark of each of its partitions.
    Produce(produce::Waiting),
    /// Enough bytes.
    Fetch(Box<fetch::Waiting>),
    /// Topics that are being created.
    Metadata(metadata::Waiting),
    /// A block of producer ids.
    ProducerId,
    /// The log of a group.
    Group(Box<waiting::Waiting>),
    /// The topic of groups, which is being created.
    Coordinator(Box<find_coordinator::Waiting>),
    /// A decision.
    Policy(Ticket),
    /// A worker; it has no deadline, since a worker's job ends.
    Worker(Cancelled),
}

/// All parked requests of one reactor thread.
#[derive(Debug, Default)]
pub(crate) struct ParkedRequests {
    next: u64,
    requests: HashMap<ParkedId, Parked>,
    timers: BTreeSet<(i64, ParkedId)>,
}

impl ParkedRequests {
    /// The name the next request will have; it must be kept by [`ParkedRequests::keep`].
    pub(crate) fn name(&mut self) -> ParkedId {
        self.next += 1;
        ParkedId(self.next)
    }

    /// Keeps a request of this session, the first time.
    pub(crate) fn begin(&mut self, id: ParkedId, parked: Parked, session: &mut Session) {
        if session.parked.len() == session.parked.capacity() {
            session.parked.retain(|id| self.requests.contains_key(id));
        }
        session.parked.push(id);
        self.keep(id, parked);
    }

    /// Keeps a request until it is taken.
    pub(crate) fn keep(&mut self, id: ParkedId, parked: Parked) {
        if let Some(deadline_ms) = parked.deadline_ms {
            self.timers.insert((deadline_ms, id));
        }
        self.requests.insert(id, parked);
    }

    /// Takes a request out.
    pub(crate) fn take(&mut self, id: ParkedId) -> Option<Parked> {
        let parked = self.requests.remove(&id)?;
        if let Some(deadline_ms) = parked.deadline_ms {
            self.timers.remove(&(deadline_ms, id));
        }
        Some(parked)
    }

    /// Takes out the next request whose time is up.
    pub(crate) fn expired(&mut self, now_ms: i64) -> Option<(ParkedId, Parked)> {
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

impl Parked {
    /// The request is answered.
    pub(crate) fn done(&self, output: Output) -> Done {
        Done { conn: self.conn, slot: self.slot, output, flow: Flow::Go }
    }

    /// The request cannot be answered.
    pub(crate) fn failed(&self) -> Done {
        Done { conn: self.conn, slot: self.slot, output: Output::default(), flow: Flow::Close }
    }
}
