//! [`ConnectionContext`]: what a connection keeps between its requests.
//!
//! Threads: owned by the connection's network thread.

use std::sync::Arc;

use crate::broker::requests::service::Peer;
use crate::broker::state::fetch_sessions::ConnectionSessions;
use crate::broker::state::quotas::account::Account;
use crate::broker::state::waking::DelayedId;

/// The context of one connection.
#[derive(Debug)]
pub struct ConnectionContext {
    pub(crate) peer: Peer,
    /// Whether it came through the listener that brokers use among each other.
    pub(crate) is_brokers_own: bool,
    /// The connection's number in the whole broker; never used twice, and not 0.
    pub(crate) connection: u64,
    /// Whether a group member may use it.
    pub(crate) is_speaker: bool,
    /// Its client's quota account, if there are quotas.
    pub(crate) account: Option<Arc<Account>>,
    /// What happens to the frames behind the current one.
    pub(crate) behind: Behind,
    /// Its delayed requests, and some that were answered already.
    pub(crate) delayed: Vec<DelayedId>,
    /// The fetch sessions that were used through it.
    pub(crate) fetch_sessions: ConnectionSessions,
}

/// What happens to the frames of a connection behind the current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behind {
    /// They are handled next.
    #[default]
    IsNext,
    /// They are handled after its answer: the policy or a worker has it.
    WaitsForTheAnswer,
    /// They are handled later, after the current one is retried: there is no memory for it now.
    WaitsWithIt,
}
