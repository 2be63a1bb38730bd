//! The event loop of one network thread: events, then the mailbox, then timers; then it blocks.
//!
//! A turn serves every connection that has an event, empties the mailbox, answers delayed requests
//! that have expired, and closes overdue connections. Connections with work left from the last turn
//! come first, or wait for one turn with events. Delayed replies that become ready in one turn are
//! collected, so that a connection sends them together.
//! Invariant: the thread blocks only with an empty mailbox and no work left, until the next
//! deadline.
//! Threads: everything runs on the network thread itself. The first one accepts connections.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::net::sockopt;

use super::connection::{Connection, ReactorContext, ServeOutcome};
use super::connection_quotas::ListenerQuota;
use super::listener::Listener;
use super::mailbox::{AcceptedConnection, MailboxContents};
use super::read_buffer::ReadBufferPool;
use super::shared::SharedState;
use super::slab::Slab;
use super::throttled::Throttled;
use crate::broker::{ConnId, DelayedReply, Peer, Service};
use crate::transport::tls::{TlsBuffers, TlsError, TlsSession};

const WAKER: Token = Token(usize::MAX);
/// Listener i has the token `usize::MAX - 1 - i`.
const LISTENERS: usize = usize::MAX - 1;
const EVENTS: usize = 256;
/// Read buffers that were not used for this long are freed.
const TRIM_MS: i64 = 5_000;
/// A connection this far behind the minimum rate is closed if others wait for a read buffer.
const STALE_MS: i64 = 3_000;
/// How often that is checked while a connection waits.
const EVICT_EVERY_MS: i64 = 100;
/// The least time between two looks for overdue connections, each of which looks at all of them.
const SWEEP_EVERY_MS: i64 = 100;

pub(super) struct Reactor<S: Service> {
    index: usize,
    poll: Poll,
    pub(super) listeners: Vec<(TcpListener, Arc<ListenerQuota>)>,
    connections: Slab<Connection<S>>,
    pub(super) context: ReactorContext<S>,
    mailbox: MailboxContents<S::Wake>,
    done: Vec<DelayedReply>,
    /// Connections to serve without a new event, and whether they waited for others in the last
    /// turn.
    unfinished: Vec<ConnId>,
    unfinished_waited: bool,
    /// Connections that wait for read buffers, and what was lent when the last one joined them.
    starved: Vec<ConnId>,
    starved_at: usize,
    /// When to look for a connection that holds a buffer and has stopped sending.
    evict_ms: i64,
    /// When the next connection may be overdue, and when all were looked at; when accepting is
    /// tried again; when unused buffers are looked at.
    sweep_ms: i64,
    swept_ms: i64,
    pub(super) accept_ms: Option<i64>,
    trim_ms: i64,
    pub(super) refused: bool,
    /// The last connection took a reserved descriptor.
    pub(super) descriptors_scarce: bool,
    pub(super) throttled: Throttled,
}

impl<S: Service> Reactor<S> {
    pub(super) fn new(
        shared: Arc<SharedState<S>>,
        index: usize,
        poll: Poll,
        listeners: Vec<Listener>,
    ) -> io::Result<Self> {
        shared.mailboxes.bind(index, Waker::new(poll.registry(), WAKER)?);
        let mut listening = Vec::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let mut socket = TcpListener::from_std(listener.socket);
            let token = Token(LISTENERS - number);
            poll.registry().register(&mut socket, token, Interest::READABLE)?;
            if let Some(quota) = shared.connection_quotas.listener(&listener.bound.name) {
                listening.push((socket, quota));
            }
        }
        let threads = shared.mailboxes.threads().max(1);
        let least = shared.options.request_max_bytes.saturating_mul(2);
        let pool = ReadBufferPool::new((shared.options.request_memory / threads).max(least));
        let thread = shared.service.thread(index);
        let now_ms = shared.clock.monotonic_ms();
        let context = ReactorContext {
            shared,
            thread,
            pool,
            scratch: Vec::new(),
            tls_buffers: TlsBuffers::default(),
            frames: Vec::new(),
            now_ms,
            short_ms: i64::MIN,
        };
        Ok(Self {
            index,
            poll,
            listeners: listening,
            connections: Slab::new(),
            context,
            mailbox: MailboxContents::default(),
            done: Vec::new(),
            unfinished: Vec::new(),
            unfinished_waited: false,
            starved: Vec::new(),
            starved_at: 0,
            evict_ms: i64::MAX,
            sweep_ms: i64::MAX,
            swept_ms: i64::MIN / 2,
            accept_ms: None,
            trim_ms: i64::MAX,
            refused: false,
            descriptors_scarce: false,
            throttled: Throttled::default(),
        })
    }

    pub(super) fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS);
        // A pause that began before this thread could be woken waits for this thread.
        self.shared().pause_barrier.wait_while_paused();
        while !self.shared().stopping.load(Ordering::Acquire) {
            if let Err(error) = self.wait(&mut events) {
                tracing::error!(%error, "a network thread cannot wait for events");
                self.shared().fail();
                break;
            }
            self.shared().pause_barrier.wait_while_paused();
            self.context.now_ms = self.shared().clock.monotonic_ms();
            if events.is_empty() || self.unfinished_waited {
                self.serve_unfinished();
            } else {
                self.unfinished_waited = !self.unfinished.is_empty();
            }
            for event in &events {
                match event.token() {
                    WAKER => {}
                    Token(token) if token > LISTENERS - self.listeners.len() => self.accept(),
                    Token(token) => {
                        let id = ConnId(token as u64);
                        if let Some(connection) = self.connections.get_mut(id) {
                            connection.record_event(event);
                            self.serve(id);
                        }
                    }
                }
            }
            self.read_mailbox();
            self.run_due();
        }
        self.shut_down();
    }

    pub(super) fn shared(&self) -> &SharedState<S> {
        &self.context.shared
    }

    /// Blocks until something happens or is due.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let busy = Duration::from_micros(self.shared().options.busy_poll_us);
        if !busy.is_zero() && !events.is_empty() {
            let start = Instant::now();
            while start.elapsed() < busy {
                self.poll_once(events, Some(Duration::ZERO))?;
                if !events.is_empty() || !self.shared().mailboxes.is_empty(self.index) {
                    return Ok(());
                }
            }
        }
        let timeout = self.timeout();
        self.poll_once(events, timeout)
    }

    fn poll_once(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            result => result,
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.unfinished.is_empty() || !self.shared().mailboxes.is_empty(self.index) {
            return Some(Duration::ZERO);
        }
        let next = self.sweep_ms.min(self.trim_ms).min(self.accept_ms.unwrap_or(i64::MAX));
        let delayed = self.shared().service.next_deadline(&self.context.thread).unwrap_or(i64::MAX);
        let next = next.min(delayed).min(self.throttled.next_ms()).min(self.evict_ms);
        if next == i64::MAX {
            return None;
        }
        let now_ms = self.shared().clock.monotonic_ms();
        Some(Duration::from_millis(u64::try_from(next - now_ms).unwrap_or(0)))
    }

    fn serve(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let outcome = connection.serve(&mut self.context);
        let deadline_ms = connection.deadline_ms(&self.context.shared);
        self.sweep_ms = self.sweep_ms.min(deadline_ms.max(self.swept_ms + SWEEP_EVERY_MS));
        match outcome {
            ServeOutcome::Wait => {}
            ServeOutcome::Muted(until_ms) => {
                let previous_ms = connection.timer_ms.replace(until_ms);
                if previous_ms != Some(until_ms) {
                    self.throttled.mute(id, previous_ms, until_ms);
                }
            }
            ServeOutcome::Again => {
                if !std::mem::replace(&mut connection.listed, true) {
                    self.unfinished.push(id);
                }
            }
            ServeOutcome::Starved => {
                self.starved_at = self.context.pool.lent();
                self.evict_ms = self.evict_ms.min(self.context.now_ms);
                if !std::mem::replace(&mut connection.starving, true) {
                    self.starved.push(id);
                }
            }
            ServeOutcome::Close => self.close(id),
        }
    }

    /// Serves the connections that used up their share of an earlier turn and have more to do: at
    /// once if no connection has an event, else every second turn, so that requests go before long
    /// replies.
    fn serve_unfinished(&mut self) {
        self.unfinished_waited = false;
        for id in std::mem::take(&mut self.unfinished) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.listed = false;
                self.serve(id);
            }
        }
    }

    /// Serves the connections that waited for a read buffer, after some were returned.
    fn retry_starved(&mut self) {
        for id in std::mem::take(&mut self.starved) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.starving = false;
                self.serve(id);
            }
        }
    }

    /// While connections wait for a read buffer: closes the connection that is furthest behind the
    /// minimum rate, if that is at least [`STALE_MS`].
    fn evict_slowest(&mut self) {
        if self.starved.is_empty() {
            self.evict_ms = i64::MAX;
            return;
        }
        let now_ms = self.context.now_ms;
        let mut slowest = (0, None);
        for id in self.connections.ids() {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            match connection.lag_ms(&self.context.shared.options, now_ms) {
                Some(lag_ms) if lag_ms > slowest.0 => slowest = (lag_ms, Some(id)),
                _ => {}
            }
        }
        let (lag_ms, id) = slowest;
        self.evict_ms = now_ms.saturating_add((STALE_MS - lag_ms).max(EVICT_EVERY_MS));
        if let Some(id) = id.filter(|_| lag_ms >= STALE_MS) {
            tracing::debug!(lag_ms, "a frame that does not go on makes room for others");
            self.close(id);
        }
    }

    fn close(&mut self, id: ConnId) {
        let Some(mut connection) = self.connections.remove(id) else { return };
        connection.end_session();
        connection.release(&mut self.context.pool);
        connection.end_login(&self.context.shared);
        self.throttled.forget(id, connection.timer_ms);
        let Connection { mut stream, context, address, listener, .. } = connection;
        if let Err(error) = self.poll.registry().deregister(&mut stream) {
            tracing::debug!(%error, "a closed connection was not registered");
        }
        drop(stream);
        let shared = Arc::clone(&self.context.shared);
        shared.service.closed(&mut self.context.thread, id, context);
        self.release_quota(&listener, address);
    }

    /// Counts a closed connection, and wakes the accepting thread if it waits for that.
    fn release_quota(&self, listener: &ListenerQuota, address: IpAddr) {
        let shared = self.shared();
        if let Some(load) = shared.load.get(self.index) {
            load.fetch_sub(1, Ordering::Relaxed);
        }
        if shared.connection_quotas.decrement(listener, address) {
            shared.mailboxes.wakeup(0);
        }
    }

    /// Empties the mailbox. Handling its messages may bring more.
    fn read_mailbox(&mut self) {
        let shared = Arc::clone(&self.context.shared);
        loop {
            shared.mailboxes.take(self.index, &mut self.mailbox);
            if self.mailbox.is_empty() {
                return;
            }
            for accepted in std::mem::take(&mut self.mailbox.accepted) {
                self.open(accepted);
            }
            if !self.mailbox.wakes.is_empty() {
                let thread = &mut self.context.thread;
                shared.service.wake(thread, &mut self.mailbox.wakes, &mut self.done);
                self.mailbox.wakes.clear();
            }
            self.deliver();
        }
    }

    /// Fills in the replies that became ready, then serves each of their connections once.
    fn deliver(&mut self) {
        let mut touched = Vec::new();
        for done in self.done.drain(..) {
            if let Some(connection) = self.connections.get_mut(done.conn) {
                connection.fill(done.slot, done.output, done.flow);
                if touched.last() != Some(&done.conn) {
                    touched.push(done.conn);
                }
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            self.serve(id);
        }
    }

    /// Runs the timers that are due.
    fn run_due(&mut self) {
        let now_ms = self.context.now_ms;
        let shared = Arc::clone(&self.context.shared);
        if shared.service.next_deadline(&self.context.thread).is_some_and(|due| due <= now_ms) {
            shared.service.expire(&mut self.context.thread, now_ms, &mut self.done);
            self.deliver();
        }
        while let Some(id) = self.throttled.take_due(now_ms) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.timer_ms = None;
                self.serve(id);
            }
        }
        self.throttled.close_due(now_ms);
        if shared.take_room_wanted(self.index) {
            self.make_room();
        }
        if self.sweep_ms <= now_ms {
            self.close_overdue();
        }
        if self.evict_ms <= now_ms {
            self.evict_slowest();
        }
        if !self.starved.is_empty() && self.context.pool.lent() < self.starved_at {
            self.retry_starved();
        }
        if self.accept_ms.is_some_and(|due| self.has_slot_again() || due <= now_ms) {
            self.accept();
        }
        if self.trim_ms <= now_ms {
            self.context.pool.trim();
            self.context.scratch = Vec::new();
            self.context.tls_buffers = TlsBuffers::default();
            self.trim_ms = i64::MAX;
        }
        if self.trim_ms == i64::MAX && self.context.pool.has_free() {
            self.trim_ms = now_ms.saturating_add(TRIM_MS);
        }
    }

    /// Closes connections that have to make room: for those of other brokers, the ones that were
    /// used least recently; for logins, the ones that hold more than their share. Then looks at
    /// all deadlines, which may have changed.
    fn make_room(&mut self) {
        let shared = Arc::clone(&self.context.shared);
        if shared.connection_quotas.is_exceeded() {
            let all = self.connections.iter_mut();
            let mut used: Vec<(i64, ConnId)> =
                all.filter_map(|(id, each)| Some((each.last_used_ms()?, id))).collect();
            used.sort_unstable();
            for (_, id) in used {
                if !shared.connection_quotas.close_excess(|| self.close(id)) {
                    break;
                }
            }
        }
        if shared.login_memory.is_exceeded() {
            let share = shared.login_memory.share();
            let all = self.connections.iter_mut();
            let large = all.filter(|(_, each)| each.login_held() > share).map(|(id, _)| id);
            let large: Vec<ConnId> = large.collect();
            tracing::debug!(count = large.len(), "connections before their login hold too much");
            large.into_iter().for_each(|id| self.close(id));
        }
        self.sweep_ms = i64::MIN;
    }

    /// Closes the connections whose deadline has passed.
    fn close_overdue(&mut self) {
        let now_ms = self.context.now_ms;
        let mut overdue = Vec::new();
        self.sweep_ms = i64::MAX;
        self.swept_ms = now_ms;
        for (id, connection) in self.connections.iter_mut() {
            let deadline = connection.deadline_ms(&self.context.shared);
            if deadline <= now_ms {
                overdue.push(id);
            } else {
                self.sweep_ms = self.sweep_ms.min(deadline.max(now_ms + SWEEP_EVERY_MS));
            }
        }
        for id in overdue {
            self.close(id);
        }
    }

    /// Gives a connection to the thread with the fewest connections.
    pub(super) fn assign(&mut self, accepted: AcceptedConnection) {
        let target = self.shared().least_loaded_thread();
        if let Some(load) = self.shared().load.get(target) {
            load.fetch_add(1, Ordering::Relaxed);
        }
        if target == self.index {
            self.open(accepted);
        } else {
            self.shared().mailboxes.post_accepted(target, accepted);
        }
    }

    /// Sets up a connection on this thread.
    fn open(&mut self, accepted: AcceptedConnection) {
        let mut accepted = accepted;
        let (listener, remote) = (Arc::clone(&accepted.listener), accepted.remote);
        let stream = &mut accepted.stream;
        let conn = self.connections.next_id();
        let send_buffer = self.shared().options.near_send_buffer;
        let tls = match self.accept_tls(&listener.name) {
            Ok(tls) => tls,
            Err(error) => {
                tracing::error!(listener = %listener.name, %error, "a TLS session cannot begin");
                self.release_quota(&listener, remote.ip());
                return;
            }
        };
        let prepared = stream.set_nodelay(true).and_then(|()| {
            sockopt::set_socket_keepalive(&*stream, true)?;
            if is_near(remote) {
                sockopt::set_socket_send_buffer_size(&*stream, send_buffer)?;
            }
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(stream, Token(conn.0 as usize), interest)?;
            stream.local_addr()
        });
        match prepared {
            Ok(local) => {
                let peer = Peer { conn, listener: Arc::clone(&listener.name), local, remote };
                let shared = Arc::clone(&self.context.shared);
                let context = shared.service.opened(&mut self.context.thread, peer);
                let now_ms = self.context.now_ms;
                let mut connection = Connection::new(accepted, context, tls, now_ms);
                connection.begin_login(&shared);
                self.connections.insert(connection);
                self.serve(conn);
            }
            Err(error) => {
                tracing::debug!(%remote, %error, "connection lost before it began");
                self.release_quota(&listener, remote.ip());
            }
        }
    }

    /// The session of a new connection, if its listener has TLS.
    fn accept_tls(&self, listener: &str) -> Result<Option<Box<TlsSession>>, TlsError> {
        let settings = self.shared().options.tls.get(listener);
        settings.map(|tls| tls.accept().map(Box::new)).transpose()
    }

    /// Ends the thread: sends ready replies as far as the sockets have room, closes connections.
    fn shut_down(&mut self) {
        self.listeners.clear();
        self.read_mailbox();
        for id in self.connections.ids() {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.finish(&mut self.context);
            }
            self.close(id);
        }
        self.shared().mailboxes.close(self.index);
    }
}

/// Whether a peer is close by: on loopback or in a private network.
fn is_near(address: std::net::SocketAddr) -> bool {
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        std::net::IpAddr::V6(ip) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
    }
}
