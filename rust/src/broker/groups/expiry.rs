//! Which offsets have lived long enough: Kafka's rules of `offsets.retention.minutes`, applied in
//! rounds of `offsets.retention.check.interval.ms`, and tombstones for those that go.
//!
//! ```text
//! the group                 an offset's time runs
//! has no membership         from its commit
//! is Empty                  from when the group became empty, or its commit where that is later
//! is Stable, of consumers   from its commit, if no member subscribes to the topic
//! is of KIP-848             from its commit, if no member subscribes to the topic
//! else                      not at all
//! ```
//! An offset with an expiry of its own goes by that alone. A group that is empty and has no offset
//! left is named to the policy (`OffsetsExpired`). Offsets of topics that are deleted go at once.
//! Threads: the keeper, and whoever applies a delta; a shard's lock is held for one partition.
//! Not promised: that an offset goes before the round after its time.

use std::sync::Arc;

use super::super::Broker;
use super::super::partition::Wakes;
use super::super::policy::Event;
use super::fences::{Fence, FenceState, Fences};
use super::log::{Shard, State};
use super::offsets::{Key, Stored};
use super::records::Pen;
use crate::protocol::value::Value;

/// What is known of a group's members.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It never had any.
    Absent,
    /// Its row is on the way.
    Expected,
    /// Its row.
    Known(Arc<Fence>),
}

impl Standing {
    /// Whether no member was ever heard of.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether offsets may be deleted: the group is empty, or of consumers, whose subscriptions
    /// say which.
    pub(crate) fn lets_offsets_go(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Expected => false,
            Self::Known(fence) => {
                fence.state == FenceState::Empty || fence.protocol_type == "consumer"
            }
        }
    }

    /// Whether a member subscribes to a topic, as far as is known.
    pub(crate) fn subscribes(&self, topic: &str) -> bool {
        let Self::Known(fence) = self else { return false };
        let named = |topics: &Vec<String>| topics.iter().any(|other| other == topic);
        fence.state != FenceState::Empty && fence.subscribed.as_ref().is_none_or(named)
    }

    /// Whether the group has no members.
    fn is_empty(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Expected => false,
            Self::Known(fence) => fence.state == FenceState::Empty,
        }
    }

    /// Whether an offset has lived `retention_ms` by now.
    fn expired(
        &self,
        (topic, stored): (&str, &Stored),
        (now_ms, retention_ms): (i64, i64),
    ) -> bool {
        if matches!(self, Self::Expected) {
            return false;
        }
        if stored.expire_timestamp >= 0 {
            return now_ms >= stored.expire_timestamp && !self.subscribes(topic);
        }
        let since_ms = match self {
            Self::Known(fence) if fence.is_of_consumers() => {
                if self.subscribes(topic) {
                    return false;
                }
                stored.commit_timestamp
            }
            Self::Known(fence) if fence.state == FenceState::Empty => {
                fence.since_ms.max(stored.commit_timestamp)
            }
            Self::Known(fence)
                if fence.state != FenceState::Stable
                    || fence.protocol_type != "consumer"
                    || self.subscribes(topic) =>
            {
                return false;
            }
            _ => stored.commit_timestamp,
        };
        now_ms.saturating_sub(since_ms) >= retention_ms
    }
}

impl Broker {
    /// A round: tombstones for all offsets whose time is up.
    pub fn expire_offsets(&self) {
        let now_ms = self.clock.wall_ms();
        let times = (now_ms, self.settings.load().offsets_retention_ms);
        let idle = self.groups.fences.idle();
        for shard in self.groups.ready() {
            let Ok(mut state) = shard.lock() else { continue };
            let keys = due(&state, &self.groups.fences, times);
            let gone = shard.forget(&mut state, keys, now_ms);
            let mut empty: Vec<&str> =
                gone.iter().map(|group| &**group).filter(|it| self.is_empty(it)).collect();
            let here = |group: &&String| self.groups.is_of(&shard, group);
            let bare = idle.iter().filter(here).filter(|it| state.offsets.of(it).is_none());
            empty.extend(bare.map(String::as_str));
            empty.sort_unstable();
            empty.dedup();
            for group in empty {
                let group_id = Value::Str(group.to_owned());
                let fields = vec![("group_id".into(), group_id)];
                self.policy.submit(Event::internal("OffsetsExpired", Value::Map(fields)));
            }
            drop(state);
            shard.partition().advance(&mut Wakes { here: None, mailbox: self });
        }
    }

    fn is_empty(&self, group: &str) -> bool {
        self.groups.fences.standing(group).is_empty()
    }

    /// Tombstones for the offsets of topics that are gone.
    pub(crate) fn forget_topics(&self, topics: &[Arc<str>]) {
        let now_ms = self.clock.wall_ms();
        for shard in self.groups.ready().iter().filter(|_| !topics.is_empty()) {
            let Ok(mut state) = shard.lock() else { continue };
            let mut keys = Vec::new();
            for (group, offsets) in &state.offsets.groups {
                for topic in topics {
                    let partitions = offsets.topics.get(topic).into_iter().flatten();
                    keys.extend(
                        partitions.map(|(at, _)| (Arc::clone(group), Arc::clone(topic), *at)),
                    );
                }
            }
            shard.forget(&mut state, keys, now_ms);
            drop(state);
            shard.partition().advance(&mut Wakes { here: None, mailbox: self });
        }
    }
}

/// The offsets of a shard whose time is up.
fn due(state: &State, fences: &Fences, times: (i64, i64)) -> Vec<Key> {
    let mut keys = Vec::new();
    for (group, offsets) in &state.offsets.groups {
        let standing = fences.standing(group);
        for (topic, partitions) in offsets.topics() {
            let due = partitions.iter().filter(|(_, it)| standing.expired((topic, it), times));
            keys.extend(due.map(|(at, _)| (Arc::clone(group), Arc::clone(topic), *at)));
        }
    }
    keys
}

impl Shard {
    /// Tombstones for `keys`, as far as they can be appended. Returns the groups without offsets.
    fn forget(&self, state: &mut State, keys: Vec<Key>, now_ms: i64) -> Vec<Arc<str>> {
        if keys.is_empty() {
            return Vec::new();
        }
        let mut groups: Vec<Arc<str>> = keys.iter().map(|key| Arc::clone(&key.0)).collect();
        let mut pen = Pen::default();
        pen.begin(now_ms);
        let outcome = self.bury(state, &mut pen, (keys, now_ms)).and_then(|rest| {
            if !pen.is_empty() {
                self.append(state, &mut pen, now_ms)?;
            }
            state.offsets.remove_all(&rest);
            Ok(())
        });
        if let Err(error) = outcome {
            let partition = &self.partition().name;
            tracing::warn!(%partition, "tombstones of offsets: {}", error.name());
        }
        groups.dedup();
        groups.retain(|group| state.offsets.of(group).is_none());
        groups
    }
}
