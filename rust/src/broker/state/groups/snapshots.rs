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

use crate::broker::state::groups::offsets::StoredOffset;
use crate::broker::state::groups::sessions::{
    ExpiredMembers, MemberSession, MemberSessions, NewMember,
};
use crate::protocol::ErrorCode;

/// A group as the policy publishes it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSnapshot {
    /// Which protocol it follows.
    pub kind: GroupKind,
    /// The state of the group.
    pub state: GroupState,
    /// Its generation; of a consumer group its epoch.
    pub generation: i32,
    /// `consumer`, or another; empty where no member ever joined.
    pub protocol_type: String,
    /// When it entered the state, wall clock.
    pub since_ms: i64,
    /// The topics that any member subscribes to; `None`: unknown.
    pub subscribed: Option<Vec<String>>,
    /// Its members, including those whose join waits.
    pub members: Vec<MemberSnapshot>,
}

/// A member as the policy publishes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberSnapshot {
    /// Its name.
    pub member_id: String,
    /// The instance id of a static member.
    pub instance_id: Option<String>,
    /// Its session timeout.
    pub session_timeout_ms: i64,
    /// Whether its session is timed. It is not while its join waits.
    pub timed: bool,
    /// The connection it joined through.
    pub connection: Option<u64>,
    /// Its role in the protocol.
    pub role: Role,
}

/// The protocol of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupKind {
    /// Members join a generation together.
    #[default]
    Classic,
    /// Each member has an epoch (KIP-848).
    Consumer {
        /// The heartbeat interval.
        heartbeat_interval_ms: i32,
    },
}

/// A member's protocol, and its state as it was last sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A member of a classic group.
    #[default]
    Classic,
    /// A member of a consumer group.
    Consumer {
        /// Its epoch.
        epoch: i32,
        /// Whether it has no new assignment.
        quiet: bool,
    },
    /// A member of a consumer group that uses the classic protocol.
    ClassicMember {
        /// Its generation, which is its epoch.
        generation: i32,
        /// Whether it has to join again.
        rejoin: bool,
    },
}

/// The states of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// No members.
    Empty,
    /// Consumer groups: the target assignment is being computed.
    Assigning,
    /// Consumer groups: members are moving to the target assignment.
    Reconciling,
    /// Members are joining.
    PreparingRebalance,
    /// Classic groups: the leader is computing the assignment.
    CompletingRebalance,
    /// All members have their assignments.
    Stable,
    /// It is being deleted.
    Dead,
}

/// The member that a request claims to come from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberIdentity<'a> {
    pub(crate) group_id: &'a str,
    pub(crate) member_id: &'a str,
    pub(crate) instance_id: Option<&'a str>,
    pub(crate) generation: i32,
}

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

/// A group snapshot with its sessions.
#[derive(Debug)]
pub(crate) struct PublishedGroup {
    pub(crate) kind: GroupKind,
    pub(crate) state: GroupState,
    generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) since_ms: i64,
    pub(crate) subscribed: Option<Vec<String>>,
    pub(crate) members: HashMap<Arc<str>, Member>,
    instances: HashMap<String, Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) role: Role,
    session: Arc<MemberSession>,
    timed: bool,
    is_static: bool,
    /// As published. The session has the connection of the last request.
    connection: Option<u64>,
}

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

    /// Whether an offset has lived `retention_ms` by now.
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

impl GroupState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::Assigning,
        Self::Reconciling,
        Self::PreparingRebalance,
        Self::CompletingRebalance,
        Self::Stable,
        Self::Dead,
    ];

    /// Kafka's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }

    /// The state with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
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

impl PublishedGroup {
    /// The classic member with this identity, or the error.
    fn member(&self, identity: &MemberIdentity<'_>) -> Result<&Member, ErrorCode> {
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

#[cfg(test)]
mod tests {
    use super::*;
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
