//! The interface to the threads that fetch from leaders (`fetcher`).
//!
//! A partition is fetched from one source in one leader epoch. An assignment replaces the one
//! before; the same assignment again has no effect.
//! Threads: any. A call does not wait for a network.
//! After an assignment has changed, an answer to a fetch of the former one may still arrive. The
//!     partition ignores it, because its leader epoch has changed.

use std::sync::Arc;

use crate::broker::state::image::PeerAddress;
use crate::broker::state::partition::Partition;
use crate::ids::Epoch;

/// The threads that fetch from leaders.
pub trait ReplicaFetchers: Send + Sync {
    /// Begins or ends the fetching of these partitions.
    fn assign(&self, changes: Vec<FetcherAssignment>);

    /// The settings have changed (see [`FetcherSettings`]).
    fn reconfigure(&self);

    /// Ends all threads, and waits for them.
    fn stop(&self);

    /// Whether a thread ended by a panic: its partitions are no longer fetched.
    fn has_failed(&self) -> bool;
}

/// From where a partition is fetched.
#[derive(Clone, Debug)]
pub struct FetcherAssignment {
    /// The partition.
    pub partition: Arc<Partition>,
    /// Its leader; `None`: it is not fetched.
    pub source: Option<PeerAddress>,
    /// The leader's epoch.
    pub leader_epoch: Epoch,
}

/// How partitions are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetcherSettings {
    /// `num.replica.fetchers`: threads for each leader.
    pub threads: usize,
    /// `replica.fetch.min.bytes`: the leader answers when it has this many bytes.
    pub min_bytes: i32,
    /// `replica.fetch.max.bytes`: the most bytes of one partition in an answer.
    pub partition_max_bytes: i32,
    /// `replica.fetch.response.max.bytes`: the most bytes of an answer.
    pub response_max_bytes: i32,
    /// `replica.fetch.wait.max.ms`: the leader answers after this time at the latest.
    pub wait_max_ms: i32,
    /// `replica.fetch.backoff.ms`: the longest pause before a refused partition is asked for again.
    pub backoff_ms: u64,
    /// `follower.replication.throttled.rate`: bytes a second for throttled followers on this
    /// broker; `i64::MAX`: no limit.
    pub throttled_bytes_per_second: i64,
    /// `replica.socket.timeout.ms`: how long a leader may be silent.
    pub socket_timeout_ms: u64,
}

impl Default for FetcherSettings {
    fn default() -> Self {
        Self {
            threads: 1,
            min_bytes: 1,
            partition_max_bytes: 1 << 20,
            response_max_bytes: 10 << 20,
            wait_max_ms: 500,
            backoff_ms: 1000,
            throttled_bytes_per_second: i64::MAX,
            socket_timeout_ms: 30_000,
        }
    }
}
