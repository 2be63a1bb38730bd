//! Sends proposed in-sync sets to the controller, as the event `AlterPartition`. It also has the
//! leaders check their followers regularly.
//!
//! The request is Kafka's AlterPartition without the broker's id and epoch, which the policy adds.
//! It names topics by name and id, and members with and without their epochs, because the policy
//! sends it in the version that the controller knows. The answer is Kafka's response. An error of
//! the whole response means that the outcome of the proposals is unknown; they are repeated.
//! Threads: any.
//! Limits: one request at a time, which is given up after [`PATIENCE_MS`].

use std::collections::BTreeMap;

use crate::broker::policy::{Event, RequestClient, Ticket};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::decisions::TicketHolder;
use crate::broker::state::partition::{AlteredIsr, ProposalAnswer};
use crate::broker::state::replication::{IsrProposal, SentProposals};
use crate::broker::state::waking::Wakes;
use crate::ids::{Epoch, TopicId};
use crate::protocol::ErrorCode;
use crate::protocol::value::Value;

/// The policy gives up on the controller earlier.
const PATIENCE_MS: i64 = 40_000;

impl Broker {
    /// Sends the waiting proposals, unless a request is on its way.
    pub(crate) fn send_proposals(&self) {
        let open = || self.tickets.open(TicketHolder::AlterPartition);
        let sent = self.replication.proposals.next(self.clock.monotonic_ms(), open);
        let Some(SentProposals { ticket, proposals, .. }) = sent else { return };
        self.policy.submit(Event {
            ticket,
            api: "AlterPartition",
            version: 0,
            request: request_of(&proposals),
            client: RequestClient::default(),
            lease: None,
        });
    }

    /// Takes the controller's answer. An error means that the outcome is unknown.
    pub(crate) fn proposals_answered(&self, ticket: Ticket, response: &Value) {
        let is_whole = number(response, "error_code") == 0;
        let (node, image) = (self.settings.load().node_id, self.image.load());
        for proposal in self.replication.proposals.ended(ticket) {
            let IsrProposal { partition: name, topic_id, proposed } = &proposal;
            let answer = match result_of(response, &proposal) {
                Some(result) if is_whole => answer_of(result, node),
                _ => ProposalAnswer::Unknown,
            };
            let topic = image.topic(&name.topic).filter(|topic| topic.id == *topic_id);
            let partition = topic.and_then(|topic| topic.partition(name.partition)?.local.as_ref());
            let Some(partition) = partition else { continue };
            if !matches!(answer, ProposalAnswer::Committed(_)) {
                self.replication.proposals.repeat(name.clone());
            }
            partition.proposal_ended(proposed, answer, &mut Wakes { here: None, waker: self });
        }
        self.send_proposals();
    }

    /// Time passed: followers that lag leave the in-sync sets that this broker leads. Called every
    /// half `replica.lag.time.max.ms`.
    pub fn tick_replication(&self) {
        let image = self.image.load();
        let partitions = image.topics().flat_map(|topic| &topic.partitions);
        for partition in partitions.filter_map(|partition| partition.local.as_ref()) {
            partition.tick(&mut Wakes { here: None, waker: self });
        }
    }

    /// Repeats proposals whose outcome is unknown, and gives up on a request that is not answered.
    pub(crate) fn repeat_proposals(&self) {
        let until_ms = self.clock.monotonic_ms().saturating_sub(PATIENCE_MS);
        if let Some(ticket) = self.replication.proposals.sent_before(until_ms) {
            self.tickets.close(ticket);
            self.proposals_answered(ticket, &error(ErrorCode::RequestTimedOut));
        }
        let image = self.image.load();
        for name in self.replication.proposals.to_repeat() {
            let topic = image.topic(&name.topic);
            let partition = topic.and_then(|topic| topic.partition(name.partition)?.local.as_ref());
            if let Some(partition) = partition {
                partition.tick(&mut Wakes { here: None, waker: self });
            }
        }
    }
}

fn error(code: ErrorCode) -> Value {
    Value::Map(vec![("error_code".into(), Value::Int(code.code().into()))])
}

fn request_of(proposals: &[IsrProposal]) -> Value {
    let mut topics: BTreeMap<(&str, TopicId), Vec<Value>> = BTreeMap::new();
    for proposal in proposals {
        let key = (&*proposal.partition.topic, proposal.topic_id);
        topics.entry(key).or_default().push(partition_of(proposal));
    }
    let topic = |((name, id), partitions): ((&str, TopicId), Vec<Value>)| {
        Value::Map(vec![
            ("topic_name".into(), Value::Str(name.to_owned())),
            ("topic_id".into(), Value::Uuid(id)),
            ("partitions".into(), Value::List(partitions)),
        ])
    };
    let topics = topics.into_iter().map(topic).collect();
    Value::Map(vec![("topics".into(), Value::List(topics))])
}

fn partition_of(proposal: &IsrProposal) -> Value {
    let proposed = &proposal.proposed;
    let ids = proposed.isr.iter().map(|member| Value::Int(member.replica.into()));
    let members = proposed.isr.iter().map(|member| {
        Value::Map(vec![
            ("broker_id".into(), Value::Int(member.replica.into())),
            ("broker_epoch".into(), Value::Int(member.broker_epoch)),
        ])
    });
    Value::Map(vec![
        ("partition_index".into(), Value::Int(proposal.partition.partition.into())),
        ("leader_epoch".into(), Value::Int(proposed.leader_epoch.0.into())),
        ("new_isr".into(), Value::List(ids.collect())),
        ("new_isr_with_epochs".into(), Value::List(members.collect())),
        ("leader_recovery_state".into(), Value::Int(0)),
        ("partition_epoch".into(), Value::Int(proposed.partition_epoch.into())),
    ])
}

/// The response's part on the partition of a proposal.
fn result_of<'r>(response: &'r Value, proposal: &IsrProposal) -> Option<&'r Value> {
    let topic_id = proposal.topic_id.to_string();
    let is_topic = |topic: &&Value| match (topic.field("topic_id"), topic.field("topic_name")) {
        (_, Some(Value::Str(name))) => **name == *proposal.partition.topic,
        (Some(Value::Str(id)), _) => *id == topic_id,
        (Some(Value::Uuid(id)), _) => *id == proposal.topic_id,
        _ => false,
    };
    let partition = i64::from(proposal.partition.partition);
    let topic = response.items("topics").iter().find(is_topic)?;
    topic.items("partitions").iter().find(|it| number(it, "partition_index") == partition)
}

fn answer_of(result: &Value, node: i32) -> ProposalAnswer {
    let error = ErrorCode::from(i16::try_from(number(result, "error_code")).unwrap_or(-1));
    let int = |name| i32::try_from(number(result, name)).unwrap_or(-1);
    if error != ErrorCode::None {
        ProposalAnswer::Refused(error)
    } else if int("leader_id") != node {
        ProposalAnswer::Refused(ErrorCode::NewLeaderElected)
    } else {
        let isr = result.items("isr").iter().filter_map(|id| match id {
            Value::Int(id) => i32::try_from(*id).ok(),
            _ => None,
        });
        ProposalAnswer::Committed(AlteredIsr {
            leader_epoch: Epoch(int("leader_epoch")),
            partition_epoch: int("partition_epoch"),
            isr: isr.collect(),
        })
    }
}

fn number(value: &Value, name: &str) -> i64 {
    match value.field(name) {
        Some(Value::Int(number)) => *number,
        _ => 0,
    }
}
