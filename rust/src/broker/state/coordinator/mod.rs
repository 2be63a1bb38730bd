//! The state of a coordinator in memory and its log: the part that group and transaction
//! coordinators share, like Kafka's `CoordinatorRuntime`. It makes no decision and does not know
//! the meaning of a record.
//!
//! ```text
//! shard   one partition of the coordinator's topic: its state, its lock, appends
//! shards  the shards that this broker leads, and which of them owns a key
//! ```
//! A coordinator keeps its state in memory and in an internal topic. Each partition of that topic
//! is a [`shard::CoordinatorShard`] with its own lock. A change is checked, appended and applied
//! under that lock, so that log and memory have the same order. `lifecycle::coordinator` replays
//! the log when this broker becomes its leader. Timers belong to each coordinator's own state.

pub(crate) mod shard;
pub(crate) mod shards;
