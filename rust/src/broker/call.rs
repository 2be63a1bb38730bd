//! One request on its way through a handler: what it said in its header, where it is handled, and
//! how it is answered.
//!
//! Replies are encoded straight behind the ones before them, so that a burst leaves in one write.
//! Format: size int32 (of what follows), response header, response; ranges of files where the
//! message has holes, each at the place of its hole.
//! Threads: lives on the connection's reactor thread, for the length of one request.

use std::sync::Arc;

use parking_lot::Mutex;

use super::apis::Api;
use super::image::ClusterImage;
use super::parked::{Parked, Wait};
use super::policy::{self, Asked, Client, Event, Question, Slices};
use super::workers::Worked;
use super::{Behind, Broker, Output, ParkedId, Replies, Session, ThreadState};
use crate::memory::Lease;
use crate::protocol::value::Value;
use crate::storage::FileRange;
use crate::wire::{Reader, Sink, Writer};
use crate::work;

/// What waits and is as large as that is paid for from the broker's pool. What is smaller counts to
/// its connection's limit only.
const LEASED_FROM: usize = 4 << 10;
/// Where the pool has no room, nothing more is read of a connection for so long.
pub(super) const POOL_WAIT_MS: i32 = 20;

/// What a reply needs to know of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) api: &'static Api,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    /// How long the client is told to wait before it asks again.
    pub(crate) throttle_time_ms: i32,
}

/// A request, its body not yet read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'f> {
    pub(crate) head: Head,
    pub(crate) client_id: Option<&'f str>,
    /// The bytes of the whole request.
    pub(crate) size: usize,
    pub(crate) body: &'f [u8],
}

/// A request at its handler.
pub(crate) struct Call<'c, 'f> {
    pub(crate) broker: &'c Broker,
    pub(crate) thread: &'c mut ThreadState,
    pub(crate) session: &'c mut Session,
    pub(crate) replies: &'c mut Replies,
    pub(crate) request: Request<'f>,
    /// Pays for a large one while it is handled.
    pub(crate) lease: Option<Lease>,
}

/// The file ranges that fill the holes of one message: for each hole, how many of `ranges`.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    pub(crate) counts: Vec<usize>,
    pub(crate) ranges: Vec<FileRange>,
}

impl Fill {
    /// The next hole is filled with these.
    pub(crate) fn add(&mut self, ranges: Vec<FileRange>) {
        self.counts.push(ranges.len());
        self.ranges.extend(ranges);
    }
}

impl Head {
    /// Appends the reply that `encode` writes.
    pub(crate) fn reply(self, output: &mut Output, encode: impl FnOnce(&mut Writer, i16)) {
        self.reply_with(output, Fill::default(), encode);
    }

    /// Appends the reply that `encode` writes, its holes filled from files.
    pub(crate) fn reply_with(
        self,
        output: &mut Output,
        fill: Fill,
        encode: impl FnOnce(&mut Writer, i16),
    ) {
        let mut writer = Writer { buf: std::mem::take(&mut output.buf), holes: Vec::new() };
        let start = writer.buf.len();
        writer.i32(0);
        writer.i32(self.correlation_id);
        if self.api.response_is_tagged(self.version) {
            writer.unsigned_varint(0);
        }
        let body = writer.buf.len();
        encode(&mut writer, self.version);
        if self.throttle_time_ms > 0 {
            output.mute_ms = output.mute_ms.max(self.throttle_time_ms);
            self.put_throttle(writer.buf.get_mut(body..).unwrap_or_default());
        }
        let in_files: usize = fill.ranges.iter().map(|range| range.len).sum();
        let size = writer.buf.len() - start - 4 + in_files;
        let size = u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes();
        if let Some(prefix) = writer.buf.get_mut(start..start + 4) {
            prefix.copy_from_slice(&size);
        }
        work::add(writer.buf.len() - start);
        output.buf = writer.buf;
        let mut ranges = fill.ranges.into_iter();
        for (hole, count) in writer.holes.iter().zip(fill.counts) {
            output.files.extend(ranges.by_ref().take(count).map(|range| (*hole, range)));
        }
    }

    /// Writes the throttle time into a response that has one at a known place.
    #[cold]
    fn put_throttle(self, response: &mut [u8]) {
        let at = self.api.throttle_at(self.version);
        if let Some(place) = at.and_then(|at| response.get_mut(at..at + 4)) {
            place.copy_from_slice(&self.throttle_time_ms.to_be_bytes());
        }
    }

    /// The reply alone.
    pub(crate) fn output(self, encode: impl FnOnce(&mut Writer, i16)) -> Output {
        let mut output = Output::default();
        self.reply(&mut output, encode);
        output
    }
}

impl<'f> Call<'_, 'f> {
    /// The request's version.
    pub(crate) fn version(&self) -> i16 {
        self.request.head.version
    }

    /// Whether an API is served on the listener of this connection.
    pub(crate) fn may_ask(&self, api: &Api) -> bool {
        !api.is_between_brokers() || self.session.is_brokers_own
    }

    /// The reply says that the client is to wait so long, and nothing more of it is read meanwhile.
    pub(crate) fn throttle(&mut self, throttle_time_ms: i32) {
        let head = &mut self.request.head;
        head.throttle_time_ms = head.throttle_time_ms.max(throttle_time_ms);
        self.replies.mute(throttle_time_ms);
    }

    /// Reads the request's body.
    pub(crate) fn reader(&self) -> Reader<'f> {
        Reader::new(self.request.body)
    }

    /// The image that this request sees.
    pub(crate) fn image(&self) -> Arc<ClusterImage> {
        Arc::clone(&self.thread.image)
    }

    /// Answers at once.
    pub(crate) fn reply(&mut self, encode: impl FnOnce(&mut Writer, i16)) {
        self.request.head.reply(self.replies.ready(), encode);
    }

    /// Keeps the request until it is woken or its time is up.
    pub(crate) fn park(&mut self, deadline_ms: Option<i64>, wait: Wait) -> ParkedId {
        let id = self.thread.parked.name();
        self.park_as(id, deadline_ms, wait);
        id
    }

    /// Keeps the request under a name it has already.
    pub(crate) fn park_as(&mut self, id: ParkedId, deadline_ms: Option<i64>, wait: Wait) {
        let bytes = self.request.size;
        // What waits for the policy is paid for as a tree.
        let is_leased = bytes >= LEASED_FROM && !matches!(wait, Wait::Policy(_));
        let lease = if is_leased { self.broker.memory.lease(bytes) } else { None };
        if is_leased && lease.is_none() {
            self.replies.mute(POOL_WAIT_MS);
        }
        self.park_paid(id, (deadline_ms, wait), lease);
    }

    fn park_paid(
        &mut self,
        id: ParkedId,
        (deadline_ms, wait): (Option<i64>, Wait),
        lease: Option<Lease>,
    ) {
        let slot = self.replies.park_holding(self.request.size);
        let conn = self.session.peer.conn;
        let head = self.request.head;
        self.thread.parked.begin(
            id,
            Parked { conn, slot, head, deadline_ms, wait, lease },
            self.session,
        );
    }

    /// Has a worker go on with the request. What the client sent behind it is handled after the
    /// answer. `lease` pays for what the job holds.
    pub(crate) fn hand_over(
        &mut self,
        lease: Option<Lease>,
        run: impl FnOnce(&Broker) -> Worked + Send + 'static,
    ) {
        let id = self.thread.parked.name();
        let account = self.session.account.clone();
        let wait = self.broker.work_on((self.thread.index, id), account, run);
        self.park_paid(id, (None, wait), lease);
        self.session.behind = Behind::WaitsForTheAnswer;
    }

    /// Until when the policy is to have decided something, where it may take `more_ms` beyond what
    /// is usual.
    pub(crate) fn decision_deadline_ms(&self, more_ms: i64) -> i64 {
        let usual_ms = self.broker.settings.load().policy_timeout_ms;
        self.broker.clock.monotonic_ms().saturating_add(usual_ms).saturating_add(more_ms)
    }

    /// Hands the request to the policy, and parks it until the answer is there. To the answer's
    /// list is added what was `settled` here; `lease` pays for the request.
    pub(crate) fn ask_policy(&mut self, request: Value, settled: Vec<Value>, lease: Lease) {
        let thread = self.thread.index;
        let parked = self.thread.parked.name();
        let head = self.request.head;
        let client = self.client();
        let answer_max = self.broker.settings.load().policy_response_bytes;
        let (request, slices, lease) = match Slices::of((head, &client), request, answer_max, lease)
        {
            Ok((first, slices)) => (first, Some(Mutex::new(slices)), None),
            Err((request, lease)) => (request, None, Some(Arc::new(lease))),
        };
        let question = Arc::new(Question { head, settled, slices });
        let ticket = self.broker.tickets.open(Asked::Request { thread, parked, question });
        let deadline_ms = self.decision_deadline_ms(policy::waits_ms(&request));
        self.park_as(parked, Some(deadline_ms), Wait::Policy(ticket));
        let (api, version) = (head.api.name, head.version);
        self.submit(Event { ticket, api, version, request, client, lease });
    }

    /// Hands an event of this request to the policy. What the client sent behind it is handled
    /// after the answer.
    pub(crate) fn submit(&mut self, event: Event) {
        self.session.behind = Behind::WaitsForTheAnswer;
        self.broker.policy.submit(event);
    }

    /// Who asks, as the policy is told.
    pub(crate) fn client(&self) -> Client {
        Client {
            id: self.request.client_id.map(str::to_owned),
            host: self.session.peer.remote.ip().to_string(),
            listener: Arc::clone(&self.session.peer.listener),
            connection: self.session.connection,
        }
    }
}
