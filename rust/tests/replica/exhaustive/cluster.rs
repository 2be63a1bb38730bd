//! The state of a small cluster, and what must hold in it.

use crate::replica::follower::{FollowerLog, FollowerReplica, FollowerRequest, LeaderAnswer};
use crate::replica::leader::{IsrMember, LeaderReplica, ProposalOutcome, ProposedIsr};
use krust::ids::{Epoch, Offset};
use krust::storage::epochs::Epochs;

use crate::simulation::decisions::Policy;
use crate::simulation::zookeeper::{BrokerList, PartitionState, ZooKeeper, node_id};

/// A record: the epoch that it was written in, and its number.
pub type Record = (i32, u8);

/// The records, the high watermark, and the epoch that this replica began and left empty so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AbstractLog {
    pub records: Vec<Record>,
    pub high_watermark: usize,
    pub begun: Option<i32>,
}

impl AbstractLog {
    fn epochs(&self) -> Epochs {
        let mut epochs = Epochs::default();
        for (offset, (epoch, _)) in self.records.iter().enumerate() {
            epochs.assign(Epoch(*epoch), offset_of(offset));
        }
        if let Some(begun) = self.begun {
            epochs.assign(Epoch(begun), offset_of(self.records.len()));
        }
        epochs
    }

    pub fn truncate(&mut self, to: usize) {
        self.records.truncate(to);
        self.high_watermark = self.high_watermark.min(to);
    }
}

impl FollowerLog for AbstractLog {
    fn log_end(&self) -> Offset {
        offset_of(self.records.len())
    }

    fn log_start(&self) -> Offset {
        Offset(0)
    }

    fn high_watermark(&self) -> Offset {
        offset_of(self.high_watermark)
    }

    fn last_batch_epoch(&self) -> Epoch {
        self.records.last().map_or(Epoch::NONE, |last| Epoch(last.0))
    }

    fn end_offset_for_epoch(&self, epoch: Epoch) -> (Epoch, Offset) {
        self.epochs().end_offset(epoch, self.log_end())
    }
}

pub fn offset_of(count: usize) -> Offset {
    Offset(i64::try_from(count).unwrap())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    None,
    Leader(Box<LeaderReplica>),
    Follower(FollowerReplica, usize),
}

/// A question of a follower, or its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Flight {
    Ask { to: usize, broker_epoch: i64, request: FollowerRequest },
    Answer { from: usize, request: FollowerRequest, answer: LeaderAnswer, records: Vec<Record> },
}

/// A proposal on its way to the controller, or the answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    pub from: usize,
    pub broker_epoch: i64,
    pub proposed: ProposedIsr,
    /// `None`: the controller has not seen it.
    pub outcome: Option<ProposalOutcome>,
}

/// A message that may arrive at any time later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Late {
    Ask { from: usize, to: usize, broker_epoch: i64, request: FollowerRequest },
    Proposal { from: usize, broker_epoch: i64, proposed: ProposedIsr },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broker {
    /// -1: it has not registered since it started.
    pub broker_epoch: i64,
    /// `None`: it may have lost records since it ran last.
    pub lossless_since: Option<i64>,
    /// The newest registration of anybody when it lost records; `i64::MIN`: never.
    pub lost_at: i64,
    pub log: AbstractLog,
    pub role: Role,
    pub leader_epoch: i32,
    pub flight: Option<Flight>,
}

/// How often something was done that a search bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spent {
    pub records: u8,
    pub kills: u8,
    pub power_cuts: u8,
    pub sessions: u8,
    pub late: u8,
    pub stops: u8,
    pub moves: u8,
    pub refusals: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    pub brokers: Vec<Broker>,
    /// What ZooKeeper has, and what it had last in the leader epoch before.
    pub state: PartitionState,
    pub before: Option<Box<PartitionState>>,
    pub list: BrokerList,
    pub proposals: Vec<Proposal>,
    pub late: Vec<Late>,
    /// Records that were acknowledged, with their offsets.
    pub acknowledged: Vec<(usize, Record)>,
    /// What has been below a high watermark.
    pub committed: Vec<Record>,
    pub spent: Spent,
}

impl Cluster {
    /// All replicas live, are registered and in sync; nobody leads.
    pub fn new(replicas: usize) -> Self {
        let mut zookeeper = ZooKeeper::new(replicas, replicas);
        for node in 0..replicas {
            zookeeper.brokers.register(node, Some(-1));
        }
        for member in &mut zookeeper.state.isr {
            member.broker_epoch = i64::from(member.replica) + 1;
        }
        let broker = |node: usize| Broker {
            broker_epoch: i64::try_from(node).unwrap() + 1,
            lossless_since: Some(-1),
            lost_at: i64::MIN,
            log: AbstractLog::default(),
            role: Role::None,
            leader_epoch: 0,
            flight: None,
        };
        Self {
            brokers: (0..replicas).map(broker).collect(),
            state: zookeeper.state,
            before: None,
            list: zookeeper.brokers,
            proposals: Vec::new(),
            late: Vec::new(),
            acknowledged: Vec::new(),
            committed: Vec::new(),
            spent: Spent::default(),
        }
    }

    /// Two states that differ only in what nobody will look at again are one.
    pub fn forget_what_cannot_matter(&mut self) {
        let knows = |broker: &Broker, epoch: i32| broker.leader_epoch >= epoch;
        if let Some(before) = &self.before
            && self.brokers.iter().all(|it| knows(it, before.leader_epoch))
        {
            self.before = None;
        }
        for broker in &mut self.brokers {
            if !matches!(broker.role, Role::Follower(..)) {
                broker.flight = None;
            }
        }
    }

    /// Notes what a broker's high watermark shows, and what it acknowledges as a leader. Errors:
    /// R5, two replicas show different records at an offset.
    pub fn note_committed(&mut self, node: usize) -> Result<(), String> {
        let log = &self.brokers[node].log;
        if log.high_watermark > log.records.len() {
            return Err(format!("R1: {node}: {log:?}"));
        }
        let shown = &log.records[..log.high_watermark];
        let both = shown.len().min(self.committed.len());
        if shown[..both] != self.committed[..both] {
            return Err(format!("R5: {node} shows {shown:?}, others {:?}", self.committed));
        }
        if shown.len() > self.committed.len() {
            self.committed = shown.to_vec();
        }
        if let Role::Leader(leader) = &self.brokers[node].role
            && leader.has_enough_in_sync()
        {
            let epoch = leader.leadership().leader_epoch.0;
            let own = shown.iter().copied().enumerate().filter(|(_, it)| it.0 == epoch);
            for record in own {
                if !self.acknowledged.contains(&record) {
                    self.acknowledged.push(record);
                }
            }
            self.acknowledged.sort_unstable();
        }
        Ok(())
    }

    /// A broker began to lead in the newest leader epoch: it has all that was ever shown.
    pub fn check_new_leader(&self, node: usize) -> Result<(), String> {
        let log = &self.brokers[node].log;
        if log.records.len() < self.committed.len() {
            return Err(format!("R1: {node} leads with {log:?}, shown was {:?}", self.committed));
        }
        Ok(())
    }

    /// What must hold in every state.
    pub fn check(&self, policy: &Policy) -> Result<(), String> {
        let mut leaders: Vec<i32> = Vec::new();
        for broker in &self.brokers {
            if let Role::Leader(leader) = &broker.role {
                leaders.push(leader.leadership().leader_epoch.0);
            }
        }
        leaders.sort_unstable();
        if leaders.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("R9: two lead in one epoch: {leaders:?}"));
        }
        let lost = self.brokers.iter().filter(|it| it.lost_at > i64::MIN).count();
        if lost >= self.state.least_in_sync(policy) {
            return Ok(());
        }
        for (node, broker) in self.brokers.iter().enumerate() {
            if !self.may_lead(node) {
                continue;
            }
            for (offset, record) in &self.acknowledged {
                if broker.log.records.get(*offset) != Some(record) {
                    return Err(format!(
                        "D1: {record:?} at {offset} was acknowledged; {node} may lead with {:?}",
                        broker.log.records
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether a broker is in sync or eligible under a registration since which it lost nothing.
    fn may_lead(&self, node: usize) -> bool {
        let mut listed = self.state.isr.iter().chain(&self.state.eligible);
        let named: Option<&IsrMember> = listed.find(|it| it.replica == node_id(node));
        named.is_some_and(|it| self.brokers[node].lost_at < it.broker_epoch)
    }
}
