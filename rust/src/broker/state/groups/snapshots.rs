//! Group snapshots: the members of each group as the policy last published them. Heartbeats and
//! commits are checked against them without asking the policy.
//!
//! A new snapshot replaces the one before; the sessions of remaining members are kept. Between the
//! replay of a group and its first snapshot the group is *expected* and counts as being loaded. The
//! errors are those of Apache Kafka 3.9 (`validateHeartbeat`, `validateOffsetCommit`); for consumer
//! groups see `epochs`. A missing group is UNKNOWN_MEMBER_ID (25) for a heartbeat, and
//! ILLEGAL_GENERATION (22) for a commit with a generation. An expected group accepts heartbeats; a
//! commit gets COORDINATOR_LOAD_IN_PROGRESS (14). Whether this broker coordinates the group at all
//! is checked before (`handlers/group.rs`).
//! Invariant: a session is in one group only.
//! Threads: shared. A check reads an immutable snapshot. The thread that publishes builds the next
//!     one from the changes and swaps it in (`group_table`), so a check never waits for it. A check
//!     may extend a session that has just ended.
//! Not promised: that a snapshot is the policy's newest state. It is the state that is in the log
//!     and that members have received.

use std::sync::Arc;

use crate::broker::state::groups::group_table::GroupTable;
use crate::broker::state::groups::membership::GroupMembership;
use crate::broker::state::groups::next_members::{NextMembers, NextSource};
use crate::broker::state::groups::published::{MemberIdentity, PublishedGroup, PublishedMember};
use crate::broker::state::groups::sessions::{ExpiredMembers, MemberSession, MemberSessions};
use crate::broker::state::groups::snapshot::{GroupSnapshot, GroupState, MemberRole};
use crate::protocol::ErrorCode;

/// All group snapshots.
#[derive(Debug, Default)]
pub(crate) struct GroupSnapshots {
    pub(crate) groups: GroupTable,
    sessions: MemberSessions,
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
        let Some(newest) = self.groups.find(identity.group_id) else {
            return ErrorCode::UnknownMemberId;
        };
        // As in Kafka, a group that is being loaded accepts every heartbeat.
        let Some(snapshot) = &*newest else { return ErrorCode::None };
        match snapshot.member(identity) {
            Err(error) => error,
            Ok(member) => {
                self.refresh_session(&member.session, connection, now_ms);
                match member.role {
                    MemberRole::ClassicMember { rejoin: true, .. } => {
                        ErrorCode::RebalanceInProgress
                    }
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
        let newest = match self.groups.find(identity.group_id) {
            Some(newest) => newest,
            None if identity.generation < 0 => return ErrorCode::None,
            None => return ErrorCode::IllegalGeneration,
        };
        let Some(snapshot) = &*newest else { return ErrorCode::CoordinatorLoadInProgress };
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

    /// Whether a transaction may commit offsets of a group (KIP-447). A producer that claims no
    /// membership may, whatever the group's state.
    pub(crate) fn check_transactional_commit(&self, identity: &MemberIdentity<'_>) -> ErrorCode {
        let newest = match self.groups.find(identity.group_id) {
            Some(newest) => newest,
            None if identity.generation < 0 => return ErrorCode::None,
            None => return ErrorCode::IllegalGeneration,
        };
        let Some(snapshot) = &*newest else { return ErrorCode::CoordinatorLoadInProgress };
        if snapshot.state == GroupState::Dead {
            return ErrorCode::CoordinatorNotAvailable;
        }
        let is_empty = snapshot.state == GroupState::Empty;
        let is_named = !identity.member_id.is_empty() || identity.instance_id.is_some();
        if identity.generation < 0 && (is_empty || !is_named) {
            return ErrorCode::None;
        }
        if snapshot.is_of_consumers() {
            return match snapshot.check_epoch_of_commit(identity, i16::MAX) {
                ErrorCode::StaleMemberEpoch => ErrorCode::IllegalGeneration,
                code => code,
            };
        }
        snapshot.member(identity).map_or_else(|error| error, |_| ErrorCode::None)
    }

    /// Extends the session of a member whose request the policy decides.
    pub(crate) fn refresh_member_of(
        &self,
        identity: &MemberIdentity<'_>,
        connection: u64,
        now_ms: i64,
    ) {
        if let Some(snapshot) = self.of(identity.group_id)
            && let Some(member) = snapshot.members.get(identity.member_id)
        {
            self.refresh_session(&member.session, connection, now_ms);
        }
    }

    /// Extends the session of a consumer group's member.
    #[inline]
    pub(crate) fn refresh_member(&self, member: &PublishedMember, connection: u64, now_ms: i64) {
        self.refresh_session(&member.session, connection, now_ms);
    }

    #[inline]
    fn refresh_session(&self, session: &Arc<MemberSession>, connection: u64, now_ms: i64) {
        session.refresh(now_ms);
        if session.is_on_other_connection(connection) {
            self.sessions.bind_connection(session, connection, now_ms);
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
        let before = self.groups.change(group_id, |group| {
            let before = group.before();
            group.publish(None);
            before
        });
        self.end_all(before.as_deref());
    }

    /// Publishes a group's snapshot; `None` removes the group.
    pub(crate) fn publish(&self, group_id: &str, row: Option<GroupSnapshot>, now_ms: i64) {
        let Some(row) = row else {
            return self.end_all(self.groups.remove(group_id).as_deref());
        };
        let GroupSnapshot { kind, state, generation, protocol_type, .. } = row;
        let GroupSnapshot { since_ms, subscribed, members, .. } = row;
        let ended = self.groups.change(group_id, |group| {
            let before = group.before();
            let source = NextSource { group_id: group.name(), before: before.as_deref(), now_ms };
            let NextMembers { members, instances, ended } =
                source.members(&members, &self.sessions);
            group.publish(Some(Arc::new(PublishedGroup {
                kind,
                state,
                generation,
                protocol_type,
                since_ms,
                subscribed,
                members,
                instances,
            })));
            ended
        });
        ended.iter().for_each(|session| self.sessions.remove(session));
    }

    /// The snapshot of a group.
    pub(crate) fn of(&self, group_id: &str) -> Option<Arc<PublishedGroup>> {
        (*self.groups.find(group_id)?).clone()
    }

    /// The known members of a group.
    pub(crate) fn membership(&self, group_id: &str) -> GroupMembership {
        match self.groups.find(group_id).as_deref() {
            None => GroupMembership::Absent,
            Some(None) => GroupMembership::Expected,
            Some(Some(snapshot)) => GroupMembership::Known(Arc::clone(snapshot)),
        }
    }

    /// All groups, including those whose snapshots are expected.
    pub(crate) fn groups(&self) -> Vec<Arc<str>> {
        self.groups.names()
    }

    /// The groups without members.
    pub(crate) fn idle(&self) -> Vec<Arc<str>> {
        let mut names = self.groups.names();
        names.retain(|name| self.of(name).is_some_and(|group| group.state == GroupState::Empty));
        names
    }

    /// Ends the sessions of a group's last snapshot.
    fn end_all(&self, last: Option<&PublishedGroup>) {
        let members = last.into_iter().flat_map(|last| last.members.iter());
        members.for_each(|(_, member)| self.sessions.remove(&member.session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::state::groups::snapshot::{GroupKind, MemberSnapshot};
    use GroupState::*;
    use proptest::prelude::*;

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
        snapshots.opened(1);
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
    fn a_commit_is_validated_as_kafka_does() {
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
    fn a_member_that_stays_is_heard_while_snapshots_replace_each_other() {
        let snapshots = group(Stable);
        let fixed = || MemberSnapshot { instance_id: Some("i".into()), ..member("s") };
        std::thread::scope(|threads| {
            let publisher = threads.spawn(|| {
                for number in 0..2_000 {
                    let other = member(&format!("m{}", number % 7));
                    snapshots.publish("g", row(Stable, vec![other, fixed()]), 0);
                }
            });
            while !publisher.is_finished() {
                let code = snapshots.check_heartbeat(&identity("s", Some("i"), 7), 1, 0).code();
                assert_eq!(code, 0);
            }
        });
        assert_eq!(
            snapshots.expired(1000).iter().map(|(_, members)| members.len()).sum::<usize>(),
            2
        );
    }

    fn some_members() -> impl Strategy<Value = Vec<MemberSnapshot>> {
        let one = (any::<bool>(), 1..3i64, 0..3u64, 0..3i32);
        let all = prop::collection::vec(prop::option::of(one), 5);
        (all, Just(vec![None, None, Some("i"), Some("j"), Some("k")]).prop_shuffle()).prop_map(
            |(all, instances)| {
                let named = all.into_iter().zip(instances).enumerate();
                let some = named.filter_map(|(number, (one, instance_id))| {
                    let (timed, seconds, connection, generation) = one?;
                    Some(MemberSnapshot {
                        member_id: format!("m{number}"),
                        instance_id: instance_id.map(String::from),
                        session_timeout_ms: seconds * 1000,
                        timed,
                        connection: (connection > 0).then_some(connection),
                        role: MemberRole::ClassicMember { generation, rejoin: false },
                    })
                });
                some.collect()
            },
        )
    }

    /// What clients and the policy see of a group.
    fn seen(snapshots: &GroupSnapshots) -> (Vec<i16>, Vec<String>) {
        let mut codes = Vec::new();
        for member_id in ["m0", "m1", "m2", "m3", "m4"] {
            for instance_id in [None, Some("i"), Some("j"), Some("k")] {
                for generation in 0..3 {
                    let identity = identity(member_id, instance_id, generation);
                    codes.push(snapshots.check_commit(&identity, 9, 0).code());
                    codes.push(snapshots.check_heartbeat(&identity, 1, 0).code());
                }
            }
        }
        let expired = snapshots.expired(i64::MAX - 1);
        let mut expired: Vec<String> =
            expired.iter().flat_map(|(_, members)| members).map(|id| id.to_string()).collect();
        expired.sort_unstable();
        (codes, expired)
    }

    proptest! {
        #[test]
        fn a_snapshot_is_the_same_whatever_was_published_before(
            all in prop::collection::vec(some_members(), 1..6),
            expires in any::<bool>(),
        ) {
            let new = || {
                let snapshots = GroupSnapshots::default();
                snapshots.set_grace(-1);
                (1..3).for_each(|connection| snapshots.opened(connection));
                snapshots
            };
            let (one_by_one, at_once) = (new(), new());
            for members in &all {
                one_by_one.publish("g", row(Stable, members.clone()), 0);
                if expires {
                    one_by_one.expired(i64::MAX - 1);
                }
            }
            let last = all.last().cloned().unwrap_or_default();
            one_by_one.publish("g", row(Stable, last.clone()), 0);
            at_once.publish("g", row(Stable, last), 0);
            prop_assert_eq!(seen(&one_by_one), seen(&at_once));
            one_by_one.publish("g", None, 0);
            prop_assert_eq!(one_by_one.next_deadline(), None);
            prop_assert_eq!(one_by_one.groups().len(), 0);
        }
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
