//! The interface to the threads that send requests to other brokers (`inter_broker`).
//!
//! Each request has a callback. It is called once, on any thread, with one code for each partition
//! of the request, in their order. A request without an answer ends with NETWORK_EXCEPTION or
//! REQUEST_TIMED_OUT. Nothing is repeated here: the caller repeats, with the image of then.
//! Threads: any. A call does not wait for a network. No lock of the caller may be held that its
//!     callback takes, because a request that cannot be queued ends at once.

use std::sync::Arc;

use crate::broker::state::image::PeerAddress;
use crate::broker::state::txn_marker::TxnMarker;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;

/// Receives the codes of a request's partitions.
pub type PartitionsAnswered = Box<dyn FnOnce(Vec<ErrorCode>) + Send>;

/// The threads that send requests to other brokers.
pub trait InterBroker: Send + Sync {
    /// Has the leader of a partition write a marker (WriteTxnMarkers).
    fn write_marker(&self, leader: &PeerAddress, request: PeerMarker);

    /// Asks a transaction coordinator about partitions (AddPartitionsToTxn).
    fn add_partitions(&self, coordinator: &PeerAddress, request: PeerPartitions);

    /// Ends all threads, and waits for them. Requests without an answer end with
    /// NETWORK_EXCEPTION.
    fn stop(&self);

    /// Whether a thread ended by a panic.
    fn has_failed(&self) -> bool;
}

/// A marker for a partition that another broker leads.
pub struct PeerMarker {
    /// The marker.
    pub marker: TxnMarker,
    /// The partition.
    pub partition: TopicPartition,
    /// Receives the partition's code.
    pub then: PartitionsAnswered,
}

/// Partitions that a coordinator adds to a transaction, or looks for in it.
pub struct PeerPartitions {
    /// The transactional id.
    pub transactional_id: Arc<str>,
    /// The producer's id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// Whether the coordinator only looks whether the transaction has them.
    pub verify_only: bool,
    /// The partitions.
    pub partitions: Vec<TopicPartition>,
    /// Receives the codes of the partitions. A coordinator that cannot look for partitions (before
    /// Kafka 3.6) is taken to have them, as Kafka does.
    pub then: PartitionsAnswered,
}

/// How other brokers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterBrokerSettings {
    /// `request.timeout.ms`: how long a broker may be silent.
    pub request_timeout_ms: u64,
    /// A thread without a request ends after this time, and with it its connection.
    pub idle_ms: u64,
}

impl Default for InterBrokerSettings {
    fn default() -> Self {
        Self { request_timeout_ms: 30_000, idle_ms: 60_000 }
    }
}
