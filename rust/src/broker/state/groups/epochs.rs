//! Checks requests of consumer groups (KIP-848) against their snapshots. Each member has its own
//! epoch. The errors are those of Apache Kafka 4.3 (`ConsumerGroup.validateOffsetCommit`,
//! `validateOffsetFetch`), except that an epoch below the member's is refused for each partition.
//!
//! In a group that is being converted some members still use the classic protocol. Their epoch is a
//! generation, and a wrong one is ILLEGAL_GENERATION (22) instead of STALE_MEMBER_EPOCH (113).
//! Threads: as in `snapshots`.

use crate::broker::state::groups::published::{MemberIdentity, PublishedGroup, PublishedMember};
use crate::broker::state::groups::snapshot::{GroupKind, MemberRole};
use crate::broker::state::groups::snapshots::GroupSnapshots;
use crate::protocol::ErrorCode;

/// The first version of OffsetCommit that has member epochs.
const EPOCHS_FROM: i16 = 9;

impl GroupSnapshots {
    /// Answers a heartbeat without changes: the heartbeat interval, if the member has no new
    /// assignment. Its session is extended then. `None`: the policy must be asked.
    pub(crate) fn check_unchanged(
        &self,
        identity: &MemberIdentity<'_>,
        connection: u64,
        now_ms: i64,
    ) -> Option<i32> {
        let newest = self.groups.find(identity.group_id)?;
        let snapshot = newest.as_ref()?;
        let GroupKind::Consumer { heartbeat_interval_ms } = snapshot.kind else { return None };
        let member = snapshot.named(identity).ok()?;
        match member.role {
            MemberRole::Consumer { epoch, has_current_assignment: true }
                if epoch == identity.generation && epoch > 0 => {}
            _ => return None,
        }
        self.refresh_member(member, connection, now_ms);
        Some(heartbeat_interval_ms)
    }

    /// Whether the sender may read the group's offsets: a member with its epoch, or a client that
    /// claims no membership.
    pub(crate) fn check_fetch(
        &self,
        group_id: &str,
        (member_id, epoch): (Option<&str>, i32),
    ) -> Result<(), ErrorCode> {
        if member_id.is_none() && epoch < 0 {
            return Ok(());
        }
        match self.groups.find(group_id).as_deref() {
            Some(None) => Err(ErrorCode::CoordinatorLoadInProgress),
            Some(Some(snapshot)) if snapshot.is_of_consumers() => {
                let member = member_id.and_then(|member_id| snapshot.members.get(member_id));
                member.ok_or(ErrorCode::UnknownMemberId)?.check_epoch(epoch)
            }
            _ => Ok(()),
        }
    }
}

impl PublishedGroup {
    /// Whether it is a consumer group.
    pub(crate) fn is_of_consumers(&self) -> bool {
        self.kind != GroupKind::Classic
    }

    /// Whether a commit by a request of this version is allowed.
    pub(crate) fn check_epoch_of_commit(
        &self,
        identity: &MemberIdentity<'_>,
        version: i16,
    ) -> ErrorCode {
        if identity.generation < 0 && self.members.is_empty() {
            return ErrorCode::None;
        }
        match self.members.get(identity.member_id) {
            None => ErrorCode::UnknownMemberId,
            Some(PublishedMember { role: MemberRole::Consumer { .. }, .. })
                if version < EPOCHS_FROM =>
            {
                ErrorCode::UnsupportedVersion
            }
            Some(member) => match member.check_epoch(identity.generation) {
                Ok(()) => ErrorCode::None,
                Err(error) => error,
            },
        }
    }
}

impl PublishedMember {
    fn check_epoch(&self, epoch: i32) -> Result<(), ErrorCode> {
        match self.role {
            MemberRole::Consumer { epoch: wanted, .. } if epoch != wanted => {
                Err(ErrorCode::StaleMemberEpoch)
            }
            MemberRole::ClassicMember { generation, .. } if epoch != generation => {
                Err(ErrorCode::IllegalGeneration)
            }
            _ => Ok(()),
        }
    }
}
