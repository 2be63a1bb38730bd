//! The transaction coordinator's state on this broker.
//!
//! ```text
//! shard          one partition of `__transaction_state`: its transactional ids, and steps on them
//! markers        the markers that are to be written
//! verify_or_add  what leaders of partitions ask
//! ```
//! `transactions` makes the decisions; `lifecycle::transactions` replays logs and writes markers.

pub(crate) mod markers;
pub(crate) mod shard;
pub mod verify_or_add;

use std::sync::Arc;

use crate::broker::state::coordinator::shards::CoordinatorShards;
use crate::broker::state::transactions::markers::MarkerQueue;
use crate::broker::state::transactions::shard::ShardTransactions;

/// The settings of the transaction coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionSettings {
    /// `transaction.max.timeout.ms`.
    pub max_timeout_ms: i32,
    /// `transactional.id.expiration.ms`.
    pub id_expiration_ms: i64,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`; counts at the start only.
    pub abort_interval_ms: u64,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`; counts at the start only.
    pub expiration_interval_ms: u64,
    /// `transaction.partition.verification.enable`.
    pub verifies_partitions: bool,
    /// The finalized feature `transaction.version`.
    pub version: i16,
    /// The epoch of the finalized features; -1: they are not known.
    pub features_epoch: i64,
}

impl Default for TransactionSettings {
    fn default() -> Self {
        Self {
            max_timeout_ms: 900_000,
            id_expiration_ms: 7 * 24 * 3_600_000,
            abort_interval_ms: 10_000,
            expiration_interval_ms: 3_600_000,
            verifies_partitions: true,
            version: 0,
            features_epoch: -1,
        }
    }
}

/// The transaction coordinator's state.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    pub(crate) shards: CoordinatorShards<ShardTransactions>,
    pub(crate) markers: Arc<MarkerQueue>,
}

impl Drop for Transactions {
    /// Does not wait for the thread, because it may be the one that drops the broker.
    fn drop(&mut self) {
        self.markers.end();
    }
}
