//! Builds the members of a group's next snapshot. Members that did not change are taken from the
//! snapshot before. Sessions begin and get their timeouts here.
//!
//! Invariant: the result is the same as without a snapshot before, except that the sessions of
//!     remaining members continue.
//! Threads: the one that publishes. No other thread sees the result before it is swapped in.

use std::collections::HashSet;
use std::sync::Arc;

use crate::broker::state::groups::published::{PublishedGroup, PublishedMember};
use crate::broker::state::groups::sessions::{MemberSession, MemberSessions, NewMember};
use crate::broker::state::groups::shared_map::SharedMap;
use crate::broker::state::groups::snapshot::MemberSnapshot;

/// The inputs for the next members.
pub(crate) struct NextSource<'s> {
    pub(crate) group_id: &'s Arc<str>,
    pub(crate) before: Option<&'s PublishedGroup>,
    pub(crate) now_ms: i64,
}

/// The members of the next snapshot.
pub(crate) struct NextMembers {
    pub(crate) members: SharedMap<PublishedMember>,
    pub(crate) instances: SharedMap<Arc<str>>,
    /// The sessions of the snapshot before that end.
    pub(crate) ended: Vec<Arc<MemberSession>>,
}

impl NextSource<'_> {
    /// The members of the next snapshot: the members before, with the changes.
    pub(crate) fn members(
        &self,
        rows: &[MemberSnapshot],
        sessions: &MemberSessions,
    ) -> NextMembers {
        let before = self.before;
        let (members, instances) = before
            .map(|before| (before.members.clone(), before.instances.clone()))
            .unwrap_or_default();
        let mut next = NextMembers { members, instances, ended: Vec::new() };
        let mut stay = 0;
        for row in rows {
            let old = before.and_then(|before| before.members.get_key_value(&row.member_id));
            stay += usize::from(old.is_some());
            if let Some((_, old)) = old.filter(|(_, old)| old.is(row)) {
                sessions.time_again(&old.session);
                continue;
            }
            let member_id = match old {
                Some((member_id, _)) => Arc::clone(member_id),
                None => Arc::from(row.member_id.as_str()),
            };
            let old = old.map(|(_, old)| old);
            next.put(self.member((&member_id, row), old, sessions), member_id);
        }
        if let Some(before) = before.filter(|before| before.members.len() > stay) {
            next.drop_absent(before, rows);
        }
        next
    }

    /// A member that is new or changed. Its session continues, unless it became static or ceased to
    /// be.
    fn member(
        &self,
        (member_id, row): (&Arc<str>, &MemberSnapshot),
        old: Option<&PublishedMember>,
        sessions: &MemberSessions,
    ) -> PublishedMember {
        let MemberSnapshot { session_timeout_ms, timed, connection, role, .. } = *row;
        let is_static = row.instance_id.is_some();
        let old = old.filter(|old| old.instance_id.is_some() == is_static);
        let session = match old {
            Some(old) => Arc::clone(&old.session),
            None => sessions.add(NewMember {
                group_id: Arc::clone(self.group_id),
                member_id: Arc::clone(member_id),
                is_static,
            }),
        };
        if timed && !old.is_some_and(|old| old.timed) {
            session.refresh_time(self.now_ms);
        }
        sessions.time(&session, timed.then_some(session_timeout_ms));
        if let Some(connection) = connection
            && old.is_none_or(|old| old.connection != Some(connection))
            && session.is_on_other_connection(connection)
        {
            sessions.bind_connection(&session, connection, self.now_ms);
        }
        let instance_id = row.instance_id.as_deref().map(Arc::from);
        PublishedMember { role, session, session_timeout_ms, timed, instance_id, connection }
    }
}

impl NextMembers {
    /// Removes the members that are not among `rows`.
    fn drop_absent(&mut self, before: &PublishedGroup, rows: &[MemberSnapshot]) {
        let names: HashSet<&str> = rows.iter().map(|row| row.member_id.as_str()).collect();
        for (member_id, member) in before.members.iter() {
            if !names.contains(&**member_id) {
                self.members.remove(member_id);
                self.give_up(member.instance_id.as_deref(), member_id);
                self.ended.push(Arc::clone(&member.session));
            }
        }
    }

    /// Puts a new or changed member.
    fn put(&mut self, member: PublishedMember, member_id: Arc<str>) {
        let instance_id = member.instance_id.clone();
        let session = Arc::clone(&member.session);
        if let Some(old) = self.members.insert(Arc::clone(&member_id), member) {
            self.give_up(old.instance_id.as_deref(), &member_id);
            if !Arc::ptr_eq(&old.session, &session) {
                self.ended.push(old.session);
            }
        }
        if let Some(instance_id) = instance_id {
            self.instances.insert(instance_id, member_id);
        }
    }

    /// Removes an instance id from a member.
    fn give_up(&mut self, instance_id: Option<&str>, member_id: &str) {
        if let Some(instance_id) = instance_id
            && self.instances.get(instance_id).is_some_and(|owner| **owner == *member_id)
        {
            self.instances.remove(instance_id);
        }
    }
}
