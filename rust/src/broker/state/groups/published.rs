//! A published group: what requests are checked against.
//!
//! Invariant: each instance id maps to its member.
//! Threads: immutable but for the members' sessions, whose times are atomics.

use std::collections::HashMap;
use std::sync::Arc;

use crate::broker::state::groups::sessions::MemberSession;
use crate::broker::state::groups::snapshot::{GroupKind, GroupState, Role};
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
    pub(crate) members: HashMap<Arc<str>, Member>,
    pub(crate) instances: HashMap<String, Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) role: Role,
    pub(crate) session: Arc<MemberSession>,
    pub(crate) timed: bool,
    pub(crate) is_static: bool,
    /// As published. The session has the connection of the last request.
    pub(crate) connection: Option<u64>,
}

impl PublishedGroup {
    /// The classic member with this identity, or the error.
    pub(crate) fn member(&self, identity: &MemberIdentity<'_>) -> Result<&Member, ErrorCode> {
        if self.state == GroupState::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let member = self.named(identity)?;
        let generation = match member.role {
            Role::Classic => self.generation,
            Role::ClassicMember { generation, .. } => generation,
            Role::Consumer { .. } => return Err(ErrorCode::UnknownMemberId),
        };
        if identity.generation != generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        Ok(member)
    }

    /// The member with this id, if its instance id belongs to it.
    pub(crate) fn named(&self, identity: &MemberIdentity<'_>) -> Result<&Member, ErrorCode> {
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
