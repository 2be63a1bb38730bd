//! The broker's state: the cluster image, partitions, coordinators, groups, quotas, fetch sessions.
//! This layer does not know requests or replies.

mod acl_decisions;
mod acl_operations;
pub mod acls;
pub mod class_acls;
pub mod coordinator;
pub(crate) mod dir_assignments;
pub mod fetch_sessions;
pub mod fetching;
pub mod groups;
pub mod image;
pub mod inter_broker;
mod java_pattern;
pub mod log_manager;
pub mod logins;
pub(crate) mod lookup;
pub mod partition;
pub(crate) mod pattern;
pub mod peer_reach;
pub mod principals;
pub(crate) mod producer_ids;
pub(crate) mod proven;
pub mod quotas;
pub mod read_replicas;
pub(crate) mod refused_batches;
pub(crate) mod replication;
pub(crate) mod transactions;
pub mod txn_marker;
pub mod waking;
