//! Applies the policy's decisions: records are appended, then group snapshots published, then
//! replies sent.
//!
//! A reply is sent when the logs of its groups are committed up to the log end at the time of the
//! decision. No client learns of state that a crash could undo. A reply without records waits for
//! the records before it. A reply that belongs to no group waits until all appends of the same call
//! have succeeded or failed. If an append fails, this call publishes no snapshot of its group and
//! sends no reply that waits for the group, even if the reply waits for other groups too. The
//! tickets of those replies stay open, and the policy learns of the failure.
//! Threads: the policy's. Replies are sent by the thread that moves the high watermark.
//! Not promised: that every reply is sent. If the log is lost, the connection is closed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::broker::policy::{Event, Ticket};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::decisions::{PolicyAnswer, PolicyRequest, TicketHolder};
use crate::broker::requests::delayed::Wake;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Mailbox;
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::groups::appending::GroupRecord;
use crate::broker::state::groups::snapshot::GroupSnapshot;
use crate::broker::state::waking::DelayedId;
use crate::protocol::value::{Value, ValueError};

/// The policy's decisions on the events of one turn.
#[derive(Clone, Debug, Default)]
pub struct GroupOutcome {
    /// The records to append, by group, in order.
    pub records: Vec<(String, GroupRecord)>,
    /// The new snapshot of each group. `None`: the group is gone. If a group has two, a member that
    /// is not timed in the first starts a new session with the second.
    pub snapshots: Vec<(String, Option<GroupSnapshot>)>,
    /// The replies, and the groups whose logs each reply waits for.
    pub replies: Vec<(Ticket, Value, Vec<String>)>,
}

/// An answer that is no valid response of its API. Then the whole call has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replies.{index}: {error}")]
pub struct WrongReply {
    /// Its index, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub error: ValueError,
}

/// A reply that is ready to be sent, or the next slice of a request.
struct PendingResponse {
    thread: usize,
    delayed: DelayedId,
    content: ResponseContent,
}

enum ResponseContent {
    Reply(Output),
    Next(Box<Event>),
}

/// An encoded answer and its request.
struct EncodedAnswer {
    ticket: Ticket,
    groups: Vec<String>,
    thread: usize,
    delayed: DelayedId,
    question: Arc<PolicyRequest>,
    answered: PolicyAnswer,
}

/// Replies that wait for logs.
struct PendingResponses {
    /// The number of logs that are not yet committed or lost.
    left: usize,
    /// Whether a required log is lost.
    lost: bool,
    responses: Vec<PendingResponse>,
}

impl Broker {
    /// Applies the policy's decisions in the order of [`GroupOutcome`]. Returns the groups whose
    /// append failed.
    pub fn apply_group_outcome(&self, decided: GroupOutcome) -> Result<Vec<String>, WrongReply> {
        let GroupOutcome { records, snapshots, replies } = decided;
        let answers = self.encode(replies)?;
        let mut places: HashMap<String, AppendedAt> = HashMap::new();
        let mut failed: HashSet<String> = HashSet::new();
        for (group_id, records) in by_group(records) {
            match self.append_group_records(&group_id, &records) {
                Ok(at) => drop(places.insert(group_id, at)),
                Err(error) => {
                    tracing::error!(group = %group_id, error = error.name(), "append failed");
                    failed.insert(group_id);
                }
            }
        }
        let appended: Vec<AppendedAt> = places.values().cloned().collect();
        for group_id in answers.iter().flat_map(|answer| &answer.groups) {
            if places.contains_key(group_id) || failed.contains(group_id) {
                continue;
            }
            match self.append_group_records(group_id, &[]) {
                Ok(at) => drop(places.insert(group_id.clone(), at)),
                Err(_) => drop(failed.insert(group_id.clone())),
            }
        }
        self.publish(snapshots, &failed);
        let mut by_groups: HashMap<Vec<String>, Vec<PendingResponse>> = HashMap::new();
        for answer in answers {
            let fails = answer.groups.iter().any(|group_id| failed.contains(group_id));
            if !fails && let Some((groups, pending_response)) = self.pending_response(answer) {
                by_groups.entry(groups).or_default().push(pending_response);
            }
        }
        for (groups, responses) in by_groups {
            if groups.is_empty() {
                self.send_after(&appended, false, responses);
            } else {
                let logs: Vec<_> = groups.iter().filter_map(|id| places.get(id).cloned()).collect();
                self.send_after(&logs, true, responses);
            }
        }
        Ok(failed.into_iter().collect())
    }

    /// Milliseconds until the next session may expire; `None` if no session is timed.
    pub fn session_due_ms(&self) -> Option<u64> {
        let deadline_ms = self.groups.snapshots.next_deadline()?;
        let wait_ms = deadline_ms.saturating_sub(self.clock.monotonic_ms());
        Some(u64::try_from(wait_ms).unwrap_or(0))
    }

    /// The members whose sessions have expired, as events for the policy.
    pub fn expire_sessions(&self) -> Vec<Event> {
        let expired = self.groups.snapshots.expired(self.clock.monotonic_ms());
        let event = |(group_id, members): (Arc<str>, Vec<Arc<str>>)| {
            let members = members.iter().map(|member_id| Value::Str(member_id.to_string()));
            let fields = vec![
                ("group_id".into(), Value::Str(group_id.to_string())),
                ("members".into(), Value::List(members.collect())),
            ];
            Event::internal("SessionExpired", Value::Map(fields))
        };
        expired.into_iter().map(event).collect()
    }

    /// Encodes the replies to clients that are still connected.
    fn encode(
        &self,
        replies: Vec<(Ticket, Value, Vec<String>)>,
    ) -> Result<Vec<EncodedAnswer>, WrongReply> {
        let mut answers = Vec::with_capacity(replies.len());
        for (index, (ticket, response, groups)) in replies.into_iter().enumerate() {
            let Some(TicketHolder::Request { thread, delayed, question }) =
                self.tickets.purpose(ticket)
            else {
                continue;
            };
            let answered = question.answered(&response);
            let answered = answered.map_err(|error| WrongReply { index, error })?;
            answers.push(EncodedAnswer { ticket, groups, thread, delayed, question, answered });
        }
        Ok(answers)
    }

    /// The reply or the next slice for an answer, and the groups whose logs it waits for. The last
    /// answer closes its ticket. `None` if no request waits for it.
    fn pending_response(&self, answer: EncodedAnswer) -> Option<(Vec<String>, PendingResponse)> {
        let EncodedAnswer { ticket, groups, thread, delayed, question, answered } = answer;
        let output = match answered {
            PolicyAnswer::Whole(output) => output,
            PolicyAnswer::Slice(part) => match question.proceed(ticket, part) {
                Ok(next) => {
                    return Some((
                        groups,
                        PendingResponse { thread, delayed, content: ResponseContent::Next(next) },
                    ));
                }
                Err(output) => output,
            },
        };
        self.tickets.close(ticket)?;
        Some((groups, PendingResponse { thread, delayed, content: ResponseContent::Reply(output) }))
    }

    /// Publishes the snapshots in order, except those of groups whose append failed.
    fn publish(&self, snapshots: Vec<(String, Option<GroupSnapshot>)>, failed: &HashSet<String>) {
        let now_ms = self.clock.monotonic_ms();
        for (group_id, row) in snapshots {
            if !failed.contains(&group_id) {
                self.groups.snapshots.publish(&group_id, row, now_ms);
            }
        }
    }

    /// Sends the responses once each log is committed that far or lost. If one is lost and that
    /// `matters`, the connections are closed instead.
    fn send_after(&self, logs: &[AppendedAt], matters: bool, responses: Vec<PendingResponse>) {
        if logs.is_empty() {
            return self.send(responses, false);
        }
        let waiting = PendingResponses { left: logs.len(), lost: false, responses };
        let waiting = Arc::new(parking_lot::Mutex::new(waiting));
        for at in logs {
            let (waiting, broker) = (Arc::clone(&waiting), self.me.clone());
            let action = move |outcome: Result<(), _>| {
                let mut waiting = waiting.lock();
                waiting.left -= 1;
                waiting.lost |= matters && outcome.is_err();
                if waiting.left == 0
                    && let Some(broker) = broker.upgrade()
                {
                    let responses = std::mem::take(&mut waiting.responses);
                    broker.send(responses, waiting.lost);
                }
            };
            self.on_commit(at, Box::new(action));
        }
    }

    fn send(&self, responses: Vec<PendingResponse>, lost: bool) {
        for PendingResponse { thread, delayed, content } in responses {
            let wake = match content {
                ResponseContent::Reply(output) if !lost => Wake::Answer(delayed, output),
                ResponseContent::Next(event) if !lost => {
                    self.policy.submit(*event);
                    continue;
                }
                ResponseContent::Next(event) => {
                    self.tickets.close(event.ticket);
                    Wake::Fail(delayed)
                }
                ResponseContent::Reply(_) => Wake::Fail(delayed),
            };
            Mailbox::post(self, thread, wake);
        }
    }
}

/// The records of each group, groups and records in the order they were first given.
fn by_group(records: Vec<(String, GroupRecord)>) -> Vec<(String, Vec<GroupRecord>)> {
    let mut groups: Vec<(String, Vec<GroupRecord>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (group_id, record) in records {
        let place = *places.entry(group_id).or_insert_with_key(|group_id| {
            groups.push((group_id.clone(), Vec::new()));
            groups.len() - 1
        });
        if let Some((_, records)) = groups.get_mut(place) {
            records.push(record);
        }
    }
    groups
}
