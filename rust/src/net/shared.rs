//! The state that all threads of one server share: the service, the limits and the flags that stop
//! or pause them.
//!
//! Threads: all of them; every field is immutable, atomic or locks itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::listener::ConnectionQuotas;
use super::mailbox::Mailboxes;
use super::options::NetworkOptions;
use super::pause_barrier::PauseBarrier;
use crate::broker::Service;
use crate::clock::Clock;

/// The state that all threads of one server share.
pub(crate) struct SharedState<S: Service> {
    pub(super) service: Arc<S>,
    pub(super) mailboxes: Arc<Mailboxes<S::Wake>>,
    pub(super) options: NetworkOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) connection_quotas: ConnectionQuotas,
    /// Connections by thread.
    pub(super) load: Vec<AtomicUsize>,
    pub(super) pause_barrier: PauseBarrier,
    pub(super) stopping: AtomicBool,
    pub(super) failed: AtomicBool,
}

impl<S: Service> SharedState<S> {
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.pause_barrier.resume();
        self.wakeup();
    }

    pub(super) fn wakeup(&self) {
        (0..self.mailboxes.threads()).for_each(|thread| self.mailboxes.wakeup(thread));
    }

    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.stop();
    }

    /// The thread with the fewest connections.
    pub(super) fn least_loaded_thread(&self) -> usize {
        let loads = self.load.iter().map(|load| load.load(Ordering::Relaxed));
        loads.enumerate().min_by_key(|(_, load)| *load).map_or(0, |(index, _)| index)
    }
}
