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
//! The way of a transaction. AddPartitionsToTxn, or under protocol 2 the leader that gets a Produce
//! (`verify`), has the coordinator append to `__transaction_state` that it is ongoing (`steps`).
//! EndTxn appends the decision. Once that is committed, the transaction thread writes a marker to
//! each partition (`writer`), here or by its leader; each marker moves the partition's last stable
//! offset. When all are committed, it appends that the transaction is complete, and EndTxn is
//! answered; it waits at most 20 ms for the markers (`handlers/end_reply.rs`).
//! Threads: network threads, the loader's, the log scheduler's, and the transaction thread.

mod markers;
pub(crate) mod replay;
mod rounds;
mod steps;
mod verify;
mod writer;
