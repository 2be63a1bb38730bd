//! The port between the net module and the code that answers requests: the broker, or a test
//! double.
//!
//! Each reactor thread owns one [`Service::Thread`], each connection one [`Service::Session`]. Both
//! stay on their thread and need no lock. Events of other threads (a watermark moved, the policy
//! answered) reach a reactor through its [`Mailbox`], and the reactor passes them to
//! [`Service::wake`].
//! Threads: all methods with a `Thread` are called on that reactor thread. None may block.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use crate::broker::requests::reply::{Output, Replies, Slot};

/// Names a connection within its reactor thread; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The connection's name on its thread.
    pub conn: ConnId,
    /// The name of the listener that accepted it.
    pub listener: Arc<str>,
    /// The address the client connected to.
    pub local: SocketAddr,
    /// The address it came from.
    pub remote: SocketAddr,
}

/// The whole frames that one readable event brought.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// What was read.
    pub buf: &'a [u8],
    /// The frames without their length prefix, as ranges of `buf`, in order; at least one.
    pub frames: &'a [Range<usize>],
}

impl<'a> Received<'a> {
    /// The bytes of each frame, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let buf = self.buf;
        self.frames.iter().map(move |range| buf.get(range.clone()).unwrap_or_default())
    }
}

/// How a connection goes on after its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Read on.
    Go,
    /// A request waits long: do not read until every delayed slot of this connection is filled.
    Hold,
    /// The peer's bytes make no sense: send what is ready, then close.
    Close,
}

/// The answer to a request that was delayed.
#[derive(Debug)]
pub struct Done {
    /// The connection that asked.
    pub conn: ConnId,
    /// Its place in the order of replies.
    pub slot: Slot,
    /// The reply; empty where the client expects none.
    pub output: Output,
    /// `Close` where the connection must go after this reply; otherwise `Go`.
    pub flow: Flow,
}

/// Answers requests. The net module knows bytes, order and back-pressure; a service knows the rest.
pub trait Service: Send + Sync + 'static {
    /// What one reactor thread keeps: delayed requests, timers, scratch.
    type Thread;
    /// The context of one connection.
    type Session;
    /// What other threads post to a reactor thread.
    type Wake: Send + 'static;

    /// Makes the state of reactor thread `index`; called on that thread.
    fn thread(&self, index: usize) -> Self::Thread;

    /// A connection was accepted.
    fn opened(&self, thread: &mut Self::Thread, peer: Peer) -> Self::Session;

    /// A connection from `address` came. `Some`: it is one too many, and closed unheard after so
    /// many milliseconds. Called on the thread that accepts.
    fn connection_throttle_ms(&self, thread: &mut Self::Thread, address: IpAddr) -> Option<i64> {
        let _ = (thread, address);
        None
    }

    /// All whole frames that one readable event brought. Each is answered through `replies`,
    /// delayed there, expects no reply, or is left ([`Replies::leave`]).
    fn event(&self, at: At<'_, Self>, received: Received<'_>, replies: &mut Replies) -> Flow
    where
        Self: Sized;

    /// Takes all that was posted to this thread since the last turn; delayed requests that are
    /// complete go to `done`.
    fn wake(&self, thread: &mut Self::Thread, wakes: &mut Vec<Self::Wake>, done: &mut Vec<Done>);

    /// Answers delayed requests whose time is up at `now_ms` (monotonic).
    fn expire(&self, thread: &mut Self::Thread, now_ms: i64, done: &mut Vec<Done>);

    /// When [`Service::expire`] is wanted next (monotonic milliseconds).
    fn next_deadline(&self, thread: &Self::Thread) -> Option<i64>;

    /// A connection is gone: its delayed requests are to be forgotten.
    fn closed(&self, thread: &mut Self::Thread, conn: ConnId, session: Self::Session);
}

/// Where requests are handled: the states of the reactor thread and of the connection.
pub struct At<'a, S: Service> {
    /// The reactor thread's state.
    pub thread: &'a mut S::Thread,
    /// The connection's state.
    pub session: &'a mut S::Session,
}

/// The mailbox of the reactor threads. Other threads post to it; a reactor is woken once a turn for
/// all posts. Implemented by the net module.
pub trait Mailbox<W>: Send + Sync {
    /// Posts `wake` to reactor thread `thread`. It is dropped if that thread does not exist.
    fn post(&self, thread: usize, wake: W);
}
