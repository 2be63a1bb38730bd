//! The Kafka client, for Python's clients, the command line and requests between brokers.
//!
//! `socket` moves frames with deadlines. `connection` agrees on versions and matches responses to
//! requests. `cluster` knows brokers and topics. Above it are `producer` (with its thread,
//! `sender`), `consumer` (with `chunk` and `fetch_session`) and `admin`. The client trusts brokers
//! no more than `net` trusts clients: it checks the length of a frame before it reserves memory,
//! and it checks every message and record.
//! Threads: calls block; one thread at a time uses each value. Every wait ends at its deadline, or
//! within 100 ms of the caller's [`Interrupt`]. The only threads are a sender's own, one for
//! each call in the background, and the one that calls the system's resolver.
//! Not promised: consumer groups, which the Python clients have.

pub mod aborted;
pub mod admin;
mod background;
pub mod chunk;
pub mod cluster;
pub mod connection;
pub mod consumer;
pub mod error;
mod fetch_session;
mod frame_buffers;
pub mod legacy;
mod login;
pub mod metadata;
pub mod options;
pub mod partitioner;
pub mod producer;
pub mod reachability;
pub mod record_layout;
pub mod sender;
mod socket;

pub use cluster::{Cluster, Target};
pub use error::{Error, Result};
pub use options::{Address, ClientOptions, Interrupt};
