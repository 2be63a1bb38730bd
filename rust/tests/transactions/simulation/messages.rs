//! What travels between clients, partitions and the coordinator.

use crate::broker::transactions::transaction::{ClientTransactionVersion, ProducerIdentity};
use krust::protocol::ErrorCode;
use krust::record::control::EndTransactionMarker;
use krust::storage::VerificationGuard;

/// A request of a client. Its answer has the same number.
#[derive(Clone, Debug)]
pub struct Request {
    pub client: usize,
    pub number: u64,
    pub id: String,
    pub what: Asked,
}

#[derive(Clone, Debug)]
pub enum Asked {
    InitProducerId { expected: Option<ProducerIdentity> },
    AddPartition { producer: ProducerIdentity, partition: usize },
    EndTxn { producer: ProducerIdentity, commit: bool, version: ClientTransactionVersion },
    Write(Write),
}

/// A batch of one record on its way to a partition.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub producer: ProducerIdentity,
    pub partition: usize,
    pub sequence: i32,
    /// The record, unique in a run.
    pub value: u64,
    pub version: ClientTransactionVersion,
}

#[derive(Clone, Debug)]
pub enum Message {
    Request(Request),
    Answer {
        client: usize,
        number: u64,
        answer: Result<ProducerIdentity, ErrorCode>,
    },
    /// A partition asks whether the batch belongs to an open transaction (KIP-890).
    Verify {
        request: Request,
        write: Write,
        guard: VerificationGuard,
    },
    Verified {
        request: Request,
        write: Write,
        guard: VerificationGuard,
        code: ErrorCode,
    },
    Marker(Marker),
    MarkerAnswer {
        marker: Marker,
        code: ErrorCode,
    },
}

/// A marker on its way to a partition.
#[derive(Clone, Debug)]
pub struct Marker {
    pub id: String,
    pub partition: usize,
    pub ends: EndTransactionMarker,
    pub version: ClientTransactionVersion,
}
