//! [`ConnectionContext`]: the state of a connection that outlives its requests.
//!
//! Threads: owned by the connection's network thread.

use std::cell::RefCell;
use std::sync::Arc;

use crate::broker::requests::login::Login;
use crate::broker::requests::service::Peer;
use crate::broker::state::acls::AclClient;
use crate::broker::state::class_acls::ConnectedClient;
use crate::broker::state::fetch_sessions::ConnectionSessions;
use crate::broker::state::quotas::account::QuotaAccount;
use crate::broker::state::refused_batches::SharedRefusedBatches;
use crate::broker::state::waking::DelayedId;

/// The context of one connection.
#[derive(Debug)]
pub struct ConnectionContext {
    pub(crate) peer: Peer,
    /// Whether it came through the listener between brokers.
    pub(crate) is_brokers_own: bool,
    /// Whether it came through the listener between brokers, or the one that would be, if this
    /// broker is alone.
    pub(crate) is_administrators: bool,
    /// The connection's number in the whole broker, from 1; never used twice.
    pub(crate) number: u64,
    /// Whether a group member uses it.
    pub(crate) has_group_member: bool,
    /// Its client's quota account, if there are quotas.
    pub(crate) account: Option<Arc<QuotaAccount>>,
    /// The login, on a listener with SASL.
    pub(crate) login: Option<Box<Login>>,
    /// The name of the client's principal.
    pub(crate) user: Arc<str>,
    /// The client's address as ACLs name it; empty without an authorizer.
    pub(crate) host: Arc<str>,
    /// Its client, for whose ACLs a user's class is asked.
    pub(crate) class_acls: Option<ConnectedClient>,
    /// The client as ACLs saw it at its last request.
    pub(crate) acl_client: RefCell<Option<Arc<AclClient>>>,
    /// How the frames after the current one are handled.
    pub(crate) following_frames: FollowingFrames,
    /// Its delayed requests, and some that were answered already.
    pub(crate) delayed: Vec<DelayedId>,
    /// The fetch sessions that were used through it.
    pub(crate) fetch_sessions: ConnectionSessions,
    /// The batches of its producers that were refused for a temporary reason.
    pub(crate) refused_batches: SharedRefusedBatches,
}

/// How the frames of a connection after the current one are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FollowingFrames {
    /// Now.
    #[default]
    HandleNext,
    /// After the answer to the current one, which the policy or a worker has.
    WaitForAnswer,
    /// After the current one is retried: there is no memory for it now.
    WaitForRetry,
    /// After the current one is handled again, when the slot that it has reserved is filled.
    WaitForSlot,
}
