//! The broker: handles requests, from their bytes to their replies.
//!
//! ```text
//! lifecycle  changes of partitions: metadata deltas, opening, moves, coordinators' logs
//! handlers   one file for each API, and the dispatch to them
//! requests   call, reply, delayed operations, decisions of the policy, the API table
//! state      image, partitions, coordinators, groups, quotas, fetch sessions: knows no request
//! replica    replication of one partition, as step functions
//! transactions  decisions on transactional ids, as step functions
//! policy     the interface to the policy      errors  errors of lower layers to Kafka's codes
//! ```
//! A file imports from its own folder and from the folders below it.
//!
//! Threads: all network threads share [`Broker`]. Each has its own `ThreadState`, each connection
//!     its own [`ConnectionContext`]. Deltas are applied on the caller's thread, one at a time.
//! Not promised: that followers of this broker's partitions live. Those that are silent for
//!     `replica.lag.time.max.ms` leave the in-sync set, if the controller can be asked.

mod errors;
mod handlers;
mod lifecycle;
pub mod policy;
pub mod replica;
mod requests;
mod state;
pub mod transactions;

pub use handlers::dispatch::NetworkThread;
pub use lifecycle::groups::{GroupOutcome, WrongReply};
pub use lifecycle::opening::ApplyError;
pub use policy::{ClientProof, Event, Policy, RequestClient, Ticket};
pub use requests::apis;
pub use requests::broker::{Broker, Settings};
pub use requests::connection::ConnectionContext;
pub use requests::delayed::{NextWait, Wake};
pub use requests::reply::{Output, Replies, Slot};
pub use requests::service::{
    ConnId, DelayedReply, EventContext, Flow, Mailbox, Peer, ReceivedFrames, Service,
};
pub use state::acls;
pub use state::class_acls::{AskTimes, ClassClient, ClientQuestion};
pub use state::coordinator::shard::{AppendedAt, CoordinatorState};
pub use state::fetch_sessions::SessionLimits;
pub use state::fetching;
pub use state::groups::appending::GroupRecord;
pub use state::groups::shard_groups::ShardGroups;
pub use state::groups::snapshot::{
    GroupKind, GroupSnapshot, GroupState, MemberRole, MemberSnapshot,
};
pub use state::image::{self, ClusterImage, MetadataDelta};
pub use state::inter_broker;
pub use state::log_manager::{LoadedLog, LogManager};
pub use state::logins::{ListenerLogins, OfferedMechanism};
pub use state::partition::{
    Acks, AnsweredRequest, CommitCallback, FollowerStep, Partition, ReplicaRole,
};
pub use state::peer_reach::PeerReach;
pub use state::principals::{LetterCase, PrincipalRules};
pub use state::quotas;
pub use state::read_replicas::ReplicaSelector;
pub use state::transactions::TransactionSettings;
pub use state::txn_marker::TxnMarker;
pub use state::waking::{DelayedId, Waker};
