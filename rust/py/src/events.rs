//! The queue of events for the policy: network threads fill it, the policy thread empties it.
//!
//! The policy thread also asks the broker for expired sessions when it wakes, so expiry needs no
//! thread of its own.
//! A turn gets at most [`TURN_EVENTS`] events, and stops after the event that exceeds
//! [`TURN_BYTES`]. The rest stays in the queue, in order.
//! Limit: a connection that waits for a decision is not read from, so there are at most as many
//! events as delayed requests.
//! Threads: pushing takes a short lock and never touches the interpreter; taking waits detached.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use krust::broker::{Broker, Event, Policy};

/// The most events of one turn.
const TURN_EVENTS: usize = 256;
/// The memory that the events of one turn may take as Python objects, without the last one.
const TURN_BYTES: usize = 8 << 20;

/// The queue.
#[derive(Default)]
pub(super) struct EventQueue {
    state: Mutex<EventQueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct EventQueueState {
    queue: VecDeque<Event>,
    closed: bool,
    woken: bool,
    recheck: bool,
}

impl EventQueue {
    /// The events of one turn, and the group members whose session has expired. Waits for at most
    /// `timeout` if there is none. `None` after [`EventQueue::close`].
    pub(super) fn take(&self, broker: &Broker, timeout: Duration) -> Option<Vec<Event>> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let due = broker.session_due_ms().map_or(left, Duration::from_millis);
            let (mut events, woken) = self.wait(left.min(due))?;
            events.extend(broker.expire_sessions());
            if woken || !events.is_empty() || Instant::now() >= end {
                return Some(events);
            }
        }
    }

    /// The waiting events, and whether the queue was woken.
    fn wait(&self, timeout: Duration) -> Option<(Vec<Event>, bool)> {
        let mut state = self.state.lock();
        if state.queue.is_empty() && !state.closed && !state.woken && !state.recheck {
            self.changed.wait_for(&mut state, timeout);
        }
        state.recheck = false;
        let woken = std::mem::take(&mut state.woken);
        (!state.closed).then(|| (state.take_turn(), woken))
    }

    /// Makes `take` return at once, now or the next time.
    pub(super) fn wakeup(&self) {
        self.state.lock().woken = true;
        self.changed.notify_all();
    }

    /// Closes the queue: `take` returns `None` from now on.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

impl EventQueueState {
    /// The events of one turn.
    fn take_turn(&mut self) -> Vec<Event> {
        let mut cost = 0;
        let count = self.queue.iter().take(TURN_EVENTS).take_while(|event| {
            let fits = cost < TURN_BYTES;
            cost += event.lease.as_ref().map_or(0, |lease| lease.bytes());
            fits
        });
        let count = count.count();
        self.queue.drain(..count).collect()
    }
}

impl Policy for EventQueue {
    fn submit(&self, event: Event) {
        self.state.lock().queue.push_back(event);
        self.changed.notify_one();
    }

    fn hurry(&self) {
        self.state.lock().recheck = true;
        self.changed.notify_one();
    }
}
