//! Sends the questions for a user's replica selector to the policy, as the event `SelectReplicas`.
//!
//! The request is `{"selections": [{"topic", "partition", "rack", "isr", "replicas"}]}`, with
//! node ids; this broker leads the partitions. The answer is `{"selections": [node id]}`, in the
//! same order; -1 or a missing element means the leader.
//! Threads: any.
//! Limits: one request at a time; see `state::read_replicas`.

use crate::broker::policy::{Event, RequestClient, Ticket};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::decisions::TicketHolder;
use crate::broker::state::read_replicas::SelectionQuestion;
use crate::protocol::value::Value;

impl Broker {
    /// Sends the waiting questions, unless a request is on its way.
    pub(crate) fn ask_for_replicas(&self) {
        let open = || self.tickets.open(TicketHolder::SelectReplicas);
        let Some((ticket, questions)) = self.selected_replicas.next(open) else { return };
        let selections = questions.iter().map(selection).collect();
        self.policy.submit(Event {
            ticket,
            api: "SelectReplicas",
            version: 0,
            request: Value::Map(vec![("selections".into(), Value::List(selections))]),
            client: RequestClient::default(),
            lease: None,
        });
    }

    /// The policy answered.
    pub(crate) fn replicas_selected(&self, ticket: Ticket, response: &Value) {
        let selections = response.items("selections");
        let replica = |value: &Value| match value {
            Value::Int(id) => i32::try_from(*id).ok().filter(|id| *id >= 0),
            _ => None,
        };
        self.selected_replicas.answered(ticket, selections.iter().map(replica));
        self.ask_for_replicas();
    }
}

fn selection(question: &SelectionQuestion) -> Value {
    let name = &question.partition;
    let ids = |ids: &[i32]| Value::List(ids.iter().map(|id| Value::Int((*id).into())).collect());
    Value::Map(vec![
        ("topic".into(), Value::Str(name.topic.to_string())),
        ("partition".into(), Value::Int(name.partition.into())),
        ("rack".into(), Value::Str(question.rack.to_string())),
        ("isr".into(), ids(&question.isr)),
        ("replicas".into(), ids(&question.replicas)),
    ])
}
