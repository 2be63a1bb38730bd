//! The state that all threads of one server share: the service, the limits and the flags that stop
//! or pause them.
//!
//! Threads: all of them; every field is immutable, atomic or locks itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::connection_quotas::ConnectionQuotas;
use super::login_memory::LoginMemory;
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
    pub(super) login_memory: LoginMemory,
    /// Whether new connections wait for others to close. Then those that say nothing have little
    /// time.
    pub(super) crowded: AtomicBool,
    /// By thread: whether it is to look for connections that have to make room.
    pub(super) room_wanted: Vec<AtomicBool>,
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

    /// Makes every thread look for connections that have to make room.
    pub(super) fn ask_for_room(&self) {
        for (thread, wanted) in self.room_wanted.iter().enumerate() {
            if !wanted.swap(true, Ordering::AcqRel) {
                self.mailboxes.wakeup(thread);
            }
        }
    }

    /// Whether thread `index` was asked for room since the last call.
    pub(super) fn take_room_wanted(&self, index: usize) -> bool {
        self.room_wanted.get(index).is_some_and(|wanted| {
            wanted.load(Ordering::Relaxed) && wanted.swap(false, Ordering::AcqRel)
        })
    }

    /// Notes whether new connections wait for others to close.
    pub(super) fn set_crowded(&self, crowded: bool) {
        if self.crowded.swap(crowded, Ordering::Relaxed) != crowded && crowded {
            self.ask_for_room();
        }
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
