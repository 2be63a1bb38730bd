//! Replication of one partition, as step functions: an event and the time go in, effects come out.
//!
//! ```text
//! leader    in-sync replicas, progress of the followers, the high watermark
//! follower  what to ask the leader next, where to truncate, what to append
//! ```
//! Nothing here owns a socket, a clock, a thread, a file or a source of chance, so the same code
//! runs in the broker and in the simulator (`rust/tests/replica`).
//!
//! Threads: none. The caller serialises the steps of one partition.
//! Not promised: that an effect succeeds. Its outcome comes back as the next event, or not at all.

pub mod follower;
pub mod leader;
