//! Dispatch: the broker as the net module sees it. Frames come in; replies and delayed requests go
//! out.
//!
//! All Produce requests of one readable event are staged, then committed together, once per
//! partition. Any other request of the event runs after that commit, so that a client reads its own
//! writes. Requests behind one that the policy decides wait for the decision. Replies always leave
//! in the order of the requests.
//! Threads: each method runs on the reactor thread whose state it is given. None blocks.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::broker::handlers::{handler, policy, produce};
use crate::broker::requests::apis::{self, Run};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, Outcome, POOL_WAIT_MS};
use crate::broker::requests::connection::{Behind, ConnectionContext};
use crate::broker::requests::delayed::{
    Delayed, DelayedRequest, DelayedRequests, NowWaits, Progress, ThreadState, Wake, Work,
};
use crate::broker::requests::head::{Head, Request};
use crate::broker::requests::meter::Meter;
use crate::broker::requests::reply::{Output, Replies};
use crate::broker::requests::service::{At, ConnId, Done, Flow, Peer, Received, Service};
use crate::broker::state::fetch_sessions::ConnectionSessions;
use crate::broker::state::groups;
use crate::broker::state::waking::{DelayedId, Wakes};
use crate::protocol::header::RequestHeader;
use crate::protocol::{api_versions, consumer_group_heartbeat, fetch};
use crate::wire::Reader;
use crate::work;

/// A request of this size that is answered here is paid for from the pool while it is handled ...
const LARGE: usize = 64 << 10;
/// ... with so many times its size: what is decoded of it, looked up for it, and answered.
const LARGE_COSTS: usize = 16;

/// How often a group request is retried while groups are being loaded after the start.
const GROUPS_WAIT_MS: i32 = 5;

/// Requests that occupy a network thread for this long are logged at info.
const SLOW_MS: i64 = 1_000;

/// Characters of a client id in a log line.
const CLIENT_SHOWN: usize = 80;

/// The state of one network thread.
#[derive(Debug)]
pub struct NetworkThread {
    state: ThreadState,
    produce: produce::Scratch,
}

impl Service for Broker {
    type Thread = NetworkThread;
    type Session = ConnectionContext;
    type Wake = Wake;

    fn thread(&self, index: usize) -> NetworkThread {
        let state = ThreadState {
            index,
            image: self.image.load_full(),
            image_number: 0,
            delayed: DelayedRequests::default(),
            look: Vec::new(),
            groups: groups::GroupScratch::default(),
        };
        NetworkThread { state, produce: produce::Scratch::default() }
    }

    fn opened(&self, _: &mut NetworkThread, peer: Peer) -> ConnectionContext {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let own = &self.settings.load().inter_broker_listener;
        let is_brokers_own = own.as_ref() == Some(&peer.listener);
        ConnectionContext {
            peer,
            is_brokers_own,
            connection,
            is_speaker: false,
            account: None,
            delayed: Vec::new(),
            fetch_sessions: ConnectionSessions::default(),
            behind: Behind::IsNext,
        }
    }

    fn connection_throttle_ms(&self, thread: &mut NetworkThread, address: IpAddr) -> Option<i64> {
        let thread = &mut thread.state;
        self.refresh(thread);
        let table = thread.image.quotas.as_ref()?;
        self.quotas.refuses(table, address, self.clock.monotonic_ms())
    }

    fn event(&self, at: At<'_, Self>, received: Received<'_>, replies: &mut Replies) -> Flow {
        let NetworkThread { state, produce } = at.thread;
        self.refresh(state);
        let image = Arc::clone(&state.image);
        let mut staging = produce::Staging::new(&image, self.clock.wall_ms(), produce);
        let mut meter = Meter::of(self, at.session, image.quotas.as_ref());
        let mut flow = Flow::Go;
        let before = work::done();
        let began_ms = self.clock.monotonic_ms();
        for (number, frame) in received.iter().enumerate() {
            let had_its_share = work::since(before) >= work::SHARE;
            if replies.is_full() || replies.is_muted() || had_its_share {
                replies.leave(received.frames.len() - number);
                break;
            }
            work::add(work::REQUEST + frame.len());
            let outcome = match read(frame) {
                None => Ok(Flow::Close),
                Some(request) => {
                    say(&request, &at.session.peer);
                    meter.open(at.session, &request);
                    let (thread, session) = (&mut *state, &mut *at.session);
                    let replies = &mut *replies;
                    let mut call =
                        Call { broker: self, thread, session, replies, request, lease: None };
                    match call.may_ask(call.request.head.api) {
                        true => answer(&mut call, &mut staging),
                        false => Ok(Flow::Close),
                    }
                }
            };
            meter.count(at.session);
            let left = received.frames.len() - number;
            match (std::mem::take(&mut at.session.behind), &outcome) {
                (_, Ok(Flow::Close) | Err(_)) | (Behind::IsNext, _) => {}
                (Behind::WaitsForTheAnswer, _) => {
                    flow = Flow::Hold;
                    replies.leave(left - 1);
                    break;
                }
                (Behind::WaitsWithIt, _) => {
                    replies.leave(left);
                    break;
                }
            }
            match outcome {
                Ok(Flow::Go) => {}
                Ok(Flow::Hold) => flow = Flow::Hold,
                Ok(Flow::Close) | Err(_) => {
                    flow = Flow::Close;
                    break;
                }
            }
        }
        let finished = staging.finish(self, state, (at.session, replies));
        meter.count(at.session);
        self.work.note(before);
        let took_ms = self.clock.monotonic_ms() - began_ms;
        if took_ms >= SLOW_MS {
            say_slow(&received, &at.session.peer, took_ms);
        }
        match finished {
            Flow::Close => Flow::Close,
            _ => flow,
        }
    }

    fn wake(&self, thread: &mut NetworkThread, wakes: &mut Vec<Wake>, done: &mut Vec<Done>) {
        let thread = &mut thread.state;
        self.refresh(thread);
        let before = work::done();
        for wake in wakes.drain(..) {
            match wake {
                Wake::Recheck(id) => self.look(thread, id, done),
                Wake::Answer(id, output) => {
                    if let Some(delayed) = thread.delayed.take(id) {
                        done.push(delayed.done(output));
                    }
                }
                Wake::Created(id, refused) => {
                    let Some(delayed) = thread.delayed.take(id) else { continue };
                    let DelayedRequest { conn, slot, head, deadline_ms, operation, lease: _lease } =
                        delayed;
                    let mut at = Delayed { broker: self, thread, id, head, deadline_ms };
                    if let Some(output) = operation.topics_created(&mut at, refused) {
                        done.push(Done { conn, slot, output, flow: Flow::Go });
                    }
                }
                Wake::Waits(id, now) => self.now_waits(thread, id, now),
                Wake::Fail(id) => {
                    if let Some(delayed) = thread.delayed.take(id) {
                        done.push(delayed.failed());
                    }
                }
            }
        }
        self.look_again(thread, done);
        self.work.note(before);
    }

    fn expire(&self, thread: &mut NetworkThread, now_ms: i64, done: &mut Vec<Done>) {
        let thread = &mut thread.state;
        self.refresh(thread);
        let before = work::done();
        self.look_again(thread, done);
        while let Some((id, delayed)) = thread.delayed.expired(now_ms) {
            self.go_on(thread, (id, delayed), true, done);
        }
        self.work.note(before);
    }

    fn next_deadline(&self, thread: &NetworkThread) -> Option<i64> {
        let thread = &thread.state;
        if thread.look.is_empty() { thread.delayed.next_deadline() } else { Some(0) }
    }

    fn closed(&self, thread: &mut NetworkThread, _: ConnId, session: ConnectionContext) {
        let thread = &mut thread.state;
        for id in session.delayed {
            if let Some(delayed) = thread.delayed.take(id) {
                delayed.operation.cancel(self, thread.index, id);
            }
        }
        self.fetch_sessions.closed(session.connection, &session.fetch_sessions);
        let now_ms = self.clock.monotonic_ms();
        if session.is_speaker && self.groups.snapshots.closed(session.connection, now_ms) {
            self.policy.hurry();
        }
    }
}

impl Broker {
    /// Retries the delayed requests of this thread that the thread itself woke.
    fn look_again(&self, thread: &mut ThreadState, done: &mut Vec<Done>) {
        let mut look = std::mem::take(&mut thread.look);
        for id in look.drain(..) {
            self.look(thread, id, done);
        }
        if thread.look.is_empty() {
            thread.look = look;
        }
    }

    /// Retries a delayed request. It may have been answered already.
    fn look(&self, thread: &mut ThreadState, id: DelayedId, done: &mut Vec<Done>) {
        if let Some(delayed) = thread.delayed.take(id) {
            self.go_on(thread, (id, delayed), false, done);
        }
    }

    /// Answers a delayed request or keeps it; `is_late`: its time is up.
    fn go_on(
        &self,
        thread: &mut ThreadState,
        (id, delayed): (DelayedId, DelayedRequest),
        is_late: bool,
        done: &mut Vec<Done>,
    ) {
        let DelayedRequest { conn, slot, head, deadline_ms, operation, lease } = delayed;
        let mut at = Delayed { broker: self, thread, id, head, deadline_ms };
        let (output, flow) = match operation.try_complete(&mut at, is_late) {
            Progress::Answered(output) => (output, Flow::Go),
            Progress::Fails => (Output::default(), Flow::Close),
            Progress::Waits(operation) => {
                let deadline_ms = deadline_ms.filter(|_| !is_late);
                let delayed = DelayedRequest { conn, slot, head, deadline_ms, operation, lease };
                return thread.delayed.keep(id, delayed);
            }
            Progress::Works(Work { account, run }) => {
                let operation = self.work_on((thread.index, id), account, run);
                let delayed =
                    DelayedRequest { conn, slot, head, deadline_ms: None, operation, lease };
                return thread.delayed.keep(id, delayed);
            }
        };
        done.push(Done { conn, slot, output, flow });
    }

    /// A request comes back from a worker and waits for something else.
    fn now_waits(&self, thread: &mut ThreadState, id: DelayedId, now: NowWaits) {
        let Some(mut delayed) = thread.delayed.take(id) else { return };
        delayed.operation = now.operation;
        delayed.deadline_ms = Some(now.deadline_ms);
        if delayed.operation.begin(thread.index, id) {
            thread.look.push(id);
        }
        thread.delayed.keep(id, delayed);
    }

    /// Collects the requests to wake when watermarks move on this thread.
    pub(crate) fn wakes<'a>(&'a self, thread: &'a mut ThreadState) -> Wakes<'a> {
        Wakes { here: Some((thread.index, &mut thread.look)), waker: self }
    }
}

/// Reads the header of a frame. `None` if it is malformed or its API or version is not served.
fn read(frame: &[u8]) -> Option<Request<'_>> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader).ok()?;
    let api = apis::find(header.api_key)?;
    let (version, correlation_id) = (header.api_version, header.correlation_id);
    let known = api.serves(version) || api.key == api_versions::KEY;
    known.then_some(Request {
        head: Head { api, version, correlation_id, throttle_time_ms: 0 },
        client_id: header.client_id,
        size: frame.len(),
        body: reader.rest(),
    })
}

fn answer<'e>(call: &mut Call<'_, 'e>, staging: &mut produce::Staging<'e, '_>) -> Outcome {
    let run = match call.request.head.api.run {
        Run::Staged => return staging.stage(call),
        other => other,
    };
    if staging.finish(call.broker, call.thread, (call.session, call.replies)) == Flow::Close {
        return Ok(Flow::Close);
    }
    if call.broker.waits_for_groups(call.request.head.api) {
        call.session.behind = Behind::WaitsWithIt;
        call.replies.mute(GROUPS_WAIT_MS);
        return Ok(Flow::Go);
    }
    let key = call.request.head.api.key;
    // A Fetch may be a follower's, to which no quota applies.
    if key != fetch::KEY {
        call.throttle_for_time();
    }
    let handle = match handler(key) {
        Some(handle) if run == Run::Network => handle,
        _ => return policy::handle(call),
    };
    // What the policy decides of a heartbeat is paid for as a tree.
    if call.request.size >= LARGE && key != consumer_group_heartbeat::KEY {
        let cost = call.request.size.saturating_mul(LARGE_COSTS);
        call.lease = call.broker.memory.lease(cost);
        if call.lease.is_none() {
            call.session.behind = Behind::WaitsWithIt;
            call.replies.mute(POOL_WAIT_MS);
            return Ok(Flow::Go);
        }
    }
    handle(call)
}

/// Logs the request if request logging is on. Otherwise it costs a load and a branch.
#[inline]
fn say(request: &Request<'_>, peer: &Peer) {
    tracing::debug!(
        target: "krust::requests",
        api = request.head.api.name,
        version = request.head.version,
        client = shown(request),
        peer = %peer.remote,
        "request",
    );
}

/// Logs that the requests of one event occupied the network thread for long.
#[cold]
fn say_slow(received: &Received<'_>, peer: &Peer, took_ms: i64) {
    let Some(first) = received.iter().next().and_then(read) else { return };
    tracing::info!(
        first = first.head.api.name,
        requests = received.frames.len(),
        client = shown(&first),
        peer = %peer.remote,
        "requests took {took_ms} ms",
    );
}

/// A client id as a log line shows it.
fn shown(request: &Request<'_>) -> Option<String> {
    request.client_id.map(|id| id.chars().take(CLIENT_SHOWN).collect())
}
