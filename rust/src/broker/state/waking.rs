//! Wakes delayed requests: tells a network thread that one of its requests may go on.
//!
//! State knows a delayed request only by its thread and its [`DelayedId`].
//! Threads: any. A request of the same thread is added to that thread's own list.

/// Names a delayed request within its reactor thread; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelayedId(pub u64);

/// Reaches the network threads.
pub trait Waker: Send + Sync {
    /// Makes network thread `thread` retry its request `delayed`, which may have been answered.
    fn wake(&self, thread: usize, delayed: DelayedId);

    /// A leader added a proposal for the controller, which is to be sent.
    fn isr_proposed(&self) {}
}

/// Collects the threads and requests to be woken.
pub struct Wakes<'a> {
    /// The reactor thread that runs this, and its own list; `None` on any other thread.
    pub here: Option<(usize, &'a mut Vec<DelayedId>)>,
    /// The way to the other threads.
    pub waker: &'a dyn Waker,
}

impl Wakes<'_> {
    /// Wakes the request `delayed` of reactor thread `thread`.
    pub fn wake(&mut self, thread: usize, delayed: DelayedId) {
        match &mut self.here {
            Some((here, list)) if *here == thread => list.push(delayed),
            _ => self.waker.wake(thread, delayed),
        }
    }
}
