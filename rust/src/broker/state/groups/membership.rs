//! Whether a group's offsets may be deleted, and when they expire. Both depend on its members. The
//! rules are Kafka's.
//!
//! Threads: pure.

use std::sync::Arc;

use crate::broker::state::groups::offsets::StoredOffset;
use crate::broker::state::groups::published::PublishedGroup;
use crate::broker::state::groups::snapshot::GroupState;

/// The known members of a group.
#[derive(Debug)]
pub(crate) enum GroupMembership {
    /// The group never had members.
    Absent,
    /// The group's snapshot is expected.
    Expected,
    /// The group's snapshot.
    Known(Arc<PublishedGroup>),
}

impl GroupMembership {
    /// Whether the group never had members.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether offsets may be deleted: the group is empty, or it consists of consumers, whose
    /// subscriptions are known.
    pub(crate) fn may_delete_offsets(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Expected => false,
            Self::Known(snapshot) => {
                snapshot.state == GroupState::Empty || snapshot.protocol_type == "consumer"
            }
        }
    }

    /// Whether a member is known to subscribe to a topic.
    pub(crate) fn subscribes(&self, topic: &str) -> bool {
        let Self::Known(snapshot) = self else { return false };
        let named = |topics: &Vec<String>| topics.iter().any(|other| other == topic);
        snapshot.state != GroupState::Empty && snapshot.subscribed.as_ref().is_none_or(named)
    }

    /// Whether the group has no members.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Expected => false,
            Self::Known(snapshot) => snapshot.state == GroupState::Empty,
        }
    }

    /// Whether `retention_ms` have passed for an offset.
    pub(crate) fn expired(
        &self,
        (topic, stored): (&str, &StoredOffset),
        (now_ms, retention_ms): (i64, i64),
    ) -> bool {
        if matches!(self, Self::Expected) {
            return false;
        }
        if stored.expire_timestamp >= 0 {
            return now_ms >= stored.expire_timestamp && !self.subscribes(topic);
        }
        let since_ms = match self {
            Self::Known(snapshot) if snapshot.is_of_consumers() => {
                if self.subscribes(topic) {
                    return false;
                }
                stored.commit_timestamp
            }
            Self::Known(snapshot) if snapshot.state == GroupState::Empty => {
                snapshot.since_ms.max(stored.commit_timestamp)
            }
            Self::Known(snapshot)
                if snapshot.state != GroupState::Stable
                    || snapshot.protocol_type != "consumer"
                    || self.subscribes(topic) =>
            {
                return false;
            }
            _ => stored.commit_timestamp,
        };
        now_ms.saturating_sub(since_ms) >= retention_ms
    }
}
