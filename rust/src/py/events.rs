//! What waits for a decision: filled by reactor threads, emptied by the one policy thread.
//!
//! Limit: a connection that waits for a decision is not read from, so there are at most as many
//! events as parked requests.
//! Threads: pushing takes a short lock and never meets the interpreter; taking waits detached.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::broker::{Event, Policy};

/// The queue.
#[derive(Default)]
pub(super) struct Events {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Event>,
    closed: bool,
    nudged: bool,
}

impl Events {
    /// All that waits; waits itself for at most `timeout` where nothing does. `None` after
    /// [`Events::close`].
    pub(super) fn take(&self, timeout: Duration) -> Option<Vec<Event>> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && !state.closed && !state.nudged {
            self.changed.wait_for(&mut state, timeout);
        }
        state.nudged = false;
        (!state.closed).then(|| state.waiting.drain(..).collect())
    }

    /// Lets a taker go on at once, with nothing if nothing waits.
    pub(super) fn nudge(&self) {
        self.state.lock().nudged = true;
        self.changed.notify_all();
    }

    /// Ends it: takers get `None` from now on.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

impl Policy for Events {
    fn submit(&self, event: Event) {
        self.state.lock().waiting.push_back(event);
        self.changed.notify_one();
    }
}
