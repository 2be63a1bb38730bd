//! The broker: what is done with a request, from its bytes to its reply.

mod reply;
mod service;

pub use reply::{Output, Replies, Slot};
pub use service::{At, ConnId, Done, Flow, Mailbox, Peer, Received, Service};

use crate::ids::TopicPartition;

/// What other threads tell a reactor thread.
#[derive(Clone, Debug)]
pub enum Wake {
    /// A watermark of this partition moved: requests that wait for it are to be looked at again.
    Advanced(TopicPartition),
}
