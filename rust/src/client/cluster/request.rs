//! A request for a cluster, and which of its brokers gets it.

use crate::client::connection::newest;
use crate::wire::Writer;

/// The broker that a request is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Any broker that answers.
    Any,
    /// The controller. In a KRaft cluster any broker forwards the request.
    Controller,
    /// This node.
    Broker(i32),
}

/// A request for [`Cluster::call`].
pub struct ClusterRequest<'a> {
    /// The broker to ask.
    pub target: Target,
    /// The API's key.
    pub key: i16,
    /// The newest version that the caller accepts.
    pub last: i16,
    /// Appends the body at the version agreed.
    pub encode: &'a dyn Fn(&mut Writer, i16),
}

impl<'a> ClusterRequest<'a> {
    /// A request at the newest version that both sides know.
    pub fn new(target: Target, key: i16, encode: &'a dyn Fn(&mut Writer, i16)) -> Self {
        Self { target, key, last: newest(key), encode }
    }
}
