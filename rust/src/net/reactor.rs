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
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::net::sockopt;

use super::connection::{Connection, ReactorContext, ServeOutcome};
use super::listener::Listener;
use super::mailbox::{AcceptedConnection, MailboxContents};
use super::read_buffer::ReadBufferPool;
use super::shared::SharedState;
use super::slab::Slab;
use super::throttled::Throttled;
use crate::broker::{ConnId, DelayedReply, Peer, Service};
use crate::sys;
use crate::transport::tls::{TlsBuffers, TlsError, TlsSession};

const WAKER: Token = Token(usize::MAX);
/// Listener i has the token `usize::MAX - 1 - i`.
const LISTENERS: usize = usize::MAX - 1;
const EVENTS: usize = 256;
/// The most connections accepted in one turn.
const ACCEPT_SHARE: usize = 256;
/// How long accepting pauses after the system refused a connection.
const ACCEPT_REST_MS: i64 = 200;
/// Read buffers that were not used for this long are freed.
const TRIM_MS: i64 = 5_000;
/// A connection this far behind the minimum rate is closed if others wait for a read buffer.
const STALE_MS: i64 = 3_000;
/// How often that is checked while a connection waits.
const EVICT_EVERY_MS: i64 = 100;

pub(super) struct Reactor<S: Service> {
    index: usize,
    poll: Poll,
    listeners: Vec<(TcpListener, Arc<str>)>,
    connections: Slab<Connection<S>>,
    context: ReactorContext<S>,
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
    /// When the next connection may be overdue; when accepting is tried again; when unused buffers
    /// are looked at.
    sweep_ms: i64,
    accept_ms: Option<i64>,
    trim_ms: i64,
    refused: bool,
    /// The last connection took a reserved descriptor.
    descriptors_scarce: bool,
    throttled: Throttled,
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
            listening.push((socket, listener.bound.name));
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

    fn shared(&self) -> &SharedState<S> {
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
        self.sweep_ms = self.sweep_ms.min(connection.deadline_ms(&self.context.shared));
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
        self.throttled.forget(id, connection.timer_ms);
        let Connection { mut stream, context, address, .. } = connection;
        if let Err(error) = self.poll.registry().deregister(&mut stream) {
            tracing::debug!(%error, "a closed connection was not registered");
        }
        drop(stream);
        let shared = Arc::clone(&self.context.shared);
        shared.service.closed(&mut self.context.thread, id, context);
        self.release_quota(address);
    }

    /// Counts a closed connection, and wakes the accepting thread if it waits for that.
    fn release_quota(&self, address: std::net::IpAddr) {
        let shared = self.shared();
        if let Some(load) = shared.load.get(self.index) {
            load.fetch_sub(1, Ordering::Relaxed);
        }
        if shared.connection_quotas.decrement(address) {
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
        if self.sweep_ms <= now_ms {
            self.close_overdue();
        }
        if self.evict_ms <= now_ms {
            self.evict_slowest();
        }
        if !self.starved.is_empty() && self.context.pool.lent() < self.starved_at {
            self.retry_starved();
        }
        let freed = !shared.connection_quotas.paused.load(Ordering::Acquire);
        if self.accept_ms.is_some_and(|due| freed || due <= now_ms) {
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

    /// Closes the connections whose deadline has passed.
    fn close_overdue(&mut self) {
        let now_ms = self.context.now_ms;
        let mut overdue = Vec::new();
        self.sweep_ms = i64::MAX;
        for (id, connection) in self.connections.iter_mut() {
            let deadline = connection.deadline_ms(&self.context.shared);
            if deadline <= now_ms {
                overdue.push(id);
            } else {
                self.sweep_ms = self.sweep_ms.min(deadline);
            }
        }
        for id in overdue {
            self.close(id);
        }
    }

    /// Accepts waiting connections, within the limits.
    fn accept(&mut self) {
        let shared = Arc::clone(&self.context.shared);
        self.accept_ms = None;
        let mut number = 0;
        let mut accepted = 0;
        while let Some((socket, name)) = self.listeners.get(number) {
            if accepted == ACCEPT_SHARE {
                self.accept_ms = Some(self.context.now_ms);
                return;
            }
            if shared.connection_quotas.pause_if_full() {
                self.accept_ms = Some(i64::MAX);
                return;
            }
            self.descriptors_scarce =
                self.descriptors_scarce && sys::is_next_descriptor_reserved(socket);
            if self.descriptors_scarce {
                return self
                    .pause_accepting(&"few descriptors are left to this process (ulimit -n)");
            }
            match socket.accept() {
                Ok((stream, remote)) => {
                    self.refused = false;
                    self.descriptors_scarce = sys::is_descriptor_reserved(&stream);
                    accepted += 1;
                    let thread = &mut self.context.thread;
                    if let Some(after_ms) =
                        shared.service.connection_throttle_ms(thread, remote.ip())
                    {
                        let until_ms = self.context.now_ms.saturating_add(after_ms);
                        self.throttled.close_later(stream, until_ms);
                    } else if shared.connection_quotas.try_increment(remote.ip()) {
                        let listener = Arc::clone(name);
                        self.assign(AcceptedConnection { stream, listener, remote });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => number += 1,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return self.pause_accepting(&error),
            }
        }
    }

    /// Accepts nothing until a connection closes or a short time has passed.
    fn pause_accepting(&mut self, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.refused, true) {
            tracing::warn!("cannot accept connections, they wait until others close: {why}");
        }
        self.shared().connection_quotas.paused.store(true, Ordering::Release);
        self.accept_ms = Some(self.context.now_ms.saturating_add(ACCEPT_REST_MS));
    }

    /// Gives a connection to the thread with the fewest connections.
    fn assign(&mut self, accepted: AcceptedConnection) {
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
        let AcceptedConnection { mut stream, listener, remote } = accepted;
        let conn = self.connections.next_id();
        let send_buffer = self.shared().options.near_send_buffer;
        let tls = match self.accept_tls(&listener) {
            Ok(tls) => tls,
            Err(error) => {
                tracing::error!(%listener, %error, "a TLS session cannot begin");
                self.release_quota(remote.ip());
                return;
            }
        };
        let prepared = stream.set_nodelay(true).and_then(|()| {
            sockopt::set_socket_keepalive(&stream, true)?;
            if is_near(remote) {
                sockopt::set_socket_send_buffer_size(&stream, send_buffer)?;
            }
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(conn.0 as usize), interest)?;
            stream.local_addr()
        });
        match prepared {
            Ok(local) => {
                let peer = Peer { conn, listener, local, remote };
                let shared = Arc::clone(&self.context.shared);
                let context = shared.service.opened(&mut self.context.thread, peer);
                let now_ms = self.context.now_ms;
                self.connections.insert(Connection::new(stream, remote.ip(), context, tls, now_ms));
                self.serve(conn);
            }
            Err(error) => {
                tracing::debug!(%remote, %error, "connection lost before it began");
                self.release_quota(remote.ip());
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
