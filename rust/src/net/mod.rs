//! The network layer: threads, sockets, order of replies and back-pressure between a peer and a
//! [`Service`]. It knows frames, but no API by name.
//!
//! Each thread runs one event loop (`reactor`). A connection stays on one thread from accept to
//! close (`connection`). Other threads reach it through that thread's mailbox (`mailbox`). The
//! first thread accepts connections and gives each to the thread that has the fewest.
//! Threads: any thread may use and drop [`Server`]. Dropping it stops the server.
//! Promised: replies leave in the order of their requests. A frame that is too long is refused
//! before memory is reserved for it. A peer that does not read, does not finish its frame or does
//! nothing costs a bounded amount of memory, and its connection is closed in the end. An idle
//! connection holds no buffer.
//! TLS is in `transport/tls`: a session stands between the socket and a connection's buffers.

mod accepting;
mod connection;
mod connection_quotas;
mod listener;
mod login_memory;
mod mailbox;
mod options;
mod pause_barrier;
mod reactor;
mod read_buffer;
mod send_queue;
mod shared;
mod slab;
mod throttled;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use thiserror::Error;

use self::connection_quotas::ConnectionQuotas;
use self::listener::Listener;
pub use self::listener::{BindError, BoundListener, ListenAddress};
use self::login_memory::LoginMemory;
pub use self::mailbox::Mailboxes;
pub use self::options::{ConnectionLimits, ListenerLimits, NetworkOptions};
use self::pause_barrier::PauseBarrier;
use self::reactor::Reactor;
use self::shared::SharedState;
use crate::broker::Service;
use crate::clock::Clock;

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

/// A running server: its listeners and its threads.
pub struct Server<S: Service> {
    shared: Arc<SharedState<S>>,
    bound: Vec<BoundListener>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S: Service> Server<S> {
    /// Binds the addresses and starts one thread for each of `mailboxes`. When this returns, the
    /// server accepts connections.
    pub fn start(
        options: NetworkOptions,
        service: Arc<S>,
        mailboxes: Arc<Mailboxes<S::Wake>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let mut listeners = listener::bind(&options.endpoints)?;
        let bound = listeners.iter().map(|listener| listener.bound.clone()).collect();
        let count = mailboxes.threads();
        let shared = Arc::new(SharedState {
            connection_quotas: ConnectionQuotas::new(&options),
            login_memory: LoginMemory::new(options.login_memory),
            crowded: AtomicBool::new(false),
            room_wanted: (0..count).map(|_| AtomicBool::new(false)).collect(),
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

    /// The bytes that connections hold which have not logged in.
    pub fn login_memory(&self) -> usize {
        self.shared.login_memory.held()
    }

    /// Changes the limits of connections. If more are open than the broker's limit allows, those
    /// that were used least recently are closed.
    pub fn set_limits(&self, limits: &ConnectionLimits) {
        if self.shared.connection_quotas.set_limits(limits) {
            self.shared.mailboxes.wakeup(0);
        }
        if self.shared.connection_quotas.is_exceeded() {
            self.shared.ask_for_room();
        }
    }

    /// Whether a thread panicked. Then all threads stop, and the server answers no more requests.
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
            // Its connections close with it, and the other threads stop as well.
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
