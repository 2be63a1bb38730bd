//! What waits for a decision: filled by reactor threads, emptied by the one policy thread.
//!
//! Whose time is up is asked of the broker by the thread that takes, when it wakes: expiry needs
//! no thread of its own.
//! A turn gets no more than [`TURN_EVENTS`] events, nor more than one above [`TURN_BYTES`] of
//! what they cost: the rest is for the next turn, in the order it came.
//! Limit: a connection that waits for a decision is not read from, so there are at most as many
//! events as parked requests.
//! Threads: pushing takes a short lock and never meets the interpreter; taking waits detached.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::broker::{Broker, Event, Policy};

/// The most events of one turn.
const TURN_EVENTS: usize = 256;
/// What the events of one turn may cost as Python's objects, the last one not counted.
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
    /// What waits, as much as a turn gets, and the members of groups whose time is up; waits itself
    /// for at most `timeout` where there is nothing. `None` after [`EventQueue::close`].
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

    /// What waits, and whether somebody woken.
    fn wait(&self, timeout: Duration) -> Option<(Vec<Event>, bool)> {
        let mut state = self.state.lock();
        if state.queue.is_empty() && !state.closed && !state.woken && !state.recheck {
            self.changed.wait_for(&mut state, timeout);
        }
        state.recheck = false;
        let woken = std::mem::take(&mut state.woken);
        (!state.closed).then(|| (state.take_turn(), woken))
    }

    /// Lets a taker go on at once, with nothing if nothing waits.
    pub(super) fn wakeup(&self) {
        self.state.lock().woken = true;
        self.changed.notify_all();
    }

    /// Ends it: takers get `None` from now on.
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
