//! What brokers, the controller and clients send each other. Any of it may be lost, delayed or, a
//! request, arrive twice.

use std::fmt;

use krust::broker::replica::follower::{FollowerRequest, LeaderAnswer};
use krust::broker::replica::leader::{Leadership, ProposalOutcome, ProposedIsr};

/// The controller's node in the network; brokers count from 0.
pub const CONTROLLER: usize = 99;

#[derive(Clone, Debug)]
pub enum Message {
    /// A follower asks its leader.
    Ask { broker_epoch: i64, request: FollowerRequest },
    /// The leader's answer, with the records.
    Answer { request: FollowerRequest, answer: LeaderAnswer, records: Records },
    /// The controller tells a broker about the partition.
    LeaderAndIsr(Assignment),
    /// A leader proposes an in-sync set.
    AlterPartition { broker_epoch: i64, proposed: ProposedIsr },
    /// The controller's answer.
    Altered { proposed: ProposedIsr, outcome: ProposalOutcome },
}

/// The bytes of batches. Debug names their number and a hash, so that a trace stays short.
#[derive(Clone, Default)]
pub struct Records(pub Vec<u8>);

impl fmt::Debug for Records {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes {:x}", self.0.len(), hash(0, &self.0))
    }
}

/// FNV-1a over eight bytes at a time.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}

/// The content of a LeaderAndIsr request, and of the UpdateMetadata request that goes with it.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Counts what the controller sent. A broker ignores an older list of live brokers:
    /// UpdateMetadata requests come in order on one connection.
    pub serial: u64,
    pub controller_epoch: i32,
    /// The registration of the broker it is meant for.
    pub broker_epoch: i64,
    /// -1: the partition has no leader.
    pub leader: i32,
    pub leadership: Leadership,
    pub alive: Vec<i32>,
}
