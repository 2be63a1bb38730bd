//! Threads, sockets, order and back-pressure: what lies between a peer and a [`Service`]. Knows
//! frames, no API by name.
//!
//! One loop a thread (`reactor`); a connection lives on one thread from accept to close
//! (`connection`); other threads reach it through its mailbox (`mailbox`). The first thread accepts
//! and hands connections to the thread that has the fewest.
//! Threads: [`Server`] may be used and dropped from any thread; dropping it stops it.
//! Promised: replies leave in the order of their requests; a frame is refused by its length before
//! memory is reserved; a peer that does not read, does not finish its frame or does nothing costs a
//! known sum and is closed in the end; an idle connection holds no buffer.
//! Not done: TLS (its place is `transport/`, between a connection's socket and its inbox).

mod connection;
mod gate;
mod inbox;
mod listener;
mod mailbox;
mod outbox;
mod reactor;
mod slab;
mod throttled;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use thiserror::Error;

use self::gate::Gate;
pub use self::listener::{BindError, Bound, Endpoint};
use self::listener::{Census, Listener};
pub use self::mailbox::Mailboxes;
use self::reactor::Reactor;
use crate::broker::Service;
use crate::clock::Clock;

/// How a server listens, and its limits. Times in milliseconds, sizes in bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub endpoints: Vec<Endpoint>,
    /// `max.connections`: beyond these, connections wait to be accepted.
    pub max_connections: usize,
    /// `max.connections.per.ip`: beyond these, connections of one address are closed at once.
    pub max_connections_per_ip: usize,
    /// `connections.max.idle.ms`: a connection on which nothing moves is closed.
    pub idle_ms: i64,
    /// `socket.request.max.bytes`: a longer frame closes its connection.
    pub request_max_bytes: usize,
    /// `queued.max.request.bytes`, or a default: read buffers of all connections together. Never
    /// less than two frames of the largest size a thread.
    pub request_memory: usize,
    /// A frame may lag so far behind the least rate ...
    pub frame_ms: i64,
    /// ... of so many bytes a second. What came faster before does not count. Where the read
    /// buffers are used up, whoever lags most makes room for who waits.
    pub frame_rate: usize,
    /// A connection that takes none of the bytes it is sent is closed after this.
    pub stalled_ms: i64,
    /// A connection with this much waiting for it is not read from.
    pub out_max_bytes: usize,
    /// A connection with this many requests parked is not read from.
    pub parked_max: usize,
    /// For how many microseconds a thread looks for more before it blocks; 0: not at all. Costs
    /// CPU, saves the wake-up of a halted core.
    pub busy_poll_us: u64,
    /// `SO_SNDBUF` towards loopback and private networks; the kernel tunes the others.
    pub near_send_buffer: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            max_connections: i32::MAX as usize,
            max_connections_per_ip: usize::MAX,
            idle_ms: 600_000,
            request_max_bytes: 104_857_600,
            request_memory: 512 << 20,
            frame_ms: 30_000,
            frame_rate: 16 << 10,
            stalled_ms: 600_000,
            out_max_bytes: 1 << 20,
            parked_max: 1024,
            busy_poll_us: 0,
            near_send_buffer: 256 << 10,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refused a thread or a descriptor.
    #[error("cannot start the network threads: {0}")]
    System(#[from] std::io::Error),
}

/// What all threads of one server share.
pub(crate) struct Shared<S: Service> {
    service: Arc<S>,
    mailboxes: Arc<Mailboxes<S::Wake>>,
    options: Options,
    clock: Arc<dyn Clock>,
    census: Census,
    /// Connections by thread.
    load: Vec<AtomicUsize>,
    gate: Gate,
    stopping: AtomicBool,
    failed: AtomicBool,
}

/// A running server: its listeners and its threads.
pub struct Server<S: Service> {
    shared: Arc<Shared<S>>,
    bound: Vec<Bound>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S: Service> Server<S> {
    /// Binds the endpoints and starts one thread for each of `mailboxes`. Connections are accepted
    /// when this returns.
    pub fn start(
        options: Options,
        service: Arc<S>,
        mailboxes: Arc<Mailboxes<S::Wake>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let mut listeners = listener::bind(&options.endpoints)?;
        let bound = listeners.iter().map(|listener| listener.bound.clone()).collect();
        let count = mailboxes.threads();
        let shared = Arc::new(Shared {
            census: Census::new(options.max_connections, options.max_connections_per_ip),
            load: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            gate: Gate::default(),
            stopping: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            service,
            mailboxes,
            options,
            clock,
        });
        let server = Self { shared, bound, threads: Mutex::default() };
        for index in 0..count {
            let thread = server.spawn(index, std::mem::take(&mut listeners))?;
            server.threads.lock().push(thread);
        }
        Ok(server)
    }

    /// The addresses that are listened on.
    pub fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.census.count()
    }

    /// Lets so many connections be open, and so many of one address; those that are open stay.
    pub fn limit(&self, max_connections: usize, max_connections_per_ip: usize) {
        if self.shared.census.limit(max_connections, max_connections_per_ip) {
            self.shared.mailboxes.nudge(0);
        }
    }

    /// True where a thread ended by a panic: all threads stop then, and nothing is answered any
    /// more.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// Answers nobody until `resume`: connections stay, and what comes waits. Nothing more leaves
    /// when this returns.
    pub fn pause(&self) {
        let shared = &self.shared;
        let ended = || shared.stopping.load(Ordering::Acquire);
        shared.gate.shut(shared.mailboxes.threads(), || shared.nudge(), ended);
    }

    /// Goes on after `pause`.
    pub fn resume(&self) {
        self.shared.gate.open();
    }

    /// Closes the listeners, sends what is ready, closes all connections, ends the threads. Does
    /// nothing the second time.
    pub fn stop(&self) {
        self.shared.stop();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a network thread panicked while it ended");
            }
        }
    }

    fn spawn(&self, index: usize, listeners: Vec<Listener>) -> std::io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        let poll = mio::Poll::new()?;
        std::thread::Builder::new().name(format!("krust-net-{index}")).spawn(move || {
            let run = || match Reactor::new(Arc::clone(&shared), index, poll, listeners) {
                Ok(mut reactor) => reactor.run(),
                Err(error) => {
                    tracing::error!(%error, "a network thread cannot start");
                    shared.fail();
                }
            };
            // A panic is a bug of ours; what it left half-done is not known, so nothing is answered
            // any more: the connections close with the reactor, the other threads stop as well.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                tracing::error!("a network thread panicked: the server stops");
                shared.fail();
            }
        })
    }
}

impl<S: Service> Drop for Server<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<S: Service> Shared<S> {
    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.gate.open();
        self.nudge();
    }

    fn nudge(&self) {
        (0..self.mailboxes.threads()).for_each(|thread| self.mailboxes.nudge(thread));
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.stop();
    }

    /// The thread with the fewest connections.
    fn idlest(&self) -> usize {
        let loads = self.load.iter().map(|load| load.load(Ordering::Relaxed));
        loads.enumerate().min_by_key(|(_, load)| *load).map_or(0, |(index, _)| index)
    }
}

/// True for peers whose path is short: loopback and private networks.
fn is_near(address: SocketAddr) -> bool {
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        std::net::IpAddr::V6(ip) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
    }
}
