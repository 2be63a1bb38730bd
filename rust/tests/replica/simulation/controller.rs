//! A broker's controller: it reads ZooKeeper, decides (`decisions`), writes, and tells the brokers.
//!
//! It has one request to ZooKeeper on its way at a time. An answer that does not come leaves open
//! whether a write was done, so it reads the partition again. A controller whose write is fenced
//! is one no longer; until then it does not know, and goes on with what it knew.

use std::collections::VecDeque;

use crate::replica::leader::{IsrMember, Leadership, ProposalOutcome, ProposedIsr};
use krust::ids::Epoch;
use krust::protocol::ErrorCode;

use super::decisions::{self, Policy};
use super::messages::{Assignment, Command, Message};
use super::zookeeper::{
    BrokerList, PartitionState, StoreAnswer, StoreRequest, WriteOutcome, node_id,
};

/// What it wants done.
#[derive(Debug)]
pub enum ControllerEffect {
    Store(StoreRequest),
    Send(usize, Message),
}

#[derive(Clone, Debug)]
enum Task {
    ReadBrokers,
    ReadPartition,
    /// Write what is missing, or tell the brokers.
    Settle,
    Alter {
        node: usize,
        broker_epoch: i64,
        proposed: ProposedIsr,
        refuses: bool,
    },
    Command(Command),
}

#[derive(Debug)]
enum PendingRequest {
    Brokers,
    Partition,
    Write { next: PartitionState, asked: Option<(usize, ProposedIsr)> },
}

/// A controller in its term.
pub struct Controller {
    node: usize,
    pub epoch: i32,
    policy: Policy,
    names_registrations: bool,
    brokers: BrokerList,
    state: Option<PartitionState>,
    tasks: VecDeque<Task>,
    waiting: Option<PendingRequest>,
    serial: u64,
}

impl Controller {
    pub fn new(node: usize, epoch: i32, (policy, names_registrations): (Policy, bool)) -> Self {
        Self {
            node,
            epoch,
            policy,
            names_registrations,
            brokers: BrokerList::default(),
            state: None,
            tasks: [Task::ReadBrokers, Task::ReadPartition, Task::Settle].into(),
            waiting: None,
            serial: 0,
        }
    }

    /// A watch fired, or it is time to look.
    pub fn brokers_changed(&mut self) {
        self.tasks.extend([Task::ReadBrokers, Task::Settle]);
    }

    pub fn command(&mut self, command: Command) {
        self.tasks.push_back(Task::Command(command));
    }

    /// A leader proposes an in-sync set. `refuses`: a replica that would join may not do so now.
    pub fn alter(
        &mut self,
        (node, broker_epoch): (usize, i64),
        proposed: ProposedIsr,
        refuses: bool,
    ) {
        self.tasks.push_back(Task::Alter { node, broker_epoch, proposed, refuses });
    }

    /// Works until it waits for ZooKeeper, or nothing is left to do.
    pub fn run(&mut self, effects: &mut Vec<ControllerEffect>) {
        while self.waiting.is_none()
            && let Some(task) = self.tasks.pop_front()
        {
            self.begin(task, effects);
        }
    }

    fn begin(&mut self, task: Task, effects: &mut Vec<ControllerEffect>) {
        let Some(state) = &self.state else {
            return match task {
                Task::ReadBrokers => {
                    self.ask(PendingRequest::Brokers, StoreRequest::ReadBrokers, effects)
                }
                Task::Alter { node, proposed, .. } => {
                    let outcome = ProposalOutcome::Refused(ErrorCode::NotController);
                    answer(node, proposed, outcome, effects);
                }
                Task::Command(_) => {}
                Task::ReadPartition | Task::Settle => {
                    self.ask(PendingRequest::Partition, StoreRequest::ReadPartition, effects);
                }
            };
        };
        let context = (&self.brokers, &self.policy);
        match task {
            Task::ReadBrokers => {
                self.ask(PendingRequest::Brokers, StoreRequest::ReadBrokers, effects)
            }
            Task::ReadPartition => {
                self.ask(PendingRequest::Partition, StoreRequest::ReadPartition, effects);
            }
            Task::Settle => match decisions::settled(state, &self.brokers, &self.policy) {
                Some(next) => self.write(next, None, effects),
                None => self.tell_brokers(effects),
            },
            Task::Command(command) => {
                if let Some(next) = decisions::commanded(state, &command, context) {
                    self.write(next, None, effects);
                }
            }
            Task::Alter { node, broker_epoch, proposed, refuses } => {
                let by = (node_id(node), broker_epoch);
                match decisions::altered(state, by, &proposed, context) {
                    Ok(Some(next)) if refuses && next.isr.len() > state.isr.len() => {
                        let outcome = ProposalOutcome::Refused(ErrorCode::IneligibleReplica);
                        answer(node, proposed, outcome, effects);
                    }
                    Ok(Some(next)) => self.write(next, Some((node, proposed)), effects),
                    Ok(None) => {
                        let outcome = ProposalOutcome::Committed(self.leadership(state));
                        answer(node, proposed, outcome, effects);
                    }
                    Err(error) => {
                        let is_behind = error == ErrorCode::InvalidUpdateVersion;
                        answer(node, proposed, ProposalOutcome::Refused(error), effects);
                        if is_behind {
                            self.tell_brokers(effects);
                        }
                    }
                }
            }
        }
    }

    fn ask(
        &mut self,
        waiting: PendingRequest,
        request: StoreRequest,
        effects: &mut Vec<ControllerEffect>,
    ) {
        self.waiting = Some(waiting);
        effects.push(ControllerEffect::Store(request));
    }

    fn write(
        &mut self,
        next: PartitionState,
        asked: Option<(usize, ProposedIsr)>,
        effects: &mut Vec<ControllerEffect>,
    ) {
        let request = StoreRequest::Write { controller_epoch: self.epoch, state: next.clone() };
        self.ask(PendingRequest::Write { next, asked }, request, effects);
    }

    /// ZooKeeper answered what it waits for. False: it is the controller no longer.
    pub fn stored(&mut self, stored: StoreAnswer, effects: &mut Vec<ControllerEffect>) -> bool {
        match (self.waiting.take(), stored) {
            (Some(PendingRequest::Brokers), StoreAnswer::Brokers(brokers)) => {
                self.brokers = brokers
            }
            (Some(PendingRequest::Partition), StoreAnswer::Partition(state)) => {
                self.state = Some(state);
                self.tasks.push_front(Task::Settle);
            }
            (Some(PendingRequest::Write { next, asked }), StoreAnswer::Written(outcome)) => {
                return self.written(next, asked, outcome, effects);
            }
            (Some(PendingRequest::Brokers), _) => self.tasks.push_front(Task::ReadBrokers),
            (Some(PendingRequest::Partition | PendingRequest::Write { .. }), _) => {
                self.tasks.push_front(Task::ReadPartition);
            }
            (None, _) => {}
        }
        true
    }

    fn written(
        &mut self,
        next: PartitionState,
        asked: Option<(usize, ProposedIsr)>,
        outcome: WriteOutcome,
        effects: &mut Vec<ControllerEffect>,
    ) -> bool {
        match outcome {
            WriteOutcome::Done => {
                let partition_epoch = next.partition_epoch + 1;
                let state = PartitionState { partition_epoch, ..next };
                if let Some((node, proposed)) = asked {
                    let outcome = ProposalOutcome::Committed(self.leadership(&state));
                    answer(node, proposed, outcome, effects);
                }
                self.state = Some(state);
                self.tasks.push_front(Task::Settle);
                true
            }
            WriteOutcome::BadVersion => {
                self.tasks.push_front(Task::ReadPartition);
                true
            }
            WriteOutcome::Fenced => false,
        }
    }

    /// Tells every live broker, as far as this controller knows who lives.
    fn tell_brokers(&mut self, effects: &mut Vec<ControllerEffect>) {
        let Some(state) = &self.state else { return };
        self.serial += 1;
        let alive: Vec<i32> = self.brokers.registered.iter().map(|it| node_id(it.node)).collect();
        for broker in &self.brokers.registered {
            let assignment = Assignment {
                controller: self.node,
                controller_epoch: self.epoch,
                serial: self.serial,
                broker_epoch: broker.broker_epoch,
                leader: state.leader,
                leadership: self.leadership(state),
                alive: alive.clone(),
            };
            let message = Message::Assign(Box::new(assignment));
            effects.push(ControllerEffect::Send(broker.node, message));
        }
    }

    /// The state as control requests name it.
    fn leadership(&self, state: &PartitionState) -> Leadership {
        let named = |it: &IsrMember| IsrMember {
            broker_epoch: if self.names_registrations { it.broker_epoch } else { -1 },
            ..*it
        };
        Leadership {
            leader_epoch: Epoch(state.leader_epoch),
            partition_epoch: state.partition_epoch,
            isr: state.isr.iter().map(named).collect(),
            replicas: state.replicas.clone(),
        }
    }
}

fn answer(
    node: usize,
    proposed: ProposedIsr,
    outcome: ProposalOutcome,
    effects: &mut Vec<ControllerEffect>,
) {
    effects.push(ControllerEffect::Send(node, Message::Altered { proposed, outcome }));
}
