//! Wakes delayed requests: notifies a network thread that one of its requests may go on.
//!
//! The `state` layer knows a delayed request only by its thread and its [`DelayedId`].
//! Threads: any. A request of the same thread is added to that thread's own list.

/// The id of a delayed request on its network thread; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelayedId(pub u64);

/// Notifies network threads.
pub trait Waker: Send + Sync {
    /// Makes network thread `thread` retry its request `delayed`, which may have been answered.
    fn wake(&self, thread: usize, delayed: DelayedId);

    /// A leader added a proposal that must be sent to the controller.
    fn isr_proposed(&self) {}
}

/// Collects the threads and requests to be woken.
pub struct Wakes<'a> {
    /// The network thread that runs this, and its own list; `None` on any other thread.
    pub here: Option<(usize, &'a mut Vec<DelayedId>)>,
    /// Notifies the other threads.
    pub waker: &'a dyn Waker,
}

impl Wakes<'_> {
    /// Wakes the request `delayed` of network thread `thread`.
    pub fn wake(&mut self, thread: usize, delayed: DelayedId) {
        match &mut self.here {
            Some((here, list)) if *here == thread => list.push(delayed),
            _ => self.waker.wake(thread, delayed),
        }
    }
}
