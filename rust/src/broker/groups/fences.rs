//! Who may commit offsets and heartbeat: rows that the policy publishes, one per group.

use std::sync::Arc;

use crate::protocol::ErrorCode;

/// All rows.
#[derive(Debug, Default)]
pub(crate) struct Fences {}

/// What the policy last said of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fence {
    /// Empty, PreparingRebalance, CompletingRebalance, Stable or Dead.
    pub(crate) state: String,
    /// `consumer`, or another; empty where no member ever joined.
    pub(crate) protocol_type: String,
    /// When it entered the state, wall clock.
    pub(crate) since_ms: i64,
    /// The topics that any member subscribes to; `None`: unknown.
    pub(crate) subscribed: Option<Vec<String>>,
}

impl Fences {
    /// Whether this member may commit; its session begins anew then.
    pub(crate) fn check_commit(
        &self,
        _group_id: &str,
        member_id: &str,
        _instance_id: Option<&str>,
        generation: i32,
        _now_ms: i64,
    ) -> ErrorCode {
        match (generation, member_id) {
            (..0, "") => ErrorCode::None,
            (..0, _) => ErrorCode::UnknownMemberId,
            _ => ErrorCode::IllegalGeneration,
        }
    }

    /// The group was replayed, and is the policy's to publish.
    pub(crate) fn expect(&self, _group_id: &str) {}

    /// The row of a group.
    pub(crate) fn of(&self, _group_id: &str) -> Option<Arc<Fence>> {
        None
    }
}
