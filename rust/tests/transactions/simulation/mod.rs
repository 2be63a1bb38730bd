//! Transactions of several producers under one seed: the real steps of the coordinator, the real
//! records of its log, the real logs of the partitions and the real memory of a group's offsets,
//! with models of the network, of the clients and of the replicas of the coordinator's log.
//!
//! ```text
//! random       chance from a seed
//! messages     what travels, and may be lost, repeated or late
//! coordinator  steps, appends, replies, markers; it dies, and another loads its log
//! partition    a partition of the data, or of offsets: verification, batches, markers
//! group        the coordinator of the group whose offsets are committed; it dies, too
//! client       a transactional producer, of protocol 1 or 2, or one that was superseded
//! oracle       which transaction ended how, and what a reader may see of it
//! world        who acts next, until all has healed
//! ```

mod client;
mod coordinator;
mod group;
mod messages;
mod oracle;
mod partition;
mod random;
mod world;

pub use self::world::{Summary, run};
