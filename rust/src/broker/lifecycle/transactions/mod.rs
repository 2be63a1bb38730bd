//! The transaction coordinator at work: logs are replayed when this broker becomes their leader,
//! events are stepped, markers written, and timed-out transactions and silent ids ended.
//!
//! ```text
//! steps    one event of one transactional id, from its decision to its append
//! replay   the log of a partition of `__transaction_state`
//! writer   the thread that writes markers
//! markers  the marker of one partition
//! verify   partitions that leaders ask for
//! rounds   transactions whose time is up, and ids that expire
//! ```
//! Threads: network threads, the loader's, the log scheduler's, and the transaction thread.

mod markers;
pub(crate) mod replay;
mod rounds;
mod steps;
mod verify;
mod writer;
