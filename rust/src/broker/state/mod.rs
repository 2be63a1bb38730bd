//! The broker's state: the cluster image, partitions, coordinators, groups, quotas, fetch sessions.
//! Nothing here knows a request or how it is answered.

pub mod coordinator;
pub mod fetch_sessions;
pub mod fetching;
pub mod groups;
pub mod image;
pub(crate) mod lookup;
pub mod partition;
pub mod peer_reach;
pub(crate) mod places;
pub(crate) mod producer_ids;
pub(crate) mod proven;
pub mod quotas;
pub mod read_replicas;
pub(crate) mod replication;
pub mod store;
pub(crate) mod topic_pattern;
pub(crate) mod unserved;
pub mod waking;
