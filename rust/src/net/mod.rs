//! The network layer: threads, sockets, order of replies and back-pressure between a peer and a
//! [`Service`]. It knows frames; it knows no API by name.
//!
//! Each thread runs one event loop (`reactor`). A connection stays on one thread from accept to
//! close (`connection`). Other threads reach it through that thread's mailbox (`mailbox`). The
//! first thread accepts connections and gives each to the thread that has the fewest.
//! Threads: any thread may use and drop [`Server`]. Dropping it stops the server.
//! Promised: replies leave in the order of their requests. A frame that is too long is refused
//! before memory is reserved for it. A peer that does not read, does not finish its frame or does
//! nothing costs a bounded amount of memory and is closed in the end. An idle connection holds no
//! buffer.
//! Not done: TLS. It belongs in `transport/`, between the socket and the read buffer.

mod connection;
mod listener;
mod mailbox;
mod pause_barrier;
mod reactor;
mod read_buffer;
mod send_queue;
mod slab;
mod throttled;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use thiserror::Error;

pub use self::listener::{BindError, BoundListener, Endpoint};
use self::listener::{ConnectionQuotas, Listener};
pub use self::mailbox::Mailboxes;
use self::pause_barrier::PauseBarrier;
use self::reactor::Reactor;
use crate::broker::Service;
use crate::clock::Clock;

/// Where a server listens, and its limits. Times are in milliseconds, sizes in bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub endpoints: Vec<Endpoint>,
    /// `max.connections`: further connections wait in the kernel to be accepted.
    pub max_connections: usize,
    /// `max.connections.per.ip`: further connections of one address are closed at once.
    pub max_connections_per_ip: usize,
    /// `connections.max.idle.ms`: a connection without traffic for this long is closed.
    pub idle_ms: i64,
    /// `socket.request.max.bytes`: a longer frame closes its connection.
    pub request_max_bytes: usize,
    /// `queued.max.request.bytes`, or a default: the read buffers of all connections together. Each
    /// thread gets at least two frames of the largest size.
    pub request_memory: usize,
    /// How far a frame may fall behind the minimum rate before its connection is closed.
    pub frame_ms: i64,
    /// The minimum rate of a frame in bytes a second. Earlier bytes that came faster do not count.
    /// When the read buffers are used up, the slowest connection is closed to make room.
    pub frame_rate: usize,
    /// A connection that accepts none of the bytes sent to it is closed after this time.
    pub stalled_ms: i64,
    /// A connection with this many bytes of unsent replies is not read from.
    pub out_max_bytes: usize,
    /// A connection with this many requests parked is not read from.
    pub parked_max: usize,
    /// For how many microseconds a thread polls before it blocks; 0: not at all. Polling costs CPU
    /// and saves the wake-up of a halted core.
    pub busy_poll_us: u64,
    /// `SO_SNDBUF` for peers on loopback and private networks. The kernel tunes the others.
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
    /// An address cannot be bound.
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
    connection_quotas: ConnectionQuotas,
    /// Connections by thread.
    load: Vec<AtomicUsize>,
    pause_barrier: PauseBarrier,
    stopping: AtomicBool,
    failed: AtomicBool,
}

/// A running server: its listeners and its threads.
pub struct Server<S: Service> {
    shared: Arc<Shared<S>>,
    bound: Vec<BoundListener>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S: Service> Server<S> {
    /// Binds the endpoints and starts one thread for each of `mailboxes`. The server accepts
    /// connections when this returns.
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
            connection_quotas: ConnectionQuotas::new(
                options.max_connections,
                options.max_connections_per_ip,
            ),
            load: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            pause_barrier: PauseBarrier::default(),
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

    /// The addresses that the server listens on.
    pub fn bound(&self) -> &[BoundListener] {
        &self.bound
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.connection_quotas.count()
    }

    /// Changes the connection limits. Open connections stay open.
    pub fn set_limits(&self, max_connections: usize, max_connections_per_ip: usize) {
        if self.shared.connection_quotas.set_limits(max_connections, max_connections_per_ip) {
            self.shared.mailboxes.wakeup(0);
        }
    }

    /// Whether a thread panicked. All threads stop then, and the server answers no more requests.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// Stops answering until `resume`. Connections stay open and requests wait. No byte is sent
    /// after this returns.
    pub fn pause(&self) {
        let shared = &self.shared;
        let ended = || shared.stopping.load(Ordering::Acquire);
        shared.pause_barrier.pause(shared.mailboxes.threads(), || shared.wakeup(), ended);
    }

    /// Answers again after `pause`.
    pub fn resume(&self) {
        self.shared.pause_barrier.resume();
    }

    /// Closes the listeners, sends the replies that are ready, closes all connections and ends the
    /// threads. A second call does nothing.
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
            // A panic is our bug and leaves unknown state behind, so the server stops answering.
            // The connections close with the reactor, and the other threads stop as well.
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
        self.pause_barrier.resume();
        self.wakeup();
    }

    fn wakeup(&self) {
        (0..self.mailboxes.threads()).for_each(|thread| self.mailboxes.wakeup(thread));
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.stop();
    }

    /// The thread with the fewest connections.
    fn least_loaded_thread(&self) -> usize {
        let loads = self.load.iter().map(|load| load.load(Ordering::Relaxed));
        loads.enumerate().min_by_key(|(_, load)| *load).map_or(0, |(index, _)| index)
    }
}

/// Whether a peer is close by: on loopback or in a private network.
fn is_near(address: SocketAddr) -> bool {
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        std::net::IpAddr::V6(ip) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
    }
}
