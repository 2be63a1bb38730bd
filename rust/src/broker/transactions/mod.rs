//! The transaction coordinator's decisions, as step functions: a transaction, an event and the time
//! go in, the next state of the transaction and the answer come out.
//!
//! ```text
//! transaction  what the coordinator knows of one transactional id
//! step         what an event does to it: all decisions
//! records      keys and values of `__transaction_state`
//! ```
//! Nothing here owns a log, a lock, a clock, a thread or a source of producer ids, so the same code
//! runs in the broker and in a simulator.
//!
//! Invariants: a producer's epoch never falls under one producer id. An epoch of 32767 is never
//!     given to a client, so that there is always one left to fence it with.
//! Threads: none. The caller serialises the steps of one transactional id.
//! Not promised: that a change is durable. The caller appends it before it applies it, and answers
//!     once the append is committed.

pub mod records;
pub mod step;
pub mod transaction;
