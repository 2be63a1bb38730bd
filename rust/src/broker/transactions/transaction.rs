//! What a coordinator knows of one transactional id: its producer, and its present or last
//! transaction.
//!
//! Invariant: `partitions` is empty unless the state is Ongoing, PrepareCommit or PrepareAbort.
//! Not promised: that all fields survive a restart. The log has no field for `last_epoch`, and
//!     value version 0 has none for the ids before and after and for the client's version.

use std::collections::BTreeSet;

use crate::ids::TopicPartition;

/// The producer id that means none.
pub const NO_PRODUCER_ID: i64 = -1;
/// The producer epoch that means none.
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// The last epoch that a client gets; the next one is kept to fence it.
pub const LAST_EPOCH: i16 = i16::MAX - 1;

/// The state of a transactional id. The numbers are those of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum TransactionState {
    /// No transaction since the last InitProducerId. Added partition -> Ongoing.
    Empty = 0,
    /// A transaction is open. EndTxn -> PrepareCommit or PrepareAbort; time is up, or another
    /// producer came -> PrepareAbort.
    Ongoing = 1,
    /// The transaction is committed, and markers are being written -> CompleteCommit.
    PrepareCommit = 2,
    /// The transaction is aborted, and markers are being written -> CompleteAbort.
    PrepareAbort = 3,
    /// All partitions have the marker. Added partition -> Ongoing; InitProducerId -> Empty.
    CompleteCommit = 4,
    /// See CompleteCommit.
    CompleteAbort = 5,
    /// The id is about to be removed. krust does not write it.
    Dead = 6,
    /// The producer is about to be fenced. krust does not write it, and reads it as PrepareAbort.
    PrepareEpochFence = 7,
}

/// Which protocol the producer's last EndTxn used (KIP-890).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum ClientTransactionVersion {
    /// EndTxn v0-4: the epoch stays.
    #[default]
    V0 = 0,
    /// EndTxn from v5: each EndTxn bumps the epoch.
    V2 = 2,
}

/// A producer id and its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerIdentity {
    /// The producer id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// A transactional id. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The producer. While markers are written under V2 its epoch is that of the next transaction.
    pub producer: ProducerIdentity,
    /// The id before this one, if the last change replaced it; else -1.
    pub previous_producer_id: i64,
    /// The id that replaces this one when the markers are written; else -1.
    pub next_producer_id: i64,
    /// The epoch that the same producer had before the last bump, by which its retry is known;
    /// else -1.
    pub last_epoch: i16,
    /// How long a transaction may be open.
    pub timeout_ms: i32,
    /// Its state.
    pub state: TransactionState,
    /// The partitions of the open transaction.
    pub partitions: BTreeSet<TopicPartition>,
    /// When the transaction began; -1: there was none since InitProducerId.
    pub start_ms: i64,
    /// The time of the last change.
    pub last_update_ms: i64,
    /// The protocol of the last EndTxn.
    pub client_version: ClientTransactionVersion,
}

impl TransactionState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
        Self::Dead,
        Self::PrepareEpochFence,
    ];

    /// The state of a number in the log.
    pub fn from_number(number: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as i8 == number)
    }

    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
            Self::Dead => "Dead",
            Self::PrepareEpochFence => "PrepareEpochFence",
        }
    }

    /// Whether markers are to be written, and whether they commit.
    pub fn marker(self) -> Option<bool> {
        match self {
            Self::PrepareCommit => Some(true),
            Self::PrepareAbort | Self::PrepareEpochFence => Some(false),
            _ => None,
        }
    }

    /// Whether there is no transaction: none began, or the last one has all its markers.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
    }
}

impl ClientTransactionVersion {
    /// The version of a number in the log.
    pub fn from_number(number: i16) -> Self {
        if number >= Self::V2 as i16 { Self::V2 } else { Self::V0 }
    }
}

impl ProducerIdentity {
    /// No producer.
    pub const NONE: Self = Self { id: NO_PRODUCER_ID, epoch: NO_PRODUCER_EPOCH };

    /// Whether no further epoch may be given to a client.
    pub fn is_exhausted(self) -> bool {
        self.epoch >= LAST_EPOCH
    }
}

impl Transaction {
    /// The producer that the client goes on with after its transaction has ended.
    pub fn next_producer(&self) -> ProducerIdentity {
        match self.next_producer_id {
            NO_PRODUCER_ID => self.producer,
            id => ProducerIdentity { id, epoch: 0 },
        }
    }
}
