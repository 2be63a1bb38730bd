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
    mailboxes: Vec<ThreadMailbox<W>>,
}

/// A connection on its way to the thread that will own it.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) listener: Arc<str>,
    pub(super) remote: std::net::SocketAddr,
}

struct ThreadMailbox<W> {
    content: Mutex<MailboxContents<W>>,
    /// There while its thread is.
    waker: RwLock<Option<Waker>>,
    closed: AtomicBool,
}

pub(super) struct MailboxContents<W> {
    pub(super) wakes: Vec<W>,
    pub(super) accepted: Vec<Accepted>,
}

thread_local! {
    /// The box this thread owns: the address of its `ThreadMailbox`, 0 where it is no reactor.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

impl<W> Mailboxes<W> {
    /// Boxes for `threads` reactor threads. What is posted before they start is kept for them.
    pub fn new(threads: usize) -> Arc<Self> {
        let mailboxes = (0..threads)
            .map(|_| ThreadMailbox {
                content: Mutex::default(),
                waker: RwLock::default(),
                closed: AtomicBool::new(false),
            })
            .collect();
        Arc::new(Self { mailboxes })
    }

    /// How many reactor threads there are mailboxes for.
    pub fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// Binds box `thread` to the calling thread.
    pub(super) fn bind(&self, thread: usize, waker: Waker) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            OWN.set(mailbox.address());
            *mailbox.waker.write() = Some(waker);
        }
    }

    /// Takes all that lies in box `thread`: the caller's empty lists are exchanged for the full
    /// ones.
    pub(super) fn take(&self, thread: usize, into: &mut MailboxContents<W>) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            std::mem::swap(&mut *mailbox.content.lock(), into);
        }
    }

    /// True where nothing lies in box `thread`.
    pub(super) fn is_empty(&self, thread: usize) -> bool {
        self.mailboxes.get(thread).is_none_or(|mailbox| mailbox.content.lock().is_empty())
    }

    /// Empties box `thread` for good: its thread is gone.
    pub(super) fn close(&self, thread: usize) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            let mut content = mailbox.content.lock();
            mailbox.closed.store(true, Ordering::Relaxed);
            *content = MailboxContents::default();
            mailbox.waker.write().take();
        }
    }

    pub(super) fn post_accepted(&self, thread: usize, accepted: Accepted) {
        self.put(thread, |content| content.accepted.push(accepted));
    }

    /// Wakes thread `thread` without leaving anything.
    pub(super) fn wakeup(&self, thread: usize) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            mailbox.wake();
        }
    }

    fn put(&self, thread: usize, add: impl FnOnce(&mut MailboxContents<W>)) {
        let Some(mailbox) = self.mailboxes.get(thread) else { return };
        let first = {
            let mut content = mailbox.content.lock();
            if mailbox.closed.load(Ordering::Relaxed) {
                return;
            }
            let first = content.is_empty();
            add(&mut content);
            first
        };
        if first && OWN.get() != mailbox.address() {
            mailbox.wake();
        }
    }
}

impl<W: Send> Mailbox<W> for Mailboxes<W> {
    fn post(&self, thread: usize, wake: W) {
        self.put(thread, |content| content.wakes.push(wake));
    }
}

impl<W> ThreadMailbox<W> {
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

impl<W> MailboxContents<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.wakes.is_empty() && self.accepted.is_empty()
    }
}

impl<W> Default for MailboxContents<W> {
    fn default() -> Self {
        Self { wakes: Vec::new(), accepted: Vec::new() }
    }
}
