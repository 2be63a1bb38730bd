//! How the first network thread accepts connections.
//!
//! Each listener takes its share in a turn, so that many connections of one do not keep out those
//! of another. A listener that has reached a limit is passed over until a connection closes or its
//! time comes; meanwhile new connections wait in the kernel's queue.
//! Connections leave the last descriptors of the process (`sys::reserved_descriptors`) to files,
//! modules and pipes, because the broker needs those to serve its open connections. When the
//! process is out of other descriptors, accepting pauses as a whole. No thread spins.
//! While connections wait for others to close, the server is *crowded*: a connection that has not
//! sent a whole frame after three seconds is closed, so that silent ones make room.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::TcpStream;

use super::connection_quotas::{ConnectionSlot, ListenerQuota};
use super::mailbox::AcceptedConnection;
use super::reactor::Reactor;
use crate::broker::Service;
use crate::sys;

/// The most connections accepted in one turn, of all listeners.
const ACCEPT_SHARE: usize = 256;
/// How long accepting pauses after the system refused a connection.
const ACCEPT_REST_MS: i64 = 200;

/// Why a listener takes no more connections in this turn.
enum AcceptOutcome {
    /// None waits.
    Drained,
    /// Others may follow at this time.
    Until(i64),
    /// A limit is reached.
    Full,
    /// The system gives no more descriptors.
    Refused,
}

impl<S: Service> Reactor<S> {
    /// Accepts waiting connections, within the limits.
    pub(super) fn accept(&mut self) {
        let share = (ACCEPT_SHARE / self.listeners.len().max(1)).max(1);
        let (mut due_ms, mut crowded) = (None, false);
        for number in 0..self.listeners.len() {
            match self.accept_from(number, share) {
                AcceptOutcome::Drained => {}
                AcceptOutcome::Until(until_ms) => {
                    due_ms = Some(due_ms.map_or(until_ms, |due_ms: i64| due_ms.min(until_ms)));
                }
                AcceptOutcome::Full => {
                    crowded = true;
                    due_ms = due_ms.or(Some(i64::MAX));
                }
                AcceptOutcome::Refused => {
                    crowded = true;
                    due_ms = Some(self.context.now_ms.saturating_add(ACCEPT_REST_MS));
                    break;
                }
            }
        }
        self.accept_ms = due_ms;
        self.shared().set_crowded(crowded);
    }

    /// Whether a connection has closed since accepting paused for that.
    pub(super) fn has_slot_again(&self) -> bool {
        self.shared().crowded.load(Ordering::Relaxed)
            && !self.shared().connection_quotas.paused.load(Ordering::Acquire)
    }

    fn accept_from(&mut self, number: usize, share: usize) -> AcceptOutcome {
        let now_ms = self.context.now_ms;
        for _ in 0..share {
            let Some((socket, listener)) = self.listeners.get(number) else { break };
            match self.shared().connection_quotas.slot(listener, now_ms) {
                ConnectionSlot::Free => {}
                ConnectionSlot::Full => return AcceptOutcome::Full,
                ConnectionSlot::After(ms) => {
                    return AcceptOutcome::Until(now_ms.saturating_add(ms));
                }
            }
            if self.descriptors_scarce && sys::is_next_descriptor_reserved(socket) {
                return self.refuse(&"few descriptors are left to this process (ulimit -n)");
            }
            self.descriptors_scarce = false;
            match socket.accept() {
                Ok((stream, remote)) => {
                    let listener = Arc::clone(listener);
                    self.refused = false;
                    self.descriptors_scarce = sys::is_descriptor_reserved(&stream);
                    self.admit(stream, remote, listener);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return AcceptOutcome::Drained;
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => return self.refuse(&error),
            }
        }
        AcceptOutcome::Until(now_ms)
    }

    /// Opens a connection unless its address has reached a limit.
    fn admit(&mut self, stream: TcpStream, remote: SocketAddr, listener: Arc<ListenerQuota>) {
        let shared = Arc::clone(&self.context.shared);
        let (address, now_ms) = (remote.ip(), self.context.now_ms);
        let thread = &mut self.context.thread;
        if let Some(after_ms) = shared.service.connection_throttle_ms(thread, address) {
            self.throttled.close_later(stream, now_ms.saturating_add(after_ms));
        } else if shared.connection_quotas.try_increment(&listener, address, now_ms) {
            let is_protected = listener.is_protected;
            self.assign(AcceptedConnection { stream, listener, remote });
            if is_protected && shared.connection_quotas.is_exceeded() {
                shared.ask_for_room();
            }
        }
    }

    /// The system gives no descriptor: nothing is accepted until a connection closes or a short
    /// time has passed.
    fn refuse(&mut self, why: &dyn std::fmt::Display) -> AcceptOutcome {
        if !std::mem::replace(&mut self.refused, true) {
            tracing::warn!("cannot accept connections, they wait until others close: {why}");
        }
        self.shared().connection_quotas.paused.store(true, Ordering::Release);
        AcceptOutcome::Refused
    }
}
