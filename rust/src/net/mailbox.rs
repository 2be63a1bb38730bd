//! The mailboxes of the reactor threads: a locked list each, and a wake-up (an eventfd) that is
//! used once a turn however much is posted.
//!
//! The reactor empties its box after the events of a turn and looks again before it blocks, so a
//! post made by that thread itself needs no wake-up at all.
//! Threads: anyone posts; only the owner takes.
//! Not promised: a limit. What is posted is bounded by what is parked, one post for each advance.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;
use mio::net::TcpStream;
use parking_lot::{Mutex, RwLock};

use crate::broker::Mailbox;

/// The mailboxes of all reactor threads of one server.
pub struct Mailboxes<W> {
    boxes: Vec<PostBox<W>>,
}

/// A connection on its way to the thread that will own it.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) listener: Arc<str>,
    pub(super) remote: std::net::SocketAddr,
}

struct PostBox<W> {
    content: Mutex<Content<W>>,
    /// There while its thread is.
    waker: RwLock<Option<Waker>>,
    closed: AtomicBool,
}

pub(super) struct Content<W> {
    pub(super) wakes: Vec<W>,
    pub(super) accepted: Vec<Accepted>,
}

thread_local! {
    /// The box this thread owns: the address of its `PostBox`, 0 where it is no reactor.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

impl<W> Mailboxes<W> {
    /// Boxes for `threads` reactor threads. What is posted before they start is kept for them.
    pub fn new(threads: usize) -> Arc<Self> {
        let boxes = (0..threads)
            .map(|_| PostBox {
                content: Mutex::default(),
                waker: RwLock::default(),
                closed: AtomicBool::new(false),
            })
            .collect();
        Arc::new(Self { boxes })
    }

    /// How many reactor threads there are boxes for.
    pub fn threads(&self) -> usize {
        self.boxes.len()
    }

    /// Binds box `thread` to the calling thread.
    pub(super) fn own(&self, thread: usize, waker: Waker) {
        if let Some(post) = self.boxes.get(thread) {
            OWN.set(post.address());
            *post.waker.write() = Some(waker);
        }
    }

    /// Takes all that lies in box `thread`: the caller's empty lists are exchanged for the full
    /// ones.
    pub(super) fn take(&self, thread: usize, into: &mut Content<W>) {
        if let Some(post) = self.boxes.get(thread) {
            std::mem::swap(&mut *post.content.lock(), into);
        }
    }

    /// True where nothing lies in box `thread`.
    pub(super) fn is_empty(&self, thread: usize) -> bool {
        self.boxes.get(thread).is_none_or(|post| post.content.lock().is_empty())
    }

    /// Empties box `thread` for good: its thread is gone.
    pub(super) fn close(&self, thread: usize) {
        if let Some(post) = self.boxes.get(thread) {
            let mut content = post.content.lock();
            post.closed.store(true, Ordering::Relaxed);
            *content = Content::default();
            post.waker.write().take();
        }
    }

    pub(super) fn hand_over(&self, thread: usize, accepted: Accepted) {
        self.put(thread, |content| content.accepted.push(accepted));
    }

    /// Wakes thread `thread` without leaving anything.
    pub(super) fn nudge(&self, thread: usize) {
        if let Some(post) = self.boxes.get(thread) {
            post.wake();
        }
    }

    fn put(&self, thread: usize, add: impl FnOnce(&mut Content<W>)) {
        let Some(post) = self.boxes.get(thread) else { return };
        let first = {
            let mut content = post.content.lock();
            if post.closed.load(Ordering::Relaxed) {
                return;
            }
            let first = content.is_empty();
            add(&mut content);
            first
        };
        if first && OWN.get() != post.address() {
            post.wake();
        }
    }
}

impl<W: Send> Mailbox<W> for Mailboxes<W> {
    fn post(&self, thread: usize, wake: W) {
        self.put(thread, |content| content.wakes.push(wake));
    }
}

impl<W> PostBox<W> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.read().as_ref()
            && let Err(error) = waker.wake()
        {
            tracing::error!(%error, "a reactor thread cannot be woken");
        }
    }
}

impl<W> Content<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.wakes.is_empty() && self.accepted.is_empty()
    }
}

impl<W> Default for Content<W> {
    fn default() -> Self {
        Self { wakes: Vec::new(), accepted: Vec::new() }
    }
}
