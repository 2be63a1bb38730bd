//! The partitions that one thread fetches, and which of them may have something to ask its leader.
//!
//! ```text
//! fetched --the leader must be asked later, or it is throttled--> waits --time--> fetched
//! fetched --has a question--> asked by the thread --answered--> fetched
//! any --stopped, or another assignment--> gone
//! ```
//! A Fetch is made of what changed: each partition remembers how the leader's session knows it, and
//! the table lists those that may differ by now. So an idle thread looks at no partition.
//! Invariants: a partition that waits is in no session; the list names each partition once; a slot
//!     is used again only when nothing names it any more.
//! Threads: one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::broker::replica::follower::FollowerRequest;
use crate::broker::{Partition, Waker};
use crate::ids::{Epoch, TopicId};
use crate::storage::StorageError;

/// How often all partitions are checked for a log start that moved by itself.
const SWEEP: Duration = Duration::from_millis(500);
/// The first pause after the leader refused a partition. It doubles with each refusal.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// After so many refusals in a row the log says so.
const REFUSALS_LOGGED: u32 = 10;

/// Topic id, topic and partition: what a leader's session calls a partition.
pub(super) type SessionKey = (TopicId, Arc<str>, i32);

/// Questions to the leader that are no Fetch, by slot.
pub(super) type Questions = HashMap<usize, FollowerRequest>;

/// A partition that is fetched.
pub(super) struct FetchedPartition {
    pub partition: Arc<Partition>,
    pub leader_epoch: Epoch,
    /// What the leader's session has of it, or is about to have.
    pub in_session: Option<FollowerRequest>,
    /// What it wants to ask now.
    wanted: Option<FollowerRequest>,
    retry_at: Option<Instant>,
    refusals: u32,
    is_listed: bool,
}

impl FetchedPartition {
    /// Whether the last answer could not be carried out, or the leader refused to answer.
    pub fn is_refused(&self) -> bool {
        self.refusals > 0
    }
}

/// What the next Fetch says of partitions.
#[derive(Debug, Default)]
pub(super) struct SessionChanges {
    /// The slots of partitions that are new or have another offset.
    pub send: Vec<usize>,
    /// Partitions that the leader shall forget.
    pub forget: Vec<SessionKey>,
}

/// See the module.
pub(super) struct PartitionTable {
    slots: Vec<Option<FetchedPartition>>,
    free: Vec<usize>,
    topics: HashMap<Arc<str>, HashMap<i32, usize>>,
    ids: HashMap<(TopicId, i32), usize>,
    /// Slots whose partition may have something to ask its leader.
    listed: Vec<usize>,
    waiting: BTreeSet<(Instant, usize)>,
    /// Partitions that left the table while the leader's session had them.
    gone: Vec<SessionKey>,
    without_id: usize,
    /// How many partitions the leader's session has.
    session_size: usize,
    swept_at: Instant,
    /// The slot that a full request begins with.
    first: usize,
}

impl PartitionTable {
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            topics: HashMap::new(),
            ids: HashMap::new(),
            listed: Vec::new(),
            waiting: BTreeSet::new(),
            gone: Vec::new(),
            without_id: 0,
            session_size: 0,
            swept_at: Instant::now(),
            first: 0,
        }
    }

    /// Whether every topic has an id.
    pub fn has_ids(&self) -> bool {
        self.without_id == 0
    }

    /// Whether there is no partition.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Begins to fetch a partition, or goes on in another leader epoch.
    pub fn begin(&mut self, partition: Arc<Partition>, leader_epoch: Epoch) {
        if let Some(slot) = self.slot_of(&partition.name.topic, partition.name.partition) {
            if let Some(fetched) = self.get_mut(slot)
                && Arc::ptr_eq(&fetched.partition, &partition)
            {
                fetched.leader_epoch = leader_epoch;
                self.accepted(slot);
                return;
            }
            self.remove(slot);
        }
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let (topic, number) = (Arc::clone(&partition.name.topic), partition.name.partition);
        match partition.topic_id {
            TopicId::ZERO => self.without_id += 1,
            id => drop(self.ids.insert((id, number), slot)),
        }
        self.topics.entry(topic).or_default().insert(number, slot);
        let fetched = FetchedPartition {
            partition,
            leader_epoch,
            in_session: None,
            wanted: None,
            retry_at: None,
            refusals: 0,
            is_listed: false,
        };
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(fetched),
            None => self.slots.push(Some(fetched)),
        }
        self.list(slot);
    }

    /// Ends to fetch a partition.
    pub fn end(&mut self, partition: &Arc<Partition>) {
        if let Some(slot) = self.slot_of(&partition.name.topic, partition.name.partition)
            && self.get(slot).is_some_and(|it| Arc::ptr_eq(&it.partition, partition))
        {
            self.remove(slot);
        }
    }

    /// The slot of a partition that an answer names by topic.
    pub fn slot_of(&self, topic: &str, partition: i32) -> Option<usize> {
        self.topics.get(topic)?.get(&partition).copied()
    }

    /// The slot of a partition that an answer names by topic id.
    pub fn slot_by_id(&self, id: TopicId, partition: i32) -> Option<usize> {
        self.ids.get(&(id, partition)).copied()
    }

    pub fn get(&self, slot: usize) -> Option<&FetchedPartition> {
        self.slots.get(slot)?.as_ref()
    }

    fn get_mut(&mut self, slot: usize) -> Option<&mut FetchedPartition> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// All partitions, with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &FetchedPartition)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, fetched)| Some((slot, fetched.as_ref()?)))
    }

    /// Takes a partition off the table.
    pub fn remove(&mut self, slot: usize) {
        let Some(fetched) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        let name = &fetched.partition.name;
        let id = fetched.partition.topic_id;
        if let Some(retry_at) = fetched.retry_at {
            self.waiting.remove(&(retry_at, slot));
        }
        if fetched.in_session.is_some() {
            self.session_size -= 1;
            self.gone.push((id, Arc::clone(&name.topic), name.partition));
        }
        self.without_id -= usize::from(id == TopicId::ZERO);
        self.ids.remove(&(id, name.partition));
        if let Some(partitions) = self.topics.get_mut(&name.topic) {
            partitions.remove(&name.partition);
            if partitions.is_empty() {
                self.topics.remove(&name.topic);
            }
        }
        if fetched.is_listed {
            self.listed.retain(|listed| *listed != slot);
        }
        self.free.push(slot);
    }

    /// The partition may have something to ask its leader.
    fn list(&mut self, slot: usize) {
        if let Some(fetched) = self.get_mut(slot)
            && !std::mem::replace(&mut fetched.is_listed, true)
        {
            self.listed.push(slot);
        }
    }

    /// The leader's answer for the partition was carried out.
    pub fn accepted(&mut self, slot: usize) {
        if let Some(fetched) = self.get_mut(slot) {
            fetched.refusals = 0;
            if let Some(retry_at) = fetched.retry_at.take() {
                self.waiting.remove(&(retry_at, slot));
            }
        }
        self.list(slot);
    }

    /// The partition is asked for later: after 20 ms, or twice as long as the last time, at most
    /// after `longest`.
    pub fn refused(&mut self, slot: usize, longest: Duration, why: &dyn std::fmt::Display) {
        let Some(fetched) = self.get_mut(slot) else { return };
        fetched.refusals = fetched.refusals.saturating_add(1);
        let name = &fetched.partition.name;
        if fetched.refusals == REFUSALS_LOGGED {
            tracing::warn!(partition = %name, "cannot be fetched from its leader: {why}");
        } else {
            tracing::debug!(partition = %name, "is fetched later: {why}");
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << (fetched.refusals - 1).min(16)).min(longest);
        let retry_at = Instant::now() + pause;
        if let Some(before) = fetched.retry_at.replace(retry_at) {
            self.waiting.remove(&(before, slot));
        }
        self.waiting.insert((retry_at, slot));
        self.list(slot);
    }

    /// When the next partition that waits is due.
    pub fn next_retry(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// The leader has no session any more, or another one is to replace it.
    pub fn reset_session(&mut self) {
        self.gone.clear();
        self.session_size = 0;
        for slot in 0..self.slots.len() {
            if let Some(fetched) = self.get_mut(slot) {
                fetched.in_session = None;
                self.list(slot);
            }
        }
    }

    /// Looks at the listed partitions, and returns the questions of those that ask
    /// something else than a Fetch, and the partitions whose log cannot be flushed.
    ///
    /// `throttled_until`: throttled partitions that lag are not fetched before.
    pub fn questions(
        &mut self,
        throttled_until: Option<Instant>,
        waker: &dyn Waker,
    ) -> (Questions, Vec<(usize, StorageError)>) {
        let now = Instant::now();
        while let Some((_, slot)) = self.waiting.first().copied().filter(|(at, _)| *at <= now) {
            self.waiting.pop_first();
            if let Some(fetched) = self.get_mut(slot) {
                fetched.retry_at = None;
            }
            self.list(slot);
        }
        self.sweep(now);
        if let Some(until) = throttled_until {
            self.throttle(until);
        }
        let (mut questions, mut failed, mut ended) = (Questions::new(), Vec::new(), Vec::new());
        for slot in &self.listed {
            let Some(fetched) = self.slots.get_mut(*slot).and_then(Option::as_mut) else {
                continue;
            };
            fetched.wanted = None;
            if fetched.retry_at.is_some() {
                continue;
            }
            match fetched.partition.follower_request(fetched.leader_epoch, waker) {
                Ok(None) => ended.push(*slot),
                Ok(Some(request @ FollowerRequest::Fetch { .. })) => fetched.wanted = Some(request),
                Ok(Some(question)) => drop(questions.insert(*slot, question)),
                Err(error) => failed.push((*slot, error)),
            }
        }
        ended.into_iter().for_each(|slot| self.remove(slot));
        (questions, failed)
    }

    /// Has throttled partitions that lag wait.
    fn throttle(&mut self, until: Instant) {
        for slot in 0..self.slots.len() {
            let Some(fetched) = self.get_mut(slot) else { continue };
            let partition = &fetched.partition;
            if fetched.retry_at.is_none() && partition.is_follower_throttled() && partition.lags() {
                fetched.retry_at = Some(until);
                self.waiting.insert((until, slot));
                self.list(slot);
            }
        }
    }

    /// Retention moves a log's start without the leader's doing. The leader is to know.
    fn sweep(&mut self, now: Instant) {
        if now < self.swept_at + SWEEP {
            return;
        }
        self.swept_at = now;
        for slot in 0..self.slots.len() {
            if let Some(fetched) = self.get(slot)
                && let Some(FollowerRequest::Fetch { log_start, .. }) = fetched.in_session
                && log_start != fetched.partition.log.log_start_offset()
            {
                self.list(slot);
            }
        }
    }

    /// What the next Fetch says, after [`PartitionTable::questions`] found none. The caller sends
    /// it, or resets the session.
    pub fn take_changes(&mut self, by_id: bool) -> SessionChanges {
        let mut changes = SessionChanges::default();
        for slot in std::mem::take(&mut self.listed) {
            let Some(fetched) = self.slots.get_mut(slot).and_then(Option::as_mut) else {
                continue;
            };
            fetched.is_listed = false;
            let wanted = fetched.wanted.take();
            if wanted == fetched.in_session {
                continue;
            }
            self.session_size += usize::from(fetched.in_session.is_none());
            if wanted.is_some() {
                changes.send.push(slot);
            } else {
                self.session_size -= 1;
                let name = &fetched.partition.name;
                let id = fetched.partition.topic_id;
                changes.forget.push((id, Arc::clone(&name.topic), name.partition));
            }
            fetched.in_session = wanted;
        }
        for key in std::mem::take(&mut self.gone) {
            let slot = match by_id {
                true => self.slot_by_id(key.0, key.2),
                false => self.slot_of(&key.1, key.2),
            };
            // The session calls the partition that took its place by the same name.
            let is_replaced = slot.and_then(|slot| self.get(slot)?.in_session).is_some();
            if !is_replaced {
                changes.forget.push(key);
            }
        }
        changes
    }

    /// Has a full request begin after this partition, whose records came last.
    pub fn begin_after(&mut self, slot: usize) {
        self.first = slot + 1;
    }

    /// Orders the slots of a full request, so that in the end each partition comes first.
    pub fn in_turn(&self, send: &mut [usize]) {
        send.sort_unstable();
        let turn = send.partition_point(|slot| *slot < self.first);
        send.rotate_left(turn);
    }

    /// Whether the leader's session has no partition.
    pub fn is_session_empty(&self) -> bool {
        self.session_size == 0
    }
}
