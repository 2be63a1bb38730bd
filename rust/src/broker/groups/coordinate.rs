//! What the policy decided: records are appended, then fences hold, then replies leave.
//!
//! A reply leaves when the log of its group is committed as far as it reached when the reply was
//! made, so that no client hears of what a crash could undo; one without records of its own waits
//! for those before it. A reply under the group `""` belongs to no group: it waits until it is
//! known what became of all that the same call appended.
//! Where an append fails, nothing of the group in this call happens: no fence, no reply, its
//! tickets stay open, and the policy is told.
//! Threads: the policy's; replies leave on whatever thread moves the high watermark.
//! Not promised: that a reply leaves at all; where the log is lost, its connection is closed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::policy::Asked;
use super::super::{Broker, Event, Mailbox, Output, ParkedId, Ticket, Wake};
use super::{AppendedAt, FenceRow, GroupRecord};
use crate::protocol::value::{Value, ValueError};

/// What the policy makes of the events of one turn.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// What is written, by group, in order.
    pub records: Vec<(String, GroupRecord)>,
    /// What holds of a group then. `None`: the group is gone. Two rows of a group: who is not timed
    /// in the first begins its session anew with the second.
    pub fences: Vec<(String, Option<FenceRow>)>,
    /// Who is answered, and the group whose log the answer waits for.
    pub replies: Vec<(Ticket, Value, String)>,
}

/// An answer that is no response of its API: nothing of the whole call was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replies.{index}: {error}")]
pub struct WrongReply {
    /// Which one, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub error: ValueError,
}

/// A reply that is ready to leave.
struct Letter {
    thread: usize,
    parked: ParkedId,
    output: Output,
}

/// Replies that wait for several logs.
struct Gathered {
    left: AtomicUsize,
    letters: parking_lot::Mutex<Vec<Letter>>,
}

impl Broker {
    /// Does what the policy decided, in the order of [`Decided`]. Returns the groups whose append
    /// failed.
    pub fn coordinate(&self, decided: Decided) -> Result<Vec<String>, WrongReply> {
        let Decided { records, fences, replies } = decided;
        let letters = self.encode(replies)?;
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
        for (_, group_id, _) in &letters {
            if group_id.is_empty() || places.contains_key(group_id) || failed.contains(group_id) {
                continue;
            }
            match self.append_group_records(group_id, &[]) {
                Ok(at) => drop(places.insert(group_id.clone(), at)),
                Err(_) => drop(failed.insert(group_id.clone())),
            }
        }
        self.publish(fences, &failed);
        let mut of_none = Vec::new();
        let mut by_group: HashMap<String, Vec<Letter>> = HashMap::new();
        for (ticket, group_id, letter) in letters {
            if failed.contains(&group_id) || self.tickets.close(ticket).is_none() {
                continue;
            }
            match group_id.is_empty() {
                true => of_none.push(letter),
                false => by_group.entry(group_id).or_default().push(letter),
            }
        }
        for (group_id, letters) in by_group {
            if let Some(at) = places.get(&group_id) {
                self.send_after(at, letters);
            }
        }
        self.send_after_all(&appended, of_none);
        Ok(failed.into_iter().collect())
    }

    /// In how many milliseconds some member's time may be up; `None`: nobody's runs.
    pub fn session_due_ms(&self) -> Option<u64> {
        let deadline_ms = self.groups.fences.next_deadline()?;
        let wait_ms = deadline_ms.saturating_sub(self.clock.monotonic_ms());
        Some(u64::try_from(wait_ms).unwrap_or(0))
    }

    /// The members whose time is up, as events for the policy.
    pub fn expire_sessions(&self) -> Vec<Event> {
        let expired = self.groups.fences.expired(self.clock.monotonic_ms());
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

    /// Encodes the replies to clients that are still there.
    fn encode(
        &self,
        replies: Vec<(Ticket, Value, String)>,
    ) -> Result<Vec<(Ticket, String, Letter)>, WrongReply> {
        let mut letters = Vec::with_capacity(replies.len());
        for (index, (ticket, response, group_id)) in replies.into_iter().enumerate() {
            let Some(Asked::Request { thread, parked, question }) = self.tickets.look(ticket)
            else {
                continue;
            };
            let output = question.reply(&response).map_err(|error| WrongReply { index, error })?;
            letters.push((ticket, group_id, Letter { thread, parked, output }));
        }
        Ok(letters)
    }

    /// Lets the rows hold, one after the other, but for groups whose append failed.
    fn publish(&self, fences: Vec<(String, Option<FenceRow>)>, failed: &HashSet<String>) {
        let now_ms = self.clock.monotonic_ms();
        for (group_id, row) in fences {
            if !failed.contains(&group_id) {
                self.groups.fences.publish(&group_id, row, now_ms);
            }
        }
    }

    fn send_after(&self, at: &AppendedAt, letters: Vec<Letter>) {
        let Some(mailbox) = self.mailbox.get().cloned() else { return };
        let action = move |outcome: Result<(), _>| send(&*mailbox, letters, outcome.is_err());
        self.when_committed(at, Box::new(action));
    }

    fn send_after_all(&self, all: &[AppendedAt], letters: Vec<Letter>) {
        let Some(mailbox) = self.mailbox.get() else { return };
        if all.is_empty() || letters.is_empty() {
            return send(&**mailbox, letters, false);
        }
        let gathered = Arc::new(Gathered {
            left: AtomicUsize::new(all.len()),
            letters: parking_lot::Mutex::new(letters),
        });
        for at in all {
            let (gathered, mailbox) = (Arc::clone(&gathered), Arc::clone(mailbox));
            let action = move |_: Result<(), _>| {
                if gathered.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    let letters = std::mem::take(&mut *gathered.letters.lock());
                    send(&*mailbox, letters, false);
                }
            };
            self.when_committed(at, Box::new(action));
        }
    }
}

fn send(mailbox: &dyn Mailbox<Wake>, letters: Vec<Letter>, lost: bool) {
    for Letter { thread, parked, output } in letters {
        let wake = if lost { Wake::Fail(parked) } else { Wake::Answer(parked, output) };
        mailbox.post(thread, wake);
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
