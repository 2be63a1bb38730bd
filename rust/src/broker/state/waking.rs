//! How whoever changes state tells network threads that a delayed request may go on.
//!
//! State knows a delayed request by its thread and its [`DelayedId`], and nothing else of it.
//! Threads: any; a request of the thread that runs the change goes to that thread's own list.

/// Names a delayed request within its reactor thread; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelayedId(pub u64);

/// Reaches the network threads.
pub trait Waker: Send + Sync {
    /// Has network thread `thread` look at its request `delayed` again; it may be gone.
    fn wake(&self, thread: usize, delayed: DelayedId);
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
