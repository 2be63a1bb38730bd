//! Dispatch: implements [`Service`] for the broker. It takes frames from the net module, calls the
//! handlers, and returns replies and delayed requests.
//!
//! All Produce requests of one readable event are staged, then committed together, once per
//! partition. Any other request of the event runs after that commit, so that a client reads its own
//! writes. Requests after one that the policy decides wait for the decision. Replies always leave
//! in the order of the requests.
//! Threads: each method runs on the network thread whose state it is given. None waits but for a
//! disk: an append to a group or a transaction may begin a segment.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::broker::handlers::{handler, policy, produce};
use crate::broker::requests::apis::{self, HandlerKind};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult, POOL_WAIT_MS};
use crate::broker::requests::connection::{ConnectionContext, FollowingFrames};
use crate::broker::requests::delayed::{
    DelayedContext, DelayedRequest, DelayedRequests, NextWait, OperationProgress, ThreadState,
    Wake, WorkerTask,
};
use crate::broker::requests::head::{Head, Request};
use crate::broker::requests::login::Login;
use crate::broker::requests::meter::Meter;
use crate::broker::requests::reply::{Output, Replies};
use crate::broker::requests::service::{
    ConnId, DelayedReply, EventContext, Flow, Peer, ReceivedFrames, Service,
};
use crate::broker::state::acls::host_text;
use crate::broker::state::fetch_sessions::ConnectionSessions;
use crate::broker::state::groups;
use crate::broker::state::refused_batches::SharedRefusedBatches;
use crate::broker::state::waking::{DelayedId, Wakes};
use crate::protocol::header::RequestHeader;
use crate::protocol::{api_versions, consumer_group_heartbeat, fetch};
use crate::transport::tls::subject;
use crate::wire::Reader;
use crate::work;

/// A request of at least this size leases memory from the pool while it is handled ...
const LARGE: usize = 64 << 10;
/// ... namely this many times its size, for the decoded request, the objects it names, and the
/// reply.
const LARGE_COSTS: usize = 16;

/// How often a group request is retried while groups are being loaded after the start.
const GROUPS_WAIT_MS: i32 = 5;

/// A request that occupies a network thread for this long is logged at info.
const SLOW_MS: i64 = 1_000;

/// Characters of a client id in a log line.
const CLIENT_SHOWN: usize = 80;

/// The state of one network thread.
#[derive(Debug)]
pub struct NetworkThread {
    state: ThreadState,
    produce: produce::ProduceScratch,
}

impl Service for Broker {
    type Thread = NetworkThread;
    type ConnectionContext = ConnectionContext;
    type Wake = Wake;

    fn thread(&self, index: usize) -> NetworkThread {
        let state = ThreadState {
            index,
            image: self.image.load_full(),
            image_number: 0,
            delayed: DelayedRequests::default(),
            to_retry: Vec::new(),
            groups: groups::GroupScratch::default(),
        };
        NetworkThread { state, produce: produce::ProduceScratch::default() }
    }

    fn opened(&self, _: &mut NetworkThread, peer: Peer) -> ConnectionContext {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let settings = self.settings.load();
        let is_brokers_own = settings.inter_broker_listener.as_ref().is_some_and(|own| {
            *own == peer.listener || settings.also_inter_broker.contains(&peer.listener)
        });
        let is_administrators =
            is_brokers_own || settings.lone_listener.as_ref() == Some(&peer.listener);
        let login = self.logins.at(&peer.listener);
        ConnectionContext {
            login: login.map(|listener| Box::new(Login::new(listener))),
            user: Arc::clone(&self.anonymous),
            host: self
                .authorizer
                .get()
                .map_or_else(Arc::default, |_| host_text(peer.remote.ip()).into()),
            class_acls: None,
            acl_client: RefCell::default(),
            peer,
            is_brokers_own,
            is_administrators,
            number,
            has_group_member: false,
            account: None,
            delayed: Vec::new(),
            fetch_sessions: ConnectionSessions::default(),
            refused_batches: SharedRefusedBatches::default(),
            following_frames: FollowingFrames::HandleNext,
        }
    }

    fn certified(&self, connection: &mut ConnectionContext, certificate: &[u8]) -> Flow {
        // A login says who the client is; its certificate does not.
        if connection.login.is_some() {
            return Flow::Go;
        }
        let listener = &connection.peer.listener;
        let name = subject(certificate)
            .map_err(|error| format!("of its certificate, {error}"))
            .and_then(|subject| self.logins.certified_name(listener, &subject));
        match name {
            Ok(name) => {
                connection.user = name.into();
                Flow::Go
            }
            Err(reason) => {
                self.login_failed(&connection.peer, &reason);
                Flow::Close
            }
        }
    }

    fn connection_throttle_ms(&self, thread: &mut NetworkThread, address: IpAddr) -> Option<i64> {
        let thread = &mut thread.state;
        self.refresh(thread);
        let table = thread.image.quotas.as_ref()?;
        self.quotas.refuses(table, address, self.clock.monotonic_ms())
    }

    fn is_authenticated(&self, connection: &ConnectionContext) -> bool {
        connection.login.as_ref().is_none_or(|login| login.user.is_some())
    }

    fn event(
        &self,
        at: EventContext<'_, Self>,
        received: ReceivedFrames<'_>,
        replies: &mut Replies,
    ) -> Flow {
        let NetworkThread { state, produce } = at.thread;
        self.refresh(state);
        let image = Arc::clone(&state.image);
        let mut staging = produce::StagedRequests::new(&image, self.clock.wall_ms(), produce);
        let mut meter = Meter::of(self, at.connection, image.quotas.as_ref());
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
            let login = at.connection.login.as_ref();
            let token = login.and_then(|login| login.raw_token(frame));
            let outcome = match token.or_else(|| read(frame)) {
                None => Ok(Flow::Close),
                Some(request) => {
                    log_request(&request, &at.connection.peer);
                    meter.open(at.connection, &request);
                    let (thread, connection) = (&mut *state, &mut *at.connection);
                    let replies = &mut *replies;
                    let mut call =
                        Call { broker: self, thread, connection, replies, request, lease: None };
                    match call.is_admitted() {
                        true => answer(&mut call, &mut staging),
                        false => Ok(Flow::Close),
                    }
                }
            };
            meter.count(at.connection);
            let left = received.frames.len() - number;
            match (std::mem::take(&mut at.connection.following_frames), &outcome) {
                (_, Ok(Flow::Close) | Err(_)) | (FollowingFrames::HandleNext, _) => {}
                (next @ (FollowingFrames::WaitForAnswer | FollowingFrames::WaitForSlot), _) => {
                    flow = Flow::Hold;
                    replies.leave(left - usize::from(next == FollowingFrames::WaitForAnswer));
                    break;
                }
                (FollowingFrames::WaitForRetry, _) => {
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
        let finished = staging.finish(self, state, (at.connection, replies));
        meter.count(at.connection);
        self.work.note(before);
        let took_ms = self.clock.monotonic_ms() - began_ms;
        if took_ms >= SLOW_MS {
            log_slow_event(&received, &at.connection.peer, took_ms);
        }
        if finished == Flow::Close { Flow::Close } else { flow }
    }

    fn wake(
        &self,
        thread: &mut NetworkThread,
        wakes: &mut Vec<Wake>,
        done: &mut Vec<DelayedReply>,
    ) {
        let thread = &mut thread.state;
        self.refresh(thread);
        let before = work::done();
        for wake in wakes.drain(..) {
            match wake {
                Wake::Recheck(id) => self.retry(thread, id, done),
                Wake::Answer(id, output) => {
                    if let Some(delayed) = thread.delayed.take(id) {
                        done.push(delayed.done(output));
                    }
                }
                Wake::Created(id, refused) => {
                    let Some(delayed) = thread.delayed.take(id) else { continue };
                    let DelayedRequest { conn, slot, head, deadline_ms, operation, lease: _lease } =
                        delayed;
                    let mut at = DelayedContext { broker: self, thread, id, head, deadline_ms };
                    if let Some(output) = operation.topics_created(&mut at, refused) {
                        done.push(DelayedReply { conn, slot, output, flow: Flow::Go });
                    }
                }
                Wake::Waits(id, now) => self.keep_waiting(thread, id, now),
                Wake::Fail(id) => {
                    if let Some(delayed) = thread.delayed.take(id) {
                        done.push(delayed.failed());
                    }
                }
            }
        }
        self.retry_woken(thread, done);
        self.work.note(before);
    }

    fn expire(&self, thread: &mut NetworkThread, now_ms: i64, done: &mut Vec<DelayedReply>) {
        let thread = &mut thread.state;
        self.refresh(thread);
        let before = work::done();
        self.retry_woken(thread, done);
        while let Some((id, delayed)) = thread.delayed.expired(now_ms) {
            self.complete_or_keep(thread, (id, delayed), true, done);
        }
        self.work.note(before);
    }

    fn next_deadline(&self, thread: &NetworkThread) -> Option<i64> {
        let thread = &thread.state;
        if thread.to_retry.is_empty() { thread.delayed.next_deadline() } else { Some(0) }
    }

    fn closed(&self, thread: &mut NetworkThread, _: ConnId, connection: ConnectionContext) {
        let thread = &mut thread.state;
        for id in connection.delayed {
            if let Some(delayed) = thread.delayed.take(id) {
                delayed.operation.cancel(self, thread.index, id);
            }
        }
        self.fetch_sessions.closed(connection.number, &connection.fetch_sessions);
        let now_ms = self.clock.monotonic_ms();
        if connection.has_group_member && self.groups.snapshots.closed(connection.number, now_ms) {
            self.policy.hurry();
        }
    }
}

impl Broker {
    /// Retries the delayed requests of this thread that the thread itself woke.
    fn retry_woken(&self, thread: &mut ThreadState, done: &mut Vec<DelayedReply>) {
        let mut woken = std::mem::take(&mut thread.to_retry);
        for id in woken.drain(..) {
            self.retry(thread, id, done);
        }
        if thread.to_retry.is_empty() {
            thread.to_retry = woken;
        }
    }

    /// Retries a delayed request. It may have been answered already.
    fn retry(&self, thread: &mut ThreadState, id: DelayedId, done: &mut Vec<DelayedReply>) {
        if let Some(delayed) = thread.delayed.take(id) {
            self.complete_or_keep(thread, (id, delayed), false, done);
        }
    }

    /// Answers a delayed request or keeps it. `is_late`: its deadline has passed.
    fn complete_or_keep(
        &self,
        thread: &mut ThreadState,
        (id, delayed): (DelayedId, DelayedRequest),
        is_late: bool,
        done: &mut Vec<DelayedReply>,
    ) {
        let DelayedRequest { conn, slot, head, deadline_ms, operation, lease } = delayed;
        let mut at = DelayedContext { broker: self, thread, id, head, deadline_ms };
        let (output, flow) = match operation.try_complete(&mut at, is_late) {
            OperationProgress::Answered(output) => (output, Flow::Go),
            OperationProgress::Ends(output) => (output, Flow::Close),
            OperationProgress::Fails => (Output::default(), Flow::Close),
            OperationProgress::Waits(operation) => {
                let deadline_ms = deadline_ms.filter(|_| !is_late);
                let delayed = DelayedRequest { conn, slot, head, deadline_ms, operation, lease };
                return thread.delayed.keep(id, delayed);
            }
            OperationProgress::WaitsFor(NextWait { operation, deadline_ms }) => {
                let deadline_ms = Some(deadline_ms);
                let delayed = DelayedRequest { conn, slot, head, deadline_ms, operation, lease };
                return thread.delayed.keep(id, delayed);
            }
            OperationProgress::Works(WorkerTask { account, run }) => {
                let operation = self.work_on((thread.index, id), account, run);
                let delayed =
                    DelayedRequest { conn, slot, head, deadline_ms: None, operation, lease };
                return thread.delayed.keep(id, delayed);
            }
        };
        done.push(DelayedReply { conn, slot, output, flow });
    }

    /// A worker has done its part of a request, which now waits for something else.
    fn keep_waiting(&self, thread: &mut ThreadState, id: DelayedId, now: NextWait) {
        let Some(mut delayed) = thread.delayed.take(id) else { return };
        delayed.operation = now.operation;
        delayed.deadline_ms = Some(now.deadline_ms);
        if delayed.operation.begin(thread.index, id) {
            thread.to_retry.push(id);
        }
        thread.delayed.keep(id, delayed);
    }

    /// Collects the requests to wake when watermarks move on this thread.
    pub(crate) fn wakes<'a>(&'a self, thread: &'a mut ThreadState) -> Wakes<'a> {
        Wakes { here: Some((thread.index, &mut thread.to_retry)), waker: self }
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

fn answer<'e>(
    call: &mut Call<'_, 'e>,
    staging: &mut produce::StagedRequests<'e, '_>,
) -> HandlerResult {
    if call.waits_for_acls() {
        return Ok(Flow::Hold);
    }
    let run = match call.request.head.api.run {
        HandlerKind::Staged => return staging.stage(call),
        other => other,
    };
    if staging.finish(call.broker, call.thread, (call.connection, call.replies)) == Flow::Close {
        return Ok(Flow::Close);
    }
    if call.broker.waits_for_groups(call.request.head.api) {
        call.connection.following_frames = FollowingFrames::WaitForRetry;
        call.replies.mute(GROUPS_WAIT_MS);
        return Ok(Flow::Go);
    }
    let key = call.request.head.api.key;
    // A Fetch may be a follower's, to which no quota applies.
    if key != fetch::KEY {
        call.throttle_for_time();
    }
    let handle = match handler(key) {
        Some(handle) if run == HandlerKind::Network => handle,
        _ => return policy::handle(call),
    };
    // A heartbeat that the policy decides leases memory as a `Value`.
    if call.request.size >= LARGE && key != consumer_group_heartbeat::KEY {
        let cost = call.request.size.saturating_mul(LARGE_COSTS);
        call.lease = call.broker.memory.lease(cost);
        if call.lease.is_none() {
            call.connection.following_frames = FollowingFrames::WaitForRetry;
            call.replies.mute(POOL_WAIT_MS);
            return Ok(Flow::Go);
        }
    }
    handle(call)
}

/// Logs the request if request logging is on. Otherwise it costs a load and a branch.
#[inline]
fn log_request(request: &Request<'_>, peer: &Peer) {
    tracing::debug!(
        target: "krust::requests",
        api = request.head.api.name,
        version = request.head.version,
        client = shown_client_id(request),
        peer = %peer.remote,
        "request",
    );
}

/// Logs that the requests of one event occupied the network thread for long.
#[cold]
fn log_slow_event(received: &ReceivedFrames<'_>, peer: &Peer, took_ms: i64) {
    let Some(first) = received.iter().next().and_then(read) else { return };
    tracing::info!(
        first = first.head.api.name,
        requests = received.frames.len(),
        client = shown_client_id(&first),
        peer = %peer.remote,
        "requests took {took_ms} ms",
    );
}

/// A client id as a log line shows it.
fn shown_client_id(request: &Request<'_>) -> Option<String> {
    request.client_id.map(|id| id.chars().take(CLIENT_SHOWN).collect())
}
