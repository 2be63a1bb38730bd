//! What a controller decides about a partition: pure functions of the state that it read and of the
//! brokers that it knows. Both may be out of date; the write is a compare-and-set.
//!
//! A member of the in-sync set is named with its registration. Once its broker has another one, the
//! broker has restarted: it leads no longer, and it counts only if it lost no records meanwhile
//! (KIP-903, KIP-966). Elections take an in-sync replica, else an eligible one.

use crate::replica::leader::{IsrMember, ProposedIsr};
use krust::protocol::ErrorCode;

use super::messages::Command;
use super::zookeeper::{BrokerList, PartitionState, Registration};

#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub min_insync_replicas: usize,
    /// `unclean.leader.election.enable`.
    pub elects_uncleanly: bool,
    /// A new leader epoch begins when a controller takes a dead follower out of the in-sync set, as
    /// in Kafka.
    pub new_epoch_for_isr: bool,
    /// Kafka's controller: it writes an in-sync set again if only the order differs. krust's does
    /// so if the leader that asks knows the newest state.
    pub is_kafka: bool,
}

/// What became of a replica that the state names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrokerStatus {
    /// It lives under the registration that the state names.
    Steady,
    /// It restarted, and lost nothing.
    Returned,
    /// It restarted, and may have lost records.
    Lossy,
    /// It is not registered.
    Gone,
}

fn status_of(member: IsrMember, brokers: &BrokerList) -> BrokerStatus {
    match brokers.find(member.replica) {
        None => BrokerStatus::Gone,
        Some(live) if live.broker_epoch == member.broker_epoch => BrokerStatus::Steady,
        Some(live) if live.lossless_since <= member.broker_epoch => BrokerStatus::Returned,
        Some(_) => BrokerStatus::Lossy,
    }
}

fn member(live: &Registration) -> IsrMember {
    IsrMember { replica: super::zookeeper::node_id(live.node), broker_epoch: live.broker_epoch }
}

impl PartitionState {
    /// How many replicas must be in sync for the high watermark to move.
    pub fn least_in_sync(&self, policy: &Policy) -> usize {
        policy.min_insync_replicas.min(self.replicas.len())
    }

    pub fn is_in_sync(&self, replica: i32) -> bool {
        self.isr.iter().any(|member| member.replica == replica)
    }

    /// Changes the in-sync set. Who leaves one that becomes too small stays eligible.
    fn set_isr(&mut self, isr: Vec<IsrMember>, policy: &Policy) {
        let before = std::mem::replace(&mut self.isr, isr);
        if self.isr.len() >= self.least_in_sync(policy) {
            self.eligible.clear();
        } else {
            self.eligible.extend(before);
        }
        let isr = &self.isr;
        self.eligible.retain(|it| isr.iter().all(|member| member.replica != it.replica));
    }

    fn begin_epoch(&mut self, leader: i32) {
        self.leader = leader;
        self.leader_epoch += 1;
    }
}

/// The state as it should be, if that is another one.
pub fn settled(
    state: &PartitionState,
    brokers: &BrokerList,
    policy: &Policy,
) -> Option<PartitionState> {
    let mut next = state.clone();
    let is_lossy = |it: &IsrMember| status_of(*it, brokers) == BrokerStatus::Lossy;
    next.isr.retain(|it| !is_lossy(it));
    next.eligible.retain(|it| !is_lossy(it));
    let of = |wanted: BrokerStatus, from: &[IsrMember]| -> Vec<IsrMember> {
        from.iter().copied().filter(|it| status_of(*it, brokers) == wanted).collect()
    };
    let steady = of(BrokerStatus::Steady, &next.isr);
    if steady.iter().any(|it| it.replica == next.leader) {
        if steady != next.isr {
            next.set_isr(steady, policy);
        }
        if next.isr != state.isr && policy.new_epoch_for_isr {
            next.begin_epoch(next.leader);
        }
    } else {
        elect(&mut next, (brokers, policy), policy.elects_uncleanly);
    }
    finish_reassignment(&mut next, (brokers, policy));
    (next != *state).then_some(next)
}

/// Elects a leader where the one that the state names is gone.
fn elect(next: &mut PartitionState, (brokers, policy): (&BrokerList, &Policy), uncleanly: bool) {
    let renewed = |it: &IsrMember| brokers.find(it.replica).map_or(*it, member);
    let alive = |from: &[IsrMember], wanted| -> Vec<IsrMember> {
        let alive = from.iter().filter(|it| status_of(**it, brokers) == wanted);
        alive.map(renewed).collect()
    };
    let steady = alive(&next.isr, BrokerStatus::Steady);
    let isr = if steady.is_empty() { alive(&next.isr, BrokerStatus::Returned) } else { steady };
    if !isr.is_empty() {
        let is_in = |replica: &&i32| isr.iter().any(|it| it.replica == **replica);
        let leader = next.replicas.iter().find(is_in).copied().unwrap_or(isr[0].replica);
        next.set_isr(isr, policy);
        return next.begin_epoch(leader);
    }
    let is_alive = |it: &&IsrMember| brokers.find(it.replica).is_some();
    if let Some(eligible) = next.eligible.iter().find(is_alive).map(renewed) {
        next.set_isr(vec![eligible], policy);
        return next.begin_epoch(eligible.replica);
    }
    let any = next.replicas.iter().find_map(|replica| brokers.find(*replica));
    if let (true, Some(any)) = (uncleanly, any) {
        next.eligible.clear();
        next.isr = vec![member(any)];
        next.unclean_elections += 1;
        return next.begin_epoch(next.isr[0].replica);
    }
    if next.leader >= 0 {
        next.begin_epoch(-1);
    }
}

/// A reassignment ends when all replicas that it wants are alive and in sync.
fn finish_reassignment(next: &mut PartitionState, (brokers, policy): (&BrokerList, &Policy)) {
    let is_complete = |wanted: &i32| {
        let member = next.isr.iter().find(|it| it.replica == *wanted);
        member.is_some_and(|it| status_of(*it, brokers) == BrokerStatus::Steady)
    };
    if next.target.is_empty() || !next.target.iter().all(is_complete) {
        return;
    }
    next.replicas = std::mem::take(&mut next.target);
    let is_wanted = |it: &IsrMember| next.replicas.contains(&it.replica);
    let isr: Vec<IsrMember> = next.isr.iter().copied().filter(is_wanted).collect();
    let leader = if next.replicas.contains(&next.leader) { next.leader } else { next.replicas[0] };
    next.set_isr(isr, policy);
    next.eligible.retain(|it| next.replicas.contains(&it.replica));
    next.begin_epoch(leader);
}

/// The state that a command asks for, if it can be had now.
pub fn commanded(
    state: &PartitionState,
    command: &Command,
    (brokers, policy): (&BrokerList, &Policy),
) -> Option<PartitionState> {
    let mut next = state.clone();
    let is_steady = |it: &IsrMember| status_of(*it, brokers) == BrokerStatus::Steady;
    match command {
        Command::Lead(replica) => {
            let in_sync = state.isr.iter().find(|it| it.replica == *replica)?;
            if state.leader == *replica || state.leader < 0 || !is_steady(in_sync) {
                return None;
            }
            next.begin_epoch(*replica);
        }
        Command::Leave(replica) => {
            let others: Vec<IsrMember> =
                state.isr.iter().copied().filter(|it| it.replica != *replica).collect();
            if state.isr.len() == others.len() || !others.iter().any(is_steady) {
                return None;
            }
            let leader = others.iter().find(|it| is_steady(it))?.replica;
            next.set_isr(others, policy);
            let leader = if state.leader == *replica { leader } else { state.leader };
            next.begin_epoch(leader);
        }
        Command::Reassign(target) => {
            if state.leader < 0 || *target == state.replicas {
                return None;
            }
            let new = target.iter().filter(|it| !state.replicas.contains(it));
            next.replicas.extend(new);
            next.target.clone_from(target);
            next.begin_epoch(state.leader);
        }
        Command::ElectUncleanly => {
            if state.leader >= 0 {
                return None;
            }
            elect(&mut next, (brokers, policy), true);
        }
    }
    Some(next)
}

/// A leader proposes an in-sync set: the state with it, or `None` if that is the state already.
pub fn altered(
    state: &PartitionState,
    (node, broker_epoch): (i32, i64),
    proposed: &ProposedIsr,
    (brokers, policy): (&BrokerList, &Policy),
) -> Result<Option<PartitionState>, ErrorCode> {
    match brokers.find(node) {
        Some(live) if live.broker_epoch == broker_epoch => {}
        Some(live) if live.broker_epoch < broker_epoch => return Err(ErrorCode::NotController),
        _ => return Err(ErrorCode::StaleBrokerEpoch),
    }
    if proposed.leader_epoch.0 > state.leader_epoch {
        return Err(ErrorCode::NotController);
    }
    if proposed.leader_epoch.0 < state.leader_epoch || state.leader != node {
        return Err(ErrorCode::FencedLeaderEpoch);
    }
    let same = |it: &IsrMember| state.isr.iter().any(|own| own.replica == it.replica);
    let is_same = proposed.isr.len() == state.isr.len() && proposed.isr.iter().all(same);
    let in_order =
        || proposed.isr.iter().zip(&state.isr).all(|(it, own)| it.replica == own.replica);
    let is_newest = proposed.partition_epoch == state.partition_epoch;
    if is_same && if policy.is_kafka { in_order() } else { !is_newest } {
        return Ok(None);
    }
    if !is_newest {
        return Err(ErrorCode::InvalidUpdateVersion);
    }
    let mut isr = Vec::new();
    for named in &proposed.isr {
        let own = state.isr.iter().find(|own| own.replica == named.replica);
        isr.push(match own {
            Some(own) => *own,
            None => joining(*named, brokers)?,
        });
    }
    let mut next = state.clone();
    next.set_isr(isr, policy);
    finish_reassignment(&mut next, (brokers, policy));
    Ok(Some(next))
}

/// A replica that joins must live under the registration that the leader saw.
fn joining(named: IsrMember, brokers: &BrokerList) -> Result<IsrMember, ErrorCode> {
    match brokers.find(named.replica) {
        Some(live) if live.broker_epoch == named.broker_epoch => Ok(named),
        Some(live) if live.broker_epoch < named.broker_epoch => Err(ErrorCode::NotController),
        _ => Err(ErrorCode::IneligibleReplica),
    }
}
