//! [`Call`]: one request while its handler runs, with the state of its thread and connection.
//!
//! Threads: it exists on the connection's network thread while one request is handled.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::policy::{ClientProof, Event, RequestClient, Ticket};
use crate::broker::requests::access::{Access, Authorizer};
use crate::broker::requests::apis::{Api, Requester};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::connection::{ConnectionContext, FollowingFrames};
use crate::broker::requests::decisions::{
    self, AnswerFilter, PolicyRequest, RequestSlices, TicketHolder,
};
use crate::broker::requests::delayed::{
    DelayedContext, DelayedOperation, DelayedRequest, OperationProgress, ThreadState, WorkResult,
};
use crate::broker::requests::head::{Head, Request};
use crate::broker::requests::reply::Replies;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::AclClient;
use crate::broker::state::class_acls::ConnectedClient;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::logins::ANONYMOUS;
use crate::broker::state::waking::DelayedId;
use crate::memory::Lease;
use crate::protocol::value::Value;
use crate::wire::{DecodeError, Reader, Writer};

/// A handler's result: how the connection goes on, or why the bytes are no request.
pub(crate) type HandlerResult = Result<Flow, DecodeError>;

/// A delayed request of at least this size takes memory from the broker's pool. A smaller one
/// counts towards its connection's limit only.
const LEASED_FROM: usize = 4 << 10;
/// How long a connection is not read if the pool has no memory left.
pub(crate) const POOL_WAIT_MS: i32 = 20;

/// A request while its handler runs.
pub(crate) struct Call<'c, 'f> {
    pub(crate) broker: &'c Broker,
    pub(crate) thread: &'c mut ThreadState,
    pub(crate) connection: &'c mut ConnectionContext,
    pub(crate) replies: &'c mut Replies,
    pub(crate) request: Request<'f>,
    /// The memory of a large request while it is handled.
    pub(crate) lease: Option<Lease>,
}

impl<'f> Call<'_, 'f> {
    /// The request's version.
    pub(crate) fn version(&self) -> i16 {
        self.request.head.version
    }

    /// Whether the client may send this request: it has logged in, and the API is served on its
    /// listener.
    pub(crate) fn is_admitted(&self) -> bool {
        let api = self.request.head.api;
        let now_ms = || self.broker.clock.monotonic_ms();
        let login = self.connection.login.as_ref();
        login.is_none_or(|login| login.admits(api.key, now_ms)) && self.may_ask(api)
    }

    /// Whether an API is served on the listener of this connection.
    pub(crate) fn may_ask(&self, api: &Api) -> bool {
        match api.requester {
            Requester::Client => true,
            Requester::Broker | Requester::Controller => self.connection.is_brokers_own,
            Requester::Administrator => self.connection.is_administrators,
        }
    }

    /// What the client is allowed.
    pub(crate) fn access(&self) -> Access {
        let client = self.broker.authorizer.get().map(|authorizer| self.acl_client(authorizer));
        Access { client, api: self.request.head.api }
    }

    /// The client as ACLs see it: the same as before, unless they have changed.
    fn acl_client(&self, authorizer: &Authorizer) -> Arc<AclClient> {
        let connection = &*self.connection;
        let class = connection.class_acls.as_ref().map(ConnectedClient::acls);
        let (user, table) = (&connection.user, &self.thread.image.acls);
        let mut last = connection.acl_client.borrow_mut();
        if let Some(client) = &*last
            && client.is_current(user, (table, class))
        {
            return Arc::clone(client);
        }
        let beside_acls = authorizer.beside_acls(user);
        let client = Arc::new(match class {
            Some(acls) => AclClient::of_class(acls, beside_acls),
            None => AclClient::new(table, (user, &connection.host), beside_acls),
        });
        *last = Some(Arc::clone(&client));
        client
    }

    /// The access of the broker itself, to which everything is allowed.
    pub(crate) fn own_access(&self) -> Access {
        Access { client: None, api: self.request.head.api }
    }

    /// Throttles the client: the reply has this throttle time, and the connection is not read for
    /// as long.
    pub(crate) fn throttle(&mut self, throttle_time_ms: i32) {
        let head = &mut self.request.head;
        head.throttle_time_ms = head.throttle_time_ms.max(throttle_time_ms);
        self.replies.mute(throttle_time_ms);
    }

    /// Notes that a group member uses the connection.
    pub(crate) fn note_group_member(&mut self) {
        if !std::mem::replace(&mut self.connection.has_group_member, true) {
            self.broker.groups.snapshots.opened(self.connection.number);
        }
    }

    /// Reads the request's body.
    pub(crate) fn reader(&self) -> Reader<'f> {
        Reader::new(self.request.body)
    }

    /// The image that this request sees.
    pub(crate) fn image(&self) -> Arc<ClusterImage> {
        Arc::clone(&self.thread.image)
    }

    /// Writes the reply now.
    pub(crate) fn reply(&mut self, encode: impl FnOnce(&mut Writer, i16)) {
        self.request.head.reply(self.replies.ready(), encode);
    }

    /// Delays the request until it is woken or its deadline passes.
    pub(crate) fn delay(
        &mut self,
        deadline_ms: Option<i64>,
        operation: Box<dyn DelayedOperation>,
    ) -> DelayedId {
        let id = self.thread.delayed.name();
        self.delay_as(id, deadline_ms, operation);
        id
    }

    /// Delays the request under an id that it has already.
    pub(crate) fn delay_as(
        &mut self,
        id: DelayedId,
        deadline_ms: Option<i64>,
        operation: Box<dyn DelayedOperation>,
    ) {
        let bytes = self.request.size;
        let is_leased = bytes >= LEASED_FROM;
        let lease = if is_leased { self.broker.memory.lease(bytes) } else { None };
        if is_leased && lease.is_none() {
            self.replies.mute(POOL_WAIT_MS);
        }
        self.delay_paid(id, (deadline_ms, operation), lease);
    }

    fn delay_paid(
        &mut self,
        id: DelayedId,
        (deadline_ms, operation): (Option<i64>, Box<dyn DelayedOperation>),
        lease: Option<Lease>,
    ) {
        let slot = self.replies.reserve_holding(self.request.size);
        let conn = self.connection.peer.conn;
        let head = self.request.head;
        self.thread.delayed.begin(
            id,
            DelayedRequest { conn, slot, head, deadline_ms, operation, lease },
            self.connection,
        );
    }

    /// Passes the request to a worker. Later requests of the client are handled after the reply.
    /// `lease` is the memory that the job holds.
    pub(crate) fn hand_over(
        &mut self,
        lease: Option<Lease>,
        run: impl FnOnce(&Broker) -> WorkResult + Send + 'static,
    ) {
        let id = self.thread.delayed.name();
        let account = self.connection.account.clone();
        let wait = self.broker.work_on((self.thread.index, id), account, run);
        self.delay_paid(id, (None, wait), lease);
        self.connection.following_frames = FollowingFrames::WaitForAnswer;
    }

    /// Delays the request until another thread wakes it, for at most `wait_ms`. Later requests of
    /// the client are handled after the reply.
    pub(crate) fn wait(
        &mut self,
        mut operation: Box<dyn DelayedOperation>,
        (wait_ms, lease): (i64, Option<Lease>),
    ) {
        let id = self.thread.delayed.name();
        if operation.begin(self.thread.index, id) {
            self.thread.to_retry.push(id);
        }
        let deadline_ms = self.broker.clock.monotonic_ms().saturating_add(wait_ms);
        self.delay_paid(id, (Some(deadline_ms), operation), lease);
        self.connection.following_frames = FollowingFrames::WaitForAnswer;
    }

    /// Leaves the request, and handles it again when another thread wakes it, or after `wait_ms`.
    /// Later requests of the client are handled after it.
    pub(crate) fn handle_again(
        &mut self,
        (id, operation): (DelayedId, Box<dyn DelayedOperation>),
        wait_ms: i64,
    ) {
        let (slot, conn) = (self.replies.reserve(), self.connection.peer.conn);
        let deadline_ms = Some(self.broker.clock.monotonic_ms().saturating_add(wait_ms));
        let head = self.request.head;
        self.thread.delayed.begin(
            id,
            DelayedRequest { conn, slot, head, deadline_ms, operation, lease: None },
            self.connection,
        );
        self.connection.following_frames = FollowingFrames::WaitForSlot;
    }

    /// The deadline for the policy's decision: `more_ms` later than usual.
    pub(crate) fn decision_deadline_ms(&self, more_ms: i64) -> i64 {
        let usual_ms = self.broker.settings.load().policy_timeout_ms;
        self.broker.clock.monotonic_ms().saturating_add(usual_ms).saturating_add(more_ms)
    }

    /// Passes the request to the policy, and delays it until the answer arrives. `settled`: the
    /// items that were decided here; they are added to the answer's list. `filter`: hides parts of
    /// the answer. `lease`: the memory of the request.
    pub(crate) fn ask_policy(
        &mut self,
        request: Value,
        (settled, filter): (Vec<Value>, Option<AnswerFilter>),
        lease: Lease,
    ) {
        let thread = self.thread.index;
        let delayed = self.thread.delayed.name();
        let head = self.request.head;
        let client = self.client();
        let answer_max = self.broker.settings.load().policy_response_bytes;
        let (request, slices, lease) =
            match RequestSlices::of((head, &client), request, answer_max, lease) {
                Ok((first, slices)) => (first, Some(Mutex::new(slices)), None),
                Err((request, lease)) => (request, None, Some(Arc::new(lease))),
            };
        let question = Arc::new(PolicyRequest { head, settled, slices, filter });
        let ticket = self.broker.tickets.open(TicketHolder::Request { thread, delayed, question });
        let deadline_ms = self.decision_deadline_ms(decisions::waits_ms(&request));
        // The lease of the decoded value covers the request.
        self.delay_paid(delayed, (Some(deadline_ms), Box::new(DelayedDecision(ticket))), None);
        let (api, version) = (head.api.name, head.version);
        self.submit(Event { ticket, api, version, request, client, lease });
    }

    /// Passes an event of this request to the policy. The client's later requests are handled after
    /// the answer.
    pub(crate) fn submit(&mut self, event: Event) {
        self.connection.following_frames = FollowingFrames::WaitForAnswer;
        self.broker.policy.submit(event);
    }

    /// How the client proved who it is.
    pub(crate) fn proof(&self) -> ClientProof {
        match &self.connection.login {
            Some(login) if login.is_delegated => ClientProof::Token,
            Some(_) => ClientProof::Login,
            None if *self.connection.user == *ANONYMOUS => ClientProof::Nothing,
            None => ClientProof::Certificate,
        }
    }

    /// The client, as the policy sees it.
    pub(crate) fn client(&self) -> RequestClient {
        RequestClient {
            id: self.request.client_id.map(str::to_owned),
            host: self.connection.peer.remote.ip().to_string(),
            user: Arc::clone(&self.connection.user),
            proof: self.proof(),
            listener: Arc::clone(&self.connection.peer.listener),
            connection: self.connection.number,
        }
    }
}

/// A request that waits for a decision of the policy.
#[derive(Debug)]
struct DelayedDecision(Ticket);

impl DelayedOperation for DelayedDecision {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        if !is_late {
            return OperationProgress::Waits(self);
        }
        at.broker.give_up(self.0, at.head);
        OperationProgress::Fails
    }

    fn cancel(&self, broker: &Broker, _: usize, _: DelayedId) {
        broker.tickets.close(self.0);
    }
}

impl Broker {
    /// Closes the ticket of a request whose deadline has passed.
    pub(crate) fn give_up(&self, ticket: Ticket, head: Head) {
        if self.tickets.close(ticket).is_some() {
            tracing::warn!(
                api = head.api.name,
                "the policy did not decide in time; if it works on much, raise \
                 krust.policy.timeout.ms"
            );
        }
    }
}
