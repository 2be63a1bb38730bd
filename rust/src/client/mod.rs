//! The Kafka client: what Python's clients, the command line and a broker that asks peers use.
//!
//! `socket` moves frames with deadlines, `connection` agrees on versions and pairs answers with
//! requests, `cluster` knows brokers and topics, and on it stand `producer` (with `sender`, its
//! thread), `consumer` (with `chunk`, what it read, and `fetch_session`) and `admin`. It trusts its
//! peers no more than `net` trusts clients: frames are bounded before they are reserved, messages
//! go through the schema's checks, records through the record module's.
//! Threads: blocking; each value belongs to one thread at a time; every wait ends at its deadline,
//! or within 100 ms of the caller's [`Interrupt`]. There is no thread behind a call but a sender's
//! own, and the one that asks the system's resolver.
//! Not promised: TLS, SASL, consumer groups, transactions.

pub mod aborted;
pub mod admin;
pub mod chunk;
pub mod cluster;
pub mod connection;
pub mod consumer;
pub mod error;
mod fetch_session;
mod frame_buffers;
pub mod legacy;
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
pub use options::{Address, Interrupt, Options};
