//! Which steps a state allows, and what comes of them.

use crate::replica::leader::{LeaderReplica, ProposalOutcome, ProposedIsr};

use krust::protocol::ErrorCode;

use super::cluster::{Broker, Cluster, Flight, Late, Proposal, Role};
use super::replica::Outcome;
use super::variants::Variant;
use crate::simulation::decisions::{self, Policy};
use crate::simulation::messages::Command;
use crate::simulation::zookeeper::{PartitionState, node_id};

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub records: u8,
    pub leader_epochs: i32,
    /// Changes of the partition's state.
    pub writes: i32,
    pub kills: u8,
    pub power_cuts: u8,
    /// Sessions that end although the broker lives.
    pub sessions: u8,
    /// Messages that arrive at any time later.
    pub late: u8,
    /// Clean stops that a power cut follows.
    pub stops: u8,
    /// Elections of another in-sync replica while the leader lives.
    pub moves: u8,
    /// Additions to the in-sync set that the controller refuses, for a reason that passes.
    pub refusals: u8,
}

pub struct Search {
    pub replicas: usize,
    pub policy: Policy,
    pub variant: Variant,
    pub bounds: Bounds,
}

/// A step, as a counterexample names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Settle,
    MoveLeader(usize),
    Assign(usize),
    AssignBefore(usize),
    Produce(usize),
    Ask(usize),
    Deliver(usize),
    KeepForLater(usize),
    DeliverLate(usize),
    Tick(usize),
    DeliverProposal(usize),
    RefuseProposal(usize),
    LoseProposal(usize),
    LoseProposalForNow(usize),
    Expire(usize),
    Register(usize),
    Kill(usize),
    CutPower(usize, usize),
    StopAndCutPower(usize, usize),
}

impl Search {
    /// The steps that may be possible in a state.
    pub fn steps(&self, cluster: &Cluster, out: &mut Vec<Step>) {
        out.push(Step::Settle);
        for node in 0..self.replicas {
            let broker = &cluster.brokers[node];
            let end = broker.log.records.len();
            out.extend([Step::Assign(node), Step::AssignBefore(node), Step::Tick(node)]);
            out.extend([Step::Produce(node), Step::Ask(node), Step::Deliver(node)]);
            out.extend([Step::KeepForLater(node), Step::Expire(node), Step::Register(node)]);
            out.extend([Step::Kill(node), Step::MoveLeader(node)]);
            if cluster.spent.power_cuts < self.bounds.power_cuts {
                out.extend((0..end).map(|keep| Step::CutPower(node, keep)));
            }
            if cluster.spent.stops < self.bounds.stops {
                out.extend((0..end).map(|keep| Step::StopAndCutPower(node, keep)));
            }
        }
        out.extend((0..cluster.late.len()).map(Step::DeliverLate));
        for at in 0..cluster.proposals.len() {
            out.extend([Step::DeliverProposal(at), Step::LoseProposal(at)]);
            out.extend([Step::LoseProposalForNow(at), Step::RefuseProposal(at)]);
        }
    }

    /// The state after a step; `None`: it is not possible, or changes nothing.
    pub fn take(&self, cluster: &Cluster, step: Step) -> Outcome {
        let taken = self.take_raw(cluster, step)?;
        Ok(taken.map(|mut next| {
            next.forget_what_cannot_matter();
            next
        }))
    }

    fn take_raw(&self, cluster: &Cluster, step: Step) -> Outcome {
        match step {
            Step::Settle => Ok(self.settle(cluster)),
            Step::MoveLeader(node) => Ok(self.move_leader(cluster, node)),
            Step::Assign(node) => self.assign(cluster, node, &cluster.state),
            Step::AssignBefore(node) => match &cluster.before {
                Some(before) => self.assign(cluster, node, before),
                None => Ok(None),
            },
            Step::Produce(node) => self.produce(cluster, node),
            Step::Ask(node) => Ok(ask(cluster, node)),
            Step::Deliver(node) => self.deliver(cluster, node),
            Step::KeepForLater(node) => Ok(self.keep_for_later(cluster, node)),
            Step::DeliverLate(at) => self.deliver_late(cluster, at),
            Step::Tick(node) => self.tick(cluster, node),
            Step::DeliverProposal(at) => self.deliver_proposal(cluster, at),
            Step::RefuseProposal(at) => Ok(self.refuse_proposal(cluster, at)),
            Step::LoseProposal(at) => self.lose_proposal(cluster, at, false),
            Step::LoseProposalForNow(at) => self.lose_proposal(cluster, at, true),
            Step::Expire(node) => Ok(self.expire(cluster, node)),
            Step::Register(node) => Ok(register(cluster, node)),
            Step::Kill(node) => Ok(self.kill(cluster, node)),
            Step::CutPower(node, keep) => Ok(cut_power(cluster, node, keep)),
            Step::StopAndCutPower(node, keep) => Ok(self.stop(cluster, node, keep)),
        }
    }

    /// The controller writes what is missing.
    fn settle(&self, cluster: &Cluster) -> Option<Cluster> {
        let next = decisions::settled(&cluster.state, &cluster.list, &self.policy)?;
        self.write(cluster.clone(), next)
    }

    fn write(&self, mut cluster: Cluster, mut next: PartitionState) -> Option<Cluster> {
        next.partition_epoch = cluster.state.partition_epoch + 1;
        if next.leader_epoch > self.bounds.leader_epochs
            || next.partition_epoch > self.bounds.writes
        {
            return None;
        }
        let state = std::mem::replace(&mut cluster.state, next);
        if state.leader_epoch < cluster.state.leader_epoch && state.leader >= 0 {
            cluster.before = Some(Box::new(state));
        }
        Some(cluster)
    }

    fn move_leader(&self, cluster: &Cluster, node: usize) -> Option<Cluster> {
        if cluster.spent.moves >= self.bounds.moves {
            return None;
        }
        let context = (&cluster.list, &self.policy);
        let command = Command::Lead(node_id(node));
        let next = decisions::commanded(&cluster.state, &command, context)?;
        let mut moved = cluster.clone();
        moved.spent.moves += 1;
        self.write(moved, next)
    }

    fn assign(&self, cluster: &Cluster, node: usize, state: &PartitionState) -> Outcome {
        let broker = &cluster.brokers[node];
        let live = cluster.list.find(node_id(node));
        if state.leader_epoch == 0 || live.is_none_or(|it| it.broker_epoch != broker.broker_epoch) {
            return Ok(None);
        }
        // A controller tells a broker to lead only if it still is the one that was elected.
        let is_elected = |it: &_| cluster.is_live(it);
        let named = state.isr.iter().find(|it| it.replica == state.leader);
        let checks = self.variant != Variant::LeadsOnAfterRestart;
        if checks && state.leader == node_id(node) && !named.is_some_and(is_elected) {
            return Ok(None);
        }
        cluster.clone().assigned(node, state, self)
    }

    fn produce(&self, cluster: &Cluster, node: usize) -> Outcome {
        let Role::Leader(leader) = &cluster.brokers[node].role else { return Ok(None) };
        if cluster.spent.records >= self.bounds.records || !leader.has_enough_in_sync() {
            return Ok(None);
        }
        let epoch = leader.leadership().leader_epoch.0;
        let mut next = cluster.clone();
        next.spent.records += 1;
        next.brokers[node].log.records.push((epoch, next.spent.records));
        next.lead(node, self, LeaderReplica::log_end_moved)?;
        Ok(Some(next))
    }

    fn deliver(&self, cluster: &Cluster, node: usize) -> Outcome {
        let Some(flight) = &cluster.brokers[node].flight else { return Ok(None) };
        let mut next = cluster.clone();
        next.brokers[node].flight = None;
        match flight {
            Flight::Ask { to, broker_epoch, request } => {
                let answer = next.asked((node, *to), (*broker_epoch, *request), self)?;
                next.brokers[node].flight = answer.map(|(answer, records)| Flight::Answer {
                    from: *to,
                    request: *request,
                    answer,
                    records,
                });
            }
            Flight::Answer { from, request, answer, records } => {
                next.answered(node, (*from, *request), (*answer, records))?;
            }
        }
        Ok(Some(next))
    }

    /// A question is lost for now, and arrives at some later time.
    fn keep_for_later(&self, cluster: &Cluster, node: usize) -> Option<Cluster> {
        if cluster.spent.late >= self.bounds.late {
            return None;
        }
        let Some(Flight::Ask { to, broker_epoch, request }) = &cluster.brokers[node].flight else {
            return None;
        };
        let late =
            Late::Ask { from: node, to: *to, broker_epoch: *broker_epoch, request: *request };
        let mut next = cluster.clone();
        next.brokers[node].flight = None;
        next.spent.late += 1;
        next.late.push(late);
        Some(next)
    }

    fn deliver_late(&self, cluster: &Cluster, at: usize) -> Outcome {
        let mut next = cluster.clone();
        match next.late.remove(at) {
            Late::Ask { from, to, broker_epoch, request } => {
                next.asked((from, to), (broker_epoch, request), self)?;
            }
            Late::Proposal { from, broker_epoch, proposed } => {
                let altered = self.alter(next, (from, broker_epoch), &proposed);
                return Ok(altered.map(|(altered, _)| altered));
            }
        }
        Ok(Some(next))
    }

    fn tick(&self, cluster: &Cluster, node: usize) -> Outcome {
        if !matches!(cluster.brokers[node].role, Role::Leader(_)) {
            return Ok(None);
        }
        let mut next = cluster.clone();
        next.lead(node, self, LeaderReplica::tick)?;
        Ok((next != *cluster).then_some(next))
    }

    /// The controller gets a proposal, or the leader its answer.
    fn deliver_proposal(&self, cluster: &Cluster, at: usize) -> Outcome {
        let mut next = cluster.clone();
        let Proposal { from, broker_epoch, proposed, outcome } = next.proposals.remove(at);
        match outcome {
            Some(outcome) => {
                if next.brokers[from].broker_epoch == broker_epoch {
                    next.lead(from, self, |leader, moment| {
                        leader.proposal_ended(&proposed, outcome, moment)
                    })?;
                }
            }
            None => {
                let altered = self.alter(next, (from, broker_epoch), &proposed);
                let Some((mut altered, outcome)) = altered else { return Ok(None) };
                let outcome = Some(outcome);
                altered.proposals.push(Proposal { from, broker_epoch, proposed, outcome });
                next = altered;
            }
        }
        Ok(Some(next))
    }

    /// The controller refuses to let a replica join now.
    fn refuse_proposal(&self, cluster: &Cluster, at: usize) -> Option<Cluster> {
        let Proposal { from, broker_epoch, proposed, outcome } = &cluster.proposals[at];
        if outcome.is_some() || cluster.spent.refusals >= self.bounds.refusals {
            return None;
        }
        let (altered, _) = self.alter(cluster.clone(), (*from, *broker_epoch), proposed)?;
        if altered.state.isr.len() <= cluster.state.isr.len() {
            return None;
        }
        let mut next = cluster.clone();
        next.spent.refusals += 1;
        let refused = ProposalOutcome::Refused(ErrorCode::IneligibleReplica);
        next.proposals[at].outcome = Some(refused);
        Some(next)
    }

    fn alter(
        &self,
        cluster: Cluster,
        (from, broker_epoch): (usize, i64),
        proposed: &ProposedIsr,
    ) -> Option<(Cluster, ProposalOutcome)> {
        let mut proposed = proposed.clone();
        if self.variant == Variant::StaleIncarnationJoins {
            for member in &mut proposed.isr {
                let live = cluster.list.find(member.replica);
                member.broker_epoch = live.map_or(-1, |it| it.broker_epoch);
            }
        }
        let by = (node_id(from), broker_epoch);
        let context = (&cluster.list, &self.policy);
        match decisions::altered(&cluster.state, by, &proposed, context) {
            Err(error) => Some((cluster, ProposalOutcome::Refused(error))),
            Ok(next) => {
                let written = match next {
                    Some(next) => self.write(cluster, next)?,
                    None => cluster,
                };
                let state = &written.state;
                let outcome = ProposalOutcome::Committed(super::replica::leadership(state));
                Some((written, outcome))
            }
        }
    }

    /// The leader hears nothing of a proposal. Later the controller may get it all the same.
    fn lose_proposal(&self, cluster: &Cluster, at: usize, for_now: bool) -> Outcome {
        let mut next = cluster.clone();
        let Proposal { from, broker_epoch, proposed, outcome } = next.proposals.remove(at);
        if for_now {
            if outcome.is_some() || next.spent.late >= self.bounds.late {
                return Ok(None);
            }
            next.spent.late += 1;
            next.late.push(Late::Proposal { from, broker_epoch, proposed: proposed.clone() });
        }
        next.lead(from, self, |leader, moment| {
            leader.proposal_ended(&proposed, ProposalOutcome::Unknown, moment)
        })?;
        Ok(Some(next))
    }

    fn expire(&self, cluster: &Cluster, node: usize) -> Option<Cluster> {
        let live = cluster.list.find(node_id(node))?;
        let is_alive = cluster.brokers[node].broker_epoch == live.broker_epoch;
        if is_alive && cluster.spent.sessions >= self.bounds.sessions {
            return None;
        }
        let mut next = cluster.clone();
        next.spent.sessions += u8::from(is_alive);
        next.list.registered.retain(|it| it.node != node);
        Some(next)
    }

    fn kill(&self, cluster: &Cluster, node: usize) -> Option<Cluster> {
        if cluster.spent.kills >= self.bounds.kills {
            return None;
        }
        let mut next = cluster.clone();
        next.spent.kills += 1;
        next.brokers[node].restart();
        Some(next)
    }

    /// A broker stops in order, and its machine loses its power. Only a marker that was written too
    /// early vouches for more than there is.
    fn stop(&self, cluster: &Cluster, node: usize, keep: usize) -> Option<Cluster> {
        if self.variant != Variant::MarkerFirst {
            return None;
        }
        let lossless_since = cluster.brokers[node].lossless_since;
        let mut next = cut_power(cluster, node, keep)?;
        next.spent.power_cuts -= 1;
        next.spent.stops += 1;
        next.brokers[node].lossless_since = lossless_since;
        Some(next)
    }
}

fn ask(cluster: &Cluster, node: usize) -> Option<Cluster> {
    let question = cluster.question(node)?;
    if cluster.brokers[node].flight.as_ref() == Some(&question) {
        return None;
    }
    let mut next = cluster.clone();
    next.brokers[node].flight = Some(question);
    Some(next)
}

fn register(cluster: &Cluster, node: usize) -> Option<Cluster> {
    let live = cluster.list.find(node_id(node)).map(|it| it.broker_epoch);
    if live == Some(cluster.brokers[node].broker_epoch) {
        return None;
    }
    let mut next = cluster.clone();
    let lossless_since = next.brokers[node].lossless_since;
    let registration = next.list.register(node, lossless_since);
    let broker = &mut next.brokers[node];
    broker.broker_epoch = registration.broker_epoch;
    broker.lossless_since = Some(registration.lossless_since);
    Some(next)
}

fn cut_power(cluster: &Cluster, node: usize, keep: usize) -> Option<Cluster> {
    let mut next = cluster.clone();
    let zxid = next.list.zxid;
    let broker = &mut next.brokers[node];
    broker.restart();
    broker.log.truncate(keep);
    broker.log.high_watermark = 0;
    broker.lost_at = zxid;
    broker.lossless_since = None;
    next.spent.power_cuts += 1;
    Some(next)
}

impl Broker {
    /// A new process, which knows nothing but its log.
    fn restart(&mut self) {
        self.broker_epoch = -1;
        self.role = Role::None;
        self.leader_epoch = 0;
        self.flight = None;
        self.log.begun = None;
    }
}
