//! Group snapshots: the members of each group as the policy last published them. Heartbeats and
//! commits are checked against them without asking the policy.
//!
//! A new snapshot replaces the one before; the sessions of remaining members are kept. Between the
//! replay of a group and its first snapshot the group is *expected* and counts as being loaded. The
//! errors are those of Apache Kafka 3.9 (`validateHeartbeat`, `validateOffsetCommit`); for consumer
//! groups see `epochs`.
//! Invariant: each instance id maps to its member. A session is in one snapshot only.
//! Threads: shared. A check takes the lock for reading and writes atomics; publishing takes it for
//!     writing. Only the sessions' lock is taken under it.
//! Not promised: that a snapshot is the policy's newest state. It is the state that the log and the
//!     members have seen.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::broker::state::groups::membership::GroupMembership;
use crate::broker::state::groups::published::{Member, MemberIdentity, PublishedGroup};
use crate::broker::state::groups::sessions::{
    ExpiredMembers, MemberSession, MemberSessions, NewMember,
};
use crate::broker::state::groups::snapshot::{GroupSnapshot, GroupState, MemberSnapshot, Role};
use crate::protocol::ErrorCode;

/// All group snapshots.
#[derive(Debug, Default)]
pub(crate) struct GroupSnapshots {
    pub(crate) rows: RwLock<HashMap<Arc<str>, PublishedState>>,
    sessions: MemberSessions,
}

#[derive(Debug)]
pub(crate) enum PublishedState {
    /// It was replayed, and its snapshot is expected.
    Expected,
    Known(Arc<PublishedGroup>),
}

impl GroupSnapshots {
    /// Sets the grace period after a lost connection; negative: no limit.
    pub(crate) fn set_grace(&self, grace_ms: i64) {
        self.sessions.set_grace(grace_ms);
    }

    /// Checks a heartbeat. If it is valid, the member's session is extended and bound to
    /// `connection`.
    pub(crate) fn check_heartbeat(
        &self,
        identity: &MemberIdentity<'_>,
        connection: u64,
        now_ms: i64,
    ) -> ErrorCode {
        let rows = self.rows.read();
        let snapshot = match rows.get(identity.group_id) {
            Some(PublishedState::Known(snapshot)) => snapshot,
            // As Kafka: a group that is being loaded takes every heartbeat.
            Some(PublishedState::Expected) => return ErrorCode::None,
            None => return ErrorCode::UnknownMemberId,
        };
        match snapshot.member(identity) {
            Err(error) => error,
            Ok(member) => {
                self.heard(&member.session, connection, now_ms);
                match member.role {
                    Role::ClassicMember { rejoin: true, .. } => ErrorCode::RebalanceInProgress,
                    _ if snapshot.state == GroupState::PreparingRebalance => {
                        ErrorCode::RebalanceInProgress
                    }
                    _ => ErrorCode::None,
                }
            }
        }
    }

    /// Whether this member may commit by a request of this version. If so, its session is extended.
    /// A client without generation and member id may commit while the group has no members.
    pub(crate) fn check_commit(
        &self,
        identity: &MemberIdentity<'_>,
        version: i16,
        now_ms: i64,
    ) -> ErrorCode {
        let rows = self.rows.read();
        let snapshot = match rows.get(identity.group_id) {
            Some(PublishedState::Known(snapshot)) => snapshot,
            Some(PublishedState::Expected) => return ErrorCode::CoordinatorLoadInProgress,
            None if identity.generation < 0 => return ErrorCode::None,
            None => return ErrorCode::IllegalGeneration,
        };
        if snapshot.state == GroupState::Dead {
            return ErrorCode::CoordinatorNotAvailable;
        }
        if snapshot.is_of_consumers() {
            return snapshot.check_epoch_of_commit(identity, version);
        }
        if identity.generation < 0 && snapshot.state == GroupState::Empty {
            return ErrorCode::None;
        }
        if identity.generation < 0
            && identity.member_id.is_empty()
            && identity.instance_id.is_none()
        {
            return ErrorCode::UnknownMemberId;
        }
        match snapshot.member(identity) {
            Err(error) => error,
            Ok(_) if snapshot.state == GroupState::CompletingRebalance => {
                ErrorCode::RebalanceInProgress
            }
            Ok(member) => {
                member.session.refresh(now_ms);
                ErrorCode::None
            }
        }
    }

    /// Extends the session of a member whose request the policy decides.
    pub(crate) fn touch(&self, identity: &MemberIdentity<'_>, connection: u64, now_ms: i64) {
        if let Some(PublishedState::Known(snapshot)) = self.rows.read().get(identity.group_id)
            && let Some(member) = snapshot.members.get(identity.member_id)
        {
            self.heard(&member.session, connection, now_ms);
        }
    }

    /// Extends the session of a consumer group's member.
    #[inline]
    pub(crate) fn heard_of(&self, member: &Member, connection: u64, now_ms: i64) {
        self.heard(&member.session, connection, now_ms);
    }

    #[inline]
    fn heard(&self, session: &Arc<MemberSession>, connection: u64, now_ms: i64) {
        session.refresh(now_ms);
        if session.is_elsewhere(connection) {
            self.sessions.opened(connection);
            self.sessions.speaks(session, connection, now_ms);
        }
    }

    /// Registers a connection before its first group request. [`GroupSnapshots::closed`] removes
    /// it.
    pub(crate) fn opened(&self, connection: u64) {
        self.sessions.opened(connection);
    }

    /// Handles a closed connection. True: a deadline moved forward.
    pub(crate) fn closed(&self, connection: u64, now_ms: i64) -> bool {
        self.sessions.closed(connection, now_ms)
    }

    /// The next deadline of a session.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.sessions.next_deadline()
    }

    /// Removes the members whose sessions have expired. Each is returned once, unless it is
    /// published again.
    pub(crate) fn expired(&self, now_ms: i64) -> ExpiredMembers {
        self.sessions.expired(now_ms)
    }

    /// Marks a replayed group as expected: the policy will publish it.
    pub(crate) fn expect(&self, group_id: &str) {
        let old = self.rows.write().insert(Arc::from(group_id), PublishedState::Expected);
        self.forget(old, None);
    }

    /// Publishes a group's snapshot; `None` removes the group.
    pub(crate) fn publish(&self, group_id: &str, row: Option<GroupSnapshot>, now_ms: i64) {
        let mut rows = self.rows.write();
        let Some(row) = row else {
            let old = rows.remove(group_id);
            return self.forget(old, None);
        };
        let name = rows.get_key_value(group_id).map(|(name, _)| Arc::clone(name));
        let name = name.unwrap_or_else(|| Arc::from(group_id));
        let before = match rows.get(group_id) {
            Some(PublishedState::Known(snapshot)) => Some(Arc::clone(snapshot)),
            _ => None,
        };
        let snapshot = Arc::new(self.build((&name, row), before.as_deref(), now_ms));
        let old = rows.insert(name, PublishedState::Known(Arc::clone(&snapshot)));
        self.forget(old, Some(&snapshot));
    }

    /// The snapshot of a group.
    pub(crate) fn of(&self, group_id: &str) -> Option<Arc<PublishedGroup>> {
        match self.rows.read().get(group_id) {
            Some(PublishedState::Known(snapshot)) => Some(Arc::clone(snapshot)),
            _ => None,
        }
    }

    /// The known members of a group.
    pub(crate) fn standing(&self, group_id: &str) -> GroupMembership {
        match self.rows.read().get(group_id) {
            None => GroupMembership::Absent,
            Some(PublishedState::Expected) => GroupMembership::Expected,
            Some(PublishedState::Known(snapshot)) => GroupMembership::Known(Arc::clone(snapshot)),
        }
    }

    /// All groups with a snapshot.
    pub(crate) fn groups(&self) -> Vec<Arc<str>> {
        self.rows.read().keys().cloned().collect()
    }

    /// The groups without members.
    pub(crate) fn idle(&self) -> Vec<String> {
        let rows = self.rows.read();
        let is_empty = |row: &PublishedState| match row {
            PublishedState::Known(group) => group.state == GroupState::Empty,
            PublishedState::Expected => false,
        };
        rows.iter().filter(|(_, row)| is_empty(row)).map(|(name, _)| name.to_string()).collect()
    }

    fn build(
        &self,
        (name, row): (&Arc<str>, GroupSnapshot),
        before: Option<&PublishedGroup>,
        now_ms: i64,
    ) -> PublishedGroup {
        let mut members = HashMap::with_capacity(row.members.len());
        let mut instances = HashMap::new();
        for member in row.members {
            let old = before.and_then(|snapshot| snapshot.members.get(member.member_id.as_str()));
            let is_static = member.instance_id.is_some();
            let old = old.filter(|old| old.is_static == is_static);
            let session = match old {
                Some(old) => Arc::clone(&old.session),
                None => self.sessions.add(NewMember {
                    group_id: Arc::clone(name),
                    member_id: Arc::from(member.member_id),
                    is_static,
                }),
            };
            if member.timed && !old.is_some_and(|old| old.timed) {
                session.refresh_time(now_ms);
            }
            self.sessions.time(&session, member.timed.then_some(member.session_timeout_ms));
            if let Some(connection) = member.connection
                && old.is_none_or(|old| old.connection != member.connection)
                && session.is_elsewhere(connection)
            {
                self.sessions.speaks(&session, connection, now_ms);
            }
            let member_id = Arc::clone(session.member_id());
            if let Some(instance_id) = member.instance_id {
                instances.insert(instance_id, Arc::clone(&member_id));
            }
            let MemberSnapshot { timed, connection, role, .. } = member;
            members.insert(member_id, Member { role, session, timed, is_static, connection });
        }
        let GroupSnapshot { kind, state, generation, protocol_type, since_ms, subscribed, .. } =
            row;
        PublishedGroup {
            kind,
            state,
            generation,
            protocol_type,
            since_ms,
            subscribed,
            members,
            instances,
        }
    }

    /// Ends the sessions that the next snapshot lacks.
    fn forget(&self, old: Option<PublishedState>, next: Option<&PublishedGroup>) {
        let Some(PublishedState::Known(old)) = old else { return };
        for (member_id, member) in &old.members {
            let stays = next.and_then(|next| next.members.get(member_id));
            if !stays.is_some_and(|stays| Arc::ptr_eq(&stays.session, &member.session)) {
                self.sessions.remove(&member.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::state::groups::snapshot::GroupKind;
    use GroupState::*;

    fn member(member_id: &str) -> MemberSnapshot {
        MemberSnapshot {
            member_id: member_id.into(),
            instance_id: None,
            session_timeout_ms: 1000,
            timed: true,
            ..MemberSnapshot::default()
        }
    }

    fn row(state: GroupState, members: Vec<MemberSnapshot>) -> Option<GroupSnapshot> {
        Some(GroupSnapshot {
            kind: GroupKind::Classic,
            state,
            generation: 7,
            protocol_type: "consumer".into(),
            since_ms: 0,
            subscribed: None,
            members,
        })
    }

    fn group(state: GroupState) -> GroupSnapshots {
        let snapshots = GroupSnapshots::default();
        let fixed = MemberSnapshot { instance_id: Some("i".into()), ..member("s") };
        let members = if state == Empty { vec![] } else { vec![member("m"), fixed] };
        snapshots.publish("g", row(state, members), 0);
        snapshots
    }

    fn identity(
        member_id: &'static str,
        instance_id: Option<&'static str>,
        generation: i32,
    ) -> MemberIdentity<'static> {
        MemberIdentity { group_id: "g", member_id, instance_id, generation }
    }

    #[test]
    fn a_heartbeat_is_answered_as_kafka_does() {
        for (state, wanted) in
            [(PreparingRebalance, 27), (CompletingRebalance, 0), (Stable, 0), (Dead, 15)]
        {
            let snapshots = group(state);
            let check =
                |identity: MemberIdentity<'_>| snapshots.check_heartbeat(&identity, 1, 0).code();
            assert_eq!(check(identity("m", None, 7)), wanted, "{state:?}");
            assert_eq!(check(identity("s", Some("i"), 7)), wanted, "{state:?}");
            if state != Dead {
                assert_eq!(check(identity("m", Some("i"), 7)), 82);
                assert_eq!(check(identity("m", Some("other"), 7)), 25);
                assert_eq!(check(identity("other", None, 7)), 25);
                assert_eq!(check(identity("m", None, 6)), 22);
                assert_eq!(check(identity("m", None, -1)), 22);
            }
            assert_eq!(check(MemberIdentity { group_id: "other", ..identity("m", None, 7) }), 25);
        }
        assert_eq!(group(Empty).check_heartbeat(&identity("m", None, 7), 1, 0).code(), 25);
    }

    #[test]
    fn a_commit_is_judged_as_kafka_does() {
        for (state, wanted) in
            [(PreparingRebalance, 0), (CompletingRebalance, 27), (Stable, 0), (Dead, 15)]
        {
            let snapshots = group(state);
            let check =
                |identity: MemberIdentity<'_>| snapshots.check_commit(&identity, 8, 0).code();
            assert_eq!(check(identity("m", None, 7)), wanted, "{state:?}");
            if state != Dead {
                assert_eq!(check(identity("m", Some("i"), 7)), 82);
                assert_eq!(check(identity("other", None, 7)), 25);
                assert_eq!(check(identity("m", None, 8)), 22);
                assert_eq!(check(identity("m", None, -1)), 22);
                assert_eq!(check(identity("", None, -1)), 25, "it has members");
            }
        }
        let snapshots = group(Empty);
        assert_eq!(snapshots.check_commit(&identity("", None, -1), 8, 0).code(), 0);
        assert_eq!(snapshots.check_commit(&identity("m", None, 7), 8, 0).code(), 25);
        let elsewhere =
            |generation| MemberIdentity { group_id: "other", ..identity("", None, generation) };
        assert_eq!(snapshots.check_commit(&elsewhere(-1), 8, 0).code(), 0);
        assert_eq!(snapshots.check_commit(&elsewhere(1), 8, 0).code(), 22);
    }

    #[test]
    fn a_replayed_group_is_loading_until_it_is_published() {
        let snapshots = group(Stable);
        snapshots.expect("g");
        assert!(snapshots.of("g").is_none());
        assert_eq!(snapshots.next_deadline(), None, "sessions wait for the policy too");
        assert_eq!(snapshots.check_heartbeat(&identity("m", None, 7), 1, 0).code(), 0);
        assert_eq!(snapshots.check_commit(&identity("m", None, 7), 8, 0).code(), 14);
        snapshots.publish("g", row(Stable, vec![member("m")]), 0);
        assert_eq!(snapshots.check_commit(&identity("m", None, 7), 8, 0).code(), 0);
        snapshots.expect("g");
        snapshots.publish("g", None, 0);
        assert_eq!(snapshots.check_heartbeat(&identity("m", None, 7), 1, 0).code(), 25);
    }

    #[test]
    fn who_stays_keeps_its_session_and_who_comes_begins_one() {
        let snapshots = group(Stable);
        snapshots.check_heartbeat(&identity("m", None, 7), 1, 500);
        snapshots.publish("g", row(Stable, vec![member("m"), member("n")]), 900);
        let expired = |now_ms| {
            let groups = snapshots.expired(now_ms);
            groups.into_iter().flat_map(|(_, m)| m).map(|id| id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(expired(1499), [""; 0], "s is gone, m was heard of at 500");
        assert_eq!(expired(1500), ["m"]);
        assert_eq!(expired(1900), ["n"]);
    }

    #[test]
    fn a_session_does_not_run_while_the_join_waits() {
        let snapshots = GroupSnapshots::default();
        let waits = |timed| row(PreparingRebalance, vec![MemberSnapshot { timed, ..member("m") }]);
        snapshots.publish("g", waits(false), 0);
        assert!(snapshots.expired(100_000).is_empty());
        snapshots.publish("g", waits(true), 100_000);
        assert!(snapshots.expired(100_999).is_empty(), "it begins when it is timed");
        assert_eq!(snapshots.expired(101_000).len(), 1);
    }

    #[test]
    fn a_member_whose_connection_closed_before_it_was_published_has_its_grace() {
        let snapshots = GroupSnapshots::default();
        snapshots.set_grace(500);
        snapshots.opened(1);
        snapshots.opened(2);
        assert!(!snapshots.closed(1, 0));
        let joined = |connection| MemberSnapshot { connection: Some(connection), ..member("m") };
        snapshots.publish("g", row(Stable, vec![joined(1)]), 100);
        assert_eq!(snapshots.next_deadline(), Some(600));
        snapshots.check_heartbeat(&identity("m", None, 7), 2, 200);
        snapshots.publish("g", row(Stable, vec![joined(1)]), 300);
        assert!(snapshots.expired(600).is_empty(), "it speaks through 2 now");
        assert_eq!(snapshots.next_deadline(), Some(1200));
        assert!(snapshots.closed(2, 601));
        assert_eq!(snapshots.expired(1101).len(), 1);
    }
}
