//! What a coordinator keeps in memory of its log: the part that group and transaction coordinators
//! share. Nothing here decides, and nothing here knows a record's meaning.
//!
//! ```text
//! shard   one partition of the coordinator's topic: its state, its lock, appends
//! shards  those that this broker leads, and which of them a key belongs to
//! ```
//! A coordinator keeps its state in memory and in an internal topic. Each partition of that topic
//! is a [`shard::CoordinatorShard`] with a lock of its own: a change is checked, appended and kept
//! under it, so that log and memory have one order. `lifecycle::coordinator` replays the log where
//! this broker becomes its leader.
//! As Kafka's `CoordinatorRuntime`, but for timers: they belong to what is kept.

pub(crate) mod shard;
pub(crate) mod shards;
