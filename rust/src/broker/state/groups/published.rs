//! A published group. Requests are checked against it.
//!
//! Invariant: each instance id maps to its member.
//! Threads: immutable, except for the members' sessions, whose times are atomics.
//! Memory: a snapshot shares the members that did not change with the one before it.

use std::sync::Arc;

use crate::broker::state::groups::sessions::MemberSession;
use crate::broker::state::groups::shared_map::SharedMap;
use crate::broker::state::groups::snapshot::{GroupKind, GroupState, MemberRole, MemberSnapshot};
use crate::protocol::ErrorCode;

/// The member that a request claims to come from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberIdentity<'a> {
    pub(crate) group_id: &'a str,
    pub(crate) member_id: &'a str,
    pub(crate) instance_id: Option<&'a str>,
    pub(crate) generation: i32,
}

/// A group snapshot with its sessions.
#[derive(Debug)]
pub(crate) struct PublishedGroup {
    pub(crate) kind: GroupKind,
    pub(crate) state: GroupState,
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) since_ms: i64,
    pub(crate) subscribed: Option<Vec<String>>,
    pub(crate) members: SharedMap<PublishedMember>,
    /// The member of each instance id.
    pub(crate) instances: SharedMap<Arc<str>>,
}

/// A member as it was published.
#[derive(Clone, Debug)]
pub(crate) struct PublishedMember {
    pub(crate) role: MemberRole,
    pub(crate) session: Arc<MemberSession>,
    pub(crate) session_timeout_ms: i64,
    pub(crate) timed: bool,
    pub(crate) instance_id: Option<Arc<str>>,
    /// The session has the connection of the last request.
    pub(crate) connection: Option<u64>,
}

impl PublishedMember {
    /// Whether nothing changed since it was published.
    pub(crate) fn is(&self, snapshot: &MemberSnapshot) -> bool {
        self.role == snapshot.role
            && self.timed == snapshot.timed
            && self.session_timeout_ms == snapshot.session_timeout_ms
            && self.connection == snapshot.connection
            && self.instance_id.as_deref() == snapshot.instance_id.as_deref()
    }
}

impl PublishedGroup {
    /// The classic member with this identity, or the error.
    pub(crate) fn member(
        &self,
        identity: &MemberIdentity<'_>,
    ) -> Result<&PublishedMember, ErrorCode> {
        if self.state == GroupState::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let member = self.named(identity)?;
        let generation = match member.role {
            MemberRole::Classic => self.generation,
            MemberRole::ClassicMember { generation, .. } => generation,
            MemberRole::Consumer { .. } => return Err(ErrorCode::UnknownMemberId),
        };
        if identity.generation != generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        Ok(member)
    }

    /// The member with this id, if its instance id belongs to it.
    pub(crate) fn named(
        &self,
        identity: &MemberIdentity<'_>,
    ) -> Result<&PublishedMember, ErrorCode> {
        if let Some(instance_id) = identity.instance_id {
            match self.instances.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(member_id) if **member_id != *identity.member_id => {
                    return Err(ErrorCode::FencedInstanceId);
                }
                Some(_) => {}
            }
        }
        self.members.get(identity.member_id).ok_or(ErrorCode::UnknownMemberId)
    }
}
