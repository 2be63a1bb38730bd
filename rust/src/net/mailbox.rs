//! The mailboxes of the network threads. Each is a locked list with a wake-up (an eventfd), which
//! is used at most once a turn.
//!
//! A network thread empties its mailbox after the events of a turn and checks it again before it
//! blocks, so a post by the same thread needs no wake-up.
//! Threads: any thread posts; only the owner takes.
//! Not promised: a limit of its own. The number of delayed requests bounds the posts.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;
use mio::net::TcpStream;
use parking_lot::{Mutex, RwLock};

use super::connection_quotas::ListenerQuota;
use crate::broker::Mailbox;

/// The mailboxes of all network threads of one server.
pub struct Mailboxes<W> {
    mailboxes: Vec<ThreadMailbox<W>>,
}

/// A connection on its way to the thread that will own it.
pub(super) struct AcceptedConnection {
    pub(super) stream: TcpStream,
    pub(super) listener: Arc<ListenerQuota>,
    pub(super) remote: std::net::SocketAddr,
}

struct ThreadMailbox<W> {
    content: Mutex<MailboxContents<W>>,
    /// `None` before its thread starts and after it ends.
    waker: RwLock<Option<Waker>>,
    closed: AtomicBool,
}

pub(super) struct MailboxContents<W> {
    pub(super) wakes: Vec<W>,
    pub(super) accepted: Vec<AcceptedConnection>,
}

thread_local! {
    /// The address of this thread's `ThreadMailbox`; 0 if it is no network thread.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

impl<W> Mailboxes<W> {
    /// Mailboxes for `threads` network threads. Posts before their start are kept for them.
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

    /// The number of network threads.
    pub fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// Makes the calling thread the owner of mailbox `thread`.
    pub(super) fn bind(&self, thread: usize, waker: Waker) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            OWN.set(mailbox.address());
            *mailbox.waker.write() = Some(waker);
        }
    }

    /// Takes everything out of mailbox `thread`, by swapping its lists for the caller's empty ones.
    pub(super) fn take(&self, thread: usize, into: &mut MailboxContents<W>) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            std::mem::swap(&mut *mailbox.content.lock(), into);
        }
    }

    /// Whether mailbox `thread` is empty.
    pub(super) fn is_empty(&self, thread: usize) -> bool {
        self.mailboxes.get(thread).is_none_or(|mailbox| mailbox.content.lock().is_empty())
    }

    /// Empties and closes mailbox `thread`, whose thread has ended.
    pub(super) fn close(&self, thread: usize) {
        if let Some(mailbox) = self.mailboxes.get(thread) {
            let mut content = mailbox.content.lock();
            mailbox.closed.store(true, Ordering::Relaxed);
            *content = MailboxContents::default();
            mailbox.waker.write().take();
        }
    }

    pub(super) fn post_accepted(&self, thread: usize, accepted: AcceptedConnection) {
        self.put(thread, |content| content.accepted.push(accepted));
    }

    /// Wakes thread `thread` without a message.
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
            tracing::error!(%error, "a network thread cannot be woken");
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
