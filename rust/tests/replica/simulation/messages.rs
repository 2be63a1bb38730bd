//! What brokers, controllers, ZooKeeper and clients send each other. Any of it may be lost, delayed
//! or arrive twice.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::replica::follower::{FollowerRequest, LeaderAnswer};
use crate::replica::leader::{Leadership, ProposalOutcome, ProposedIsr};
use krust::protocol::ErrorCode;

use super::clients::NewBatch;
use super::random::TraceHasher;
use super::zookeeper::{StoreAnswer, StoreRequest};

/// ZooKeeper's node in the network; brokers count from 0.
pub const ZOOKEEPER: usize = 98;
/// The node of all clients.
pub const CLIENTS: usize = 97;

#[derive(Clone, Debug, Hash)]
pub enum Message {
    /// A follower asks its leader.
    Ask { broker_epoch: i64, request: FollowerRequest },
    /// The leader's answer, with the records.
    Answer { request: FollowerRequest, answer: LeaderAnswer, records: Records },
    /// A client writes a batch.
    Produce(NewBatch),
    /// The answer: the first record's offset, or why it was refused.
    Produced { batch: NewBatch, outcome: Result<i64, ErrorCode> },
    /// A controller tells a broker about the partition.
    Assign(Box<Assignment>),
    /// A leader proposes an in-sync set to the controller.
    AlterPartition { broker_epoch: i64, proposed: ProposedIsr },
    /// The controller's answer.
    Altered { proposed: ProposedIsr, outcome: ProposalOutcome },
    /// Somebody asks the controller for a change.
    Command(Command),
    /// A broker asks ZooKeeper.
    Store { session: u64, number: u64, request: Box<StoreRequest> },
    /// ZooKeeper's answer.
    Stored { number: u64, answer: Box<StoreAnswer> },
}

/// What an operator, or a broker that is about to stop, wants of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Another replica shall lead, if it is in sync.
    Lead(i32),
    /// The broker is about to stop: others shall lead.
    Leave(i32),
    /// The partition shall have these replicas.
    Reassign(Vec<i32>),
    /// Elect any live replica, though it may lack records.
    ElectUncleanly,
}

/// The bytes of batches. Debug names their number and a hash, so that a trace stays short.
#[derive(Clone, Default, Hash)]
pub struct Records(pub Vec<u8>);

impl fmt::Debug for Records {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hasher = TraceHasher::default();
        hasher.write(&self.0);
        write!(out, "{} bytes {:x}", self.0.len(), hasher.finish())
    }
}

/// The content of LeaderAndIsr, UpdateMetadata and StopReplica requests.
#[derive(Clone, Debug, Hash)]
pub struct Assignment {
    /// The controller's node and term.
    pub controller: usize,
    pub controller_epoch: i32,
    /// Counts what the controller sent in its term. A broker ignores an older list of live brokers:
    /// the requests of one controller come in order on one connection.
    pub serial: u64,
    /// The registration of the broker it is meant for.
    pub broker_epoch: i64,
    /// -1: the partition has no leader.
    pub leader: i32,
    pub leadership: Leadership,
    pub alive: Vec<i32>,
}
