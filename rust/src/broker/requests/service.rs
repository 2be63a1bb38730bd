//! The interface between the net module and the code that answers requests: the broker, or a test
//! double.
//!
//! Each network thread owns one [`Service::Thread`], each connection one
//! [`Service::ConnectionContext`]. Both stay on their thread and need no lock. Events of other
//! threads (a watermark moved, the policy answered) reach a network thread through its
//! [`Mailbox`], and the thread passes them to [`Service::wake`].
//! Threads: all methods with a `Thread` are called on that network thread. None may block.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use crate::broker::requests::reply::{Output, Replies, Slot};

/// The number of a connection on its network thread; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The connection's number on its thread.
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
pub struct ReceivedFrames<'a> {
    /// The bytes that were read.
    pub buf: &'a [u8],
    /// The frames without their length prefix, as ranges of `buf`, in order; at least one.
    pub frames: &'a [Range<usize>],
}

impl<'a> ReceivedFrames<'a> {
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
    /// A request waits long: the connection is not read until all its delayed slots are filled.
    Hold,
    /// The peer's bytes are malformed: the replies that are ready are sent, then the connection is
    /// closed.
    Close,
}

/// The answer to a request that was delayed.
#[derive(Debug)]
pub struct DelayedReply {
    /// The connection that asked.
    pub conn: ConnId,
    /// Its slot in the order of replies.
    pub slot: Slot,
    /// The reply; empty if the client expects none.
    pub output: Output,
    /// `Close` if the connection must be closed after this reply; otherwise `Go`.
    pub flow: Flow,
}

/// Answers requests. The net module knows bytes, order and back-pressure; a service knows the rest.
pub trait Service: Send + Sync + 'static {
    /// The state of one network thread: delayed requests, timers, buffers.
    type Thread;
    /// The context of one connection.
    type ConnectionContext;
    /// A message that other threads post to a network thread.
    type Wake: Send + 'static;

    /// Makes the state of network thread `index`; called on that thread.
    fn thread(&self, index: usize) -> Self::Thread;

    /// A connection was accepted.
    fn opened(&self, thread: &mut Self::Thread, peer: Peer) -> Self::ConnectionContext;

    /// The TLS handshake of a connection is complete, and the client has shown `certificate` (in
    /// DER), which is verified. Called before its first request is handled. `Close`: it is refused.
    fn certified(&self, connection: &mut Self::ConnectionContext, certificate: &[u8]) -> Flow {
        let _ = (connection, certificate);
        Flow::Go
    }

    /// A connection from `address` was accepted. `Some`: it exceeds the quota, and is closed after
    /// this many milliseconds without being read. Called on the thread that accepts.
    fn connection_throttle_ms(&self, thread: &mut Self::Thread, address: IpAddr) -> Option<i64> {
        let _ = (thread, address);
        None
    }

    /// Whether the client has proved who it is, or need not. Until then its frames are small and
    /// its time is short.
    fn is_authenticated(&self, connection: &Self::ConnectionContext) -> bool {
        let _ = connection;
        true
    }

    /// Handles all whole frames that one readable event brought. Each is answered through
    /// `replies`, delayed there, expects no reply, or is left for later ([`Replies::leave`]).
    fn event(
        &self,
        at: EventContext<'_, Self>,
        received: ReceivedFrames<'_>,
        replies: &mut Replies,
    ) -> Flow
    where
        Self: Sized;

    /// Handles all messages that were posted to this thread since the last turn. The replies of
    /// delayed requests that are complete go to `done`.
    fn wake(
        &self,
        thread: &mut Self::Thread,
        wakes: &mut Vec<Self::Wake>,
        done: &mut Vec<DelayedReply>,
    );

    /// Answers delayed requests whose time is up at `now_ms` (monotonic).
    fn expire(&self, thread: &mut Self::Thread, now_ms: i64, done: &mut Vec<DelayedReply>);

    /// When [`Service::expire`] must be called next, in monotonic milliseconds.
    fn next_deadline(&self, thread: &Self::Thread) -> Option<i64>;

    /// A connection was closed: its delayed requests are dropped.
    fn closed(&self, thread: &mut Self::Thread, conn: ConnId, connection: Self::ConnectionContext);
}

/// The states that a request's handler may use: the network thread's and the connection's.
pub struct EventContext<'a, S: Service> {
    /// The network thread's state.
    pub thread: &'a mut S::Thread,
    /// The connection's state.
    pub connection: &'a mut S::ConnectionContext,
}

/// The mailbox of the network threads. Other threads post to it. A network thread is woken once a
/// turn for all posts. The net module implements it.
pub trait Mailbox<W>: Send + Sync {
    /// Posts `wake` to network thread `thread`. It is dropped if that thread does not exist.
    fn post(&self, thread: usize, wake: W);
}
