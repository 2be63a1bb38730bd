//! A model of the controller and of the state that it keeps in ZooKeeper.
//!
//! Elections take the first live replica of the in-sync set; without one, the first live eligible
//! replica. Eligible leader replicas (KIP-966) left the in-sync set when it had fewer members than
//! `min.insync.replicas`: the high watermark stood still from then on, so they have all that is
//! committed. A broker that may have lost records (a power cut) is in neither set when it comes
//! back, until it caught up.

use krust::broker::replica::leader::{IsrMember, Leadership, ProposalOutcome, ProposedIsr};
use krust::ids::Epoch;
use krust::protocol::ErrorCode;

use super::messages::Assignment;

/// A live registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registration {
    node: usize,
    broker_epoch: i64,
}

pub struct Controller {
    pub epoch: i32,
    pub leader: i32,
    pub state: Leadership,
    pub eligible: Vec<i32>,
    /// How often a leader was elected that may lack committed records.
    pub unclean_elections: usize,
    /// Leader epoch and leader of each election.
    pub elections: Vec<(i32, i32)>,
    min_insync_replicas: usize,
    registered: Vec<Registration>,
    /// The last member of the in-sync set, when it came back with losses and nobody else is left.
    last_in_sync: Option<i32>,
    next_broker_epoch: i64,
    next_serial: u64,
}

impl Controller {
    /// A partition without a leader, whose replicas are all in sync.
    pub fn new(replicas: usize, min_insync_replicas: usize) -> Self {
        let replicas: Vec<i32> = (0..node_id(replicas)).collect();
        let member = |replica: &i32| IsrMember { replica: *replica, broker_epoch: -1 };
        Self {
            epoch: 1,
            leader: -1,
            state: Leadership {
                leader_epoch: Epoch(0),
                partition_epoch: 0,
                isr: replicas.iter().map(member).collect(),
                replicas,
            },
            eligible: Vec::new(),
            unclean_elections: 0,
            elections: Vec::new(),
            min_insync_replicas,
            registered: Vec::new(),
            last_in_sync: None,
            next_broker_epoch: 1,
            next_serial: 0,
        }
    }

    pub fn alive(&self) -> Vec<i32> {
        self.registered.iter().map(|it| node_id(it.node)).collect()
    }

    pub fn broker_epoch(&self, node: usize) -> Option<i64> {
        self.registered.iter().find(|it| it.node == node).map(|it| it.broker_epoch)
    }

    /// A broker registers; its broker epoch. `may_have_lost`: its machine stopped since it last
    /// ran, and it had not shut down in order.
    pub fn register(&mut self, node: usize, may_have_lost: bool) -> i64 {
        self.expire(node);
        let broker_epoch = self.next_broker_epoch;
        self.next_broker_epoch += 1;
        self.registered.push(Registration { node, broker_epoch });
        if may_have_lost {
            self.distrust(node_id(node));
        }
        let renewed = self.state.isr.iter_mut().find(|member| member.replica == node_id(node));
        if let Some(member) = renewed {
            member.broker_epoch = broker_epoch;
            self.state.partition_epoch += 1;
        }
        self.elect_if_needed();
        broker_epoch
    }

    /// A session ended: its broker leads nothing and is in no in-sync set, unless it is the last.
    pub fn expire(&mut self, node: usize) {
        let before = self.registered.len();
        self.registered.retain(|it| it.node != node);
        if self.registered.len() == before {
            return;
        }
        let replica = node_id(node);
        if self.leader == replica {
            self.leader = -1;
            self.state.leader_epoch.0 += 1;
            self.state.partition_epoch += 1;
        }
        if self.state.isr.len() > 1 && self.is_in_sync(replica) {
            let isr = self.state.isr.iter().copied().filter(|it| it.replica != replica).collect();
            self.set_isr(isr);
        }
        self.elect_if_needed();
    }

    /// A leader proposes an in-sync set.
    pub fn alter_partition(
        &mut self,
        node: usize,
        broker_epoch: i64,
        proposed: &ProposedIsr,
    ) -> ProposalOutcome {
        if self.broker_epoch(node) != Some(broker_epoch) {
            return ProposalOutcome::Refused(ErrorCode::StaleBrokerEpoch);
        }
        if proposed.leader_epoch != self.state.leader_epoch || self.leader != node_id(node) {
            return ProposalOutcome::Refused(ErrorCode::FencedLeaderEpoch);
        }
        if proposed.isr == self.state.isr {
            return ProposalOutcome::Committed(self.state.clone());
        }
        if proposed.partition_epoch != self.state.partition_epoch {
            return ProposalOutcome::Refused(ErrorCode::InvalidUpdateVersion);
        }
        let is_live = |member: &IsrMember| {
            let epoch = self.broker_epoch(usize::try_from(member.replica).unwrap());
            epoch.is_some() && (member.broker_epoch == -1 || epoch == Some(member.broker_epoch))
        };
        if !proposed.isr.iter().all(is_live) {
            return ProposalOutcome::Refused(ErrorCode::IneligibleReplica);
        }
        self.set_isr(proposed.isr.clone());
        ProposalOutcome::Committed(self.state.clone())
    }

    /// What a broker is told, if it is registered.
    pub fn assignment(&mut self, node: usize) -> Option<Assignment> {
        let broker_epoch = self.broker_epoch(node)?;
        self.next_serial += 1;
        Some(Assignment {
            serial: self.next_serial,
            controller_epoch: self.epoch,
            broker_epoch,
            leader: self.leader,
            leadership: self.state.clone(),
            alive: self.alive(),
        })
    }

    pub fn is_in_sync(&self, replica: i32) -> bool {
        self.state.isr.iter().any(|member| member.replica == replica)
    }

    fn set_isr(&mut self, isr: Vec<IsrMember>) {
        let before = std::mem::replace(&mut self.state.isr, isr);
        self.state.partition_epoch += 1;
        if self.state.isr.len() >= self.min_insync_replicas {
            self.eligible.clear();
        } else {
            self.eligible.extend(before.iter().map(|member| member.replica));
        }
        let isr = &self.state.isr;
        self.eligible.retain(|it| isr.iter().all(|member| member.replica != *it));
    }

    /// A broker that may have lost records is neither in sync nor eligible.
    fn distrust(&mut self, replica: i32) {
        self.eligible.retain(|it| *it != replica);
        if self.is_in_sync(replica) {
            self.state.isr.retain(|member| member.replica != replica);
            self.state.partition_epoch += 1;
            if self.state.isr.is_empty() {
                self.last_in_sync = Some(replica);
            }
        }
    }

    fn elect_if_needed(&mut self) {
        if self.leader >= 0 {
            return;
        }
        let alive = self.alive();
        let live: Vec<IsrMember> =
            self.state.isr.iter().copied().filter(|it| alive.contains(&it.replica)).collect();
        let eligible = self.eligible.iter().find(|it| alive.contains(it)).copied();
        let nobody_else = self.state.isr.is_empty() && self.eligible.is_empty();
        let last = self.last_in_sync.filter(|it| nobody_else && alive.contains(it));
        if let Some(first) = live.first().copied() {
            if live != self.state.isr {
                self.set_isr(live);
            }
            return self.elect(first.replica);
        }
        let Some(leader) = eligible.or(last) else { return };
        self.unclean_elections += usize::from(eligible.is_none());
        // The members that are not alive have what is committed, as long as nothing more is.
        let member = IsrMember { replica: leader, broker_epoch: self.epoch_of(leader) };
        self.set_isr(vec![member]);
        self.elect(leader);
    }

    fn elect(&mut self, leader: i32) {
        self.last_in_sync = None;
        self.leader = leader;
        self.state.leader_epoch.0 += 1;
        self.state.partition_epoch += 1;
        self.elections.push((self.state.leader_epoch.0, leader));
    }

    fn epoch_of(&self, replica: i32) -> i64 {
        self.broker_epoch(usize::try_from(replica).unwrap()).unwrap()
    }
}

pub fn node_id(node: usize) -> i32 {
    i32::try_from(node).unwrap()
}
