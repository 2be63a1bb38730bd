//! Appends to the logs of groups, and the policy's reads of them.
//!
//! Threads: the policy's. A shard's lock is held for one append, never for a replay.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::broker::lifecycle::groups::replay::GroupReplay;
use crate::broker::policy::Event;
use crate::broker::requests::apis::Api;
use crate::broker::requests::broker::Broker;
use crate::broker::state::coordinator::shard::{AppendedAt, CoordinatorState};
use crate::broker::state::groups::appending::GroupRecord;
use crate::broker::state::groups::shard::{GROUP_ID_MAX, GroupShard, GroupShardMemory};
use crate::broker::state::partition::CommitCallback;
use crate::broker::state::waking::Wakes;
use crate::protocol::ErrorCode;
use crate::protocol::value::Value;

impl Broker {
    /// The state of a group's shard.
    pub fn coordinator_state(&self, group_id: &str) -> CoordinatorState {
        self.groups.shards.state_of(group_id)
    }

    /// Appends the policy's records of a group as one batch. Without records it returns the log
    /// end of the group's partition, so that a reply can wait until its state is committed.
    ///
    /// Errors: nothing was appended. The group is replayed and passed to the policy again.
    pub fn append_group_records(
        &self,
        group_id: &str,
        records: &[GroupRecord],
    ) -> Result<AppendedAt, ErrorCode> {
        self.append_of_group(group_id, records)
    }

    /// Runs `action` once the high watermark has passed `at`: now, or on the thread that moves it.
    pub fn on_commit(&self, at: &AppendedAt, action: CommitCallback) {
        at.partition.on_commit((at.term, at.end), action);
    }
}

impl Broker {
    /// See [`Broker::append_group_records`].
    pub(crate) fn append_of_group(
        &self,
        group_id: &str,
        records: &[GroupRecord],
    ) -> Result<AppendedAt, ErrorCode> {
        let shard = self.groups.shards.of(group_id).ok_or(ErrorCode::NotCoordinator)?;
        let mut memory = shard.lock();
        let outcome = match shard.check_ready() {
            Ok(()) if group_id.len() > GROUP_ID_MAX => Err(ErrorCode::InvalidGroupId),
            Ok(()) => shard.write(&mut memory, (group_id, records), self.clock.wall_ms()),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            self.read_again(&shard, &mut memory, group_id);
        }
        drop(memory);
        if outcome.is_ok() && !records.is_empty() {
            shard.partition.advance(&mut Wakes { here: None, waker: self });
        }
        outcome
    }
}

impl Broker {
    /// Whether a group has committed anything.
    pub fn has_offsets(&self, group_id: &str) -> bool {
        let shard = self.groups.shards.of(group_id);
        shard.is_some_and(|shard| shard.lock().kept.has_offsets(group_id))
    }

    /// The groups that have committed something.
    pub fn groups_with_offsets(&self) -> Vec<String> {
        let mut groups: Vec<Arc<str>> = Vec::new();
        for shard in self.groups.shards.ready() {
            let memory = shard.lock();
            let (offsets, pending) = (&memory.kept.offsets, &memory.kept.pending);
            groups.extend(offsets.groups.keys().cloned());
            groups.extend(pending.groups().filter(|it| offsets.of(it).is_none()).cloned());
        }
        groups.iter().map(ToString::to_string).collect()
    }

    /// A group's lag: topic, partition, number of records. Only for partitions of `topics` on this
    /// broker with a committed offset.
    pub fn lags(&self, group_id: &str, topics: &[String]) -> Vec<(String, i32, i64)> {
        let image = self.image.load();
        let mut lags = Vec::new();
        let Some(shard) = self.groups.shards.of(group_id) else { return lags };
        let memory = shard.lock();
        let Some(offsets) = memory.kept.offsets.of(group_id) else { return lags };
        for name in topics {
            let Some(topic) = image.topic(name) else { continue };
            for (&index, stored) in offsets.topics.get(name.as_str()).into_iter().flatten() {
                if let Some(here) = topic.partition(index).and_then(|one| one.local.as_ref()) {
                    let end = here.log.high_watermark().0;
                    lags.push((name.clone(), index, end.saturating_sub(stored.offset).max(0)));
                }
            }
        }
        lags
    }

    /// Whether any partition is being replayed.
    pub fn groups_loading(&self) -> bool {
        self.groups.shards.is_loading()
    }

    /// Whether a request must wait: it concerns groups, and the groups are still being loaded after
    /// the start.
    pub(crate) fn waits_for_groups(&self, api: &Api) -> bool {
        let until_ms = self.groups.wait_until_ms.load(Ordering::Relaxed);
        if until_ms == 0 || !is_on_groups(api.key) {
            return false;
        }
        if self.clock.monotonic_ms() >= until_ms {
            self.groups.wait_until_ms.store(0, Ordering::Relaxed);
            return false;
        }
        self.groups_loading()
    }

    /// Reads groups again that the policy lost. `GroupsLoaded` names each of them, with null if the
    /// log has no record of it. `GroupsUnloaded` names those that another broker coordinates.
    pub fn reload_groups(&self, group_ids: &[String]) {
        let mut elsewhere = Vec::new();
        for group_id in group_ids {
            match self
                .groups
                .shards
                .of(group_id)
                .filter(|shard| shard.state() != CoordinatorState::NotHere)
            {
                Some(shard) => self.read_again(&shard, &mut shard.lock(), group_id),
                None => elsewhere.push(group_id.as_str()),
            }
        }
        self.unloaded(elsewhere.into_iter());
    }

    /// Sends the policy the event `GroupsUnloaded` for groups that are not on this broker or must
    /// be replayed.
    pub(crate) fn unloaded<'g>(&self, groups: impl ExactSizeIterator<Item = &'g str>) {
        if groups.len() > 0 {
            let names = groups.map(|group_id| Value::Str(group_id.to_owned())).collect();
            let fields = vec![("groups".into(), Value::List(names))];
            self.policy.submit(Event::internal("GroupsUnloaded", Value::Map(fields)));
        }
    }

    fn read_again(&self, shard: &Arc<GroupShard>, memory: &mut GroupShardMemory, group_id: &str) {
        if shard.state() == CoordinatorState::NotHere {
            return;
        }
        if !memory.kept.lost.iter().any(|lost| **lost == *group_id) {
            memory.kept.lost.push(group_id.into());
        }
        self.reload_shard::<GroupReplay>(shard, memory);
    }
}

/// Whether an API needs the offsets topic.
const fn is_on_groups(api_key: i16) -> bool {
    matches!(api_key, 8 | 9 | 11..=16 | 42 | 47 | 68 | 69)
}
