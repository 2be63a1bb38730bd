//! Session deadlines of members, without a timer for each heartbeat.
//!
//! A heartbeat stores the time in its [`MemberSession`] and does nothing else. An ordered list has
//! one entry for each session, at a deadline that may have moved since. When the entry is due, the
//! session's real deadline is read, and the entry is queued again if that has not passed. So each
//! member is checked once in a session timeout, however often it sends heartbeats.
//! Grace: when the connection of a member that is not static closes, its deadline moves to at most
//!     the grace period from now, even while it joins. Its next request removes that limit.
//! Invariant: a session is in `due` at `queued_ms`, or `queued_ms` is `i64::MAX` and it is not.
//!     `queued_ms` is at most its real deadline. A session with a `connection` is listed under it
//!     in `by_connection`.
//! Threads: shared. Times are atomics; the lists have one short lock that heartbeats do not take.
//!     Times are monotonic milliseconds, passed in.
//! Not promised: that a heartbeat saves a member whose session is expiring at that moment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Never.
const NEVER: i64 = i64::MAX;
/// No connection has this number.
const NO_CONNECTION: u64 = 0;

/// When a member last sent a request, and its session timeout.
#[derive(Debug)]
pub(crate) struct MemberSession {
    group_id: Arc<str>,
    member_id: Arc<str>,
    number: u64,
    seen_ms: AtomicI64,
    /// `NEVER` while the session is not timed.
    timeout_ms: AtomicI64,
    /// When the grace ends.
    grace_ms: AtomicI64,
    /// The connection of its last request.
    connection: AtomicU64,
    is_static: bool,
    queued_ms: AtomicI64,
    /// The member is gone. Changed under the lock of the lists.
    is_over: AtomicBool,
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct MemberSessions {
    state: Mutex<SessionTable>,
    /// The grace period after a lost connection; negative: no limit.
    grace_ms: AtomicI64,
}

#[derive(Debug, Default)]
struct SessionTable {
    last: u64,
    due: BTreeMap<(i64, u64), Arc<MemberSession>>,
    /// The open connections that members have used.
    open: HashSet<u64>,
    by_connection: HashMap<u64, Vec<Arc<MemberSession>>>,
}

/// A member whose session begins.
#[derive(Clone, Debug)]
pub(crate) struct NewMember {
    pub(crate) group_id: Arc<str>,
    pub(crate) member_id: Arc<str>,
    pub(crate) is_static: bool,
}

/// The members whose sessions have expired, by group.
pub(crate) type ExpiredMembers = Vec<(Arc<str>, Vec<Arc<str>>)>;

impl MemberSession {
    /// Extends the session after a request, and ends a grace period.
    #[inline]
    pub(crate) fn refresh(&self, now_ms: i64) {
        self.seen_ms.store(now_ms, Ordering::Relaxed);
        if self.grace_ms.load(Ordering::Relaxed) != NEVER {
            self.grace_ms.store(NEVER, Ordering::Relaxed);
        }
    }

    /// Restarts the session timeout.
    pub(crate) fn refresh_time(&self, now_ms: i64) {
        self.seen_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether its last request came through another connection.
    #[inline]
    pub(crate) fn is_on_other_connection(&self, connection: u64) -> bool {
        self.connection.load(Ordering::Relaxed) != connection
    }

    fn deadline_ms(&self) -> i64 {
        let (seen, timeout) = (&self.seen_ms, self.timeout_ms.load(Ordering::Relaxed));
        let deadline = seen.load(Ordering::Relaxed).saturating_add(timeout);
        deadline.min(self.grace_ms.load(Ordering::Relaxed))
    }
}

impl MemberSessions {
    /// Sets the grace period after a lost connection; negative: no limit.
    pub(crate) fn set_grace(&self, grace_ms: i64) {
        self.grace_ms.store(grace_ms, Ordering::Relaxed);
    }

    /// A session that is not timed yet.
    pub(crate) fn add(&self, entry: NewMember) -> Arc<MemberSession> {
        let mut state = self.state.lock();
        state.last += 1;
        Arc::new(MemberSession {
            group_id: entry.group_id,
            member_id: entry.member_id,
            number: state.last,
            seen_ms: AtomicI64::new(0),
            timeout_ms: AtomicI64::new(NEVER),
            grace_ms: AtomicI64::new(NEVER),
            connection: AtomicU64::new(NO_CONNECTION),
            is_static: entry.is_static,
            queued_ms: AtomicI64::new(NEVER),
            is_over: AtomicBool::new(false),
        })
    }

    /// The session timeout; `None` while the session is not timed.
    pub(crate) fn time(&self, session: &Arc<MemberSession>, timeout_ms: Option<i64>) {
        let timeout_ms = timeout_ms.map_or(NEVER, |timeout_ms| timeout_ms.max(0));
        session.timeout_ms.store(timeout_ms, Ordering::Relaxed);
        self.state.lock().requeue(session);
    }

    /// Queues a session again whose expiry was reported, if it has a deadline.
    #[inline]
    pub(crate) fn time_again(&self, session: &Arc<MemberSession>) {
        let is_queued = session.queued_ms.load(Ordering::Relaxed) != NEVER;
        if !is_queued && session.deadline_ms() != NEVER {
            self.state.lock().requeue(session);
        }
    }

    /// Ends the session: the member is gone.
    pub(crate) fn remove(&self, session: &Arc<MemberSession>) {
        let mut state = self.state.lock();
        session.is_over.store(true, Ordering::Relaxed);
        session.timeout_ms.store(NEVER, Ordering::Relaxed);
        session.grace_ms.store(NEVER, Ordering::Relaxed);
        state.unqueue(session);
        state.part(session);
    }

    /// Registers a connection before its first group request.
    pub(crate) fn opened(&self, connection: u64) {
        self.state.lock().open.insert(connection);
    }

    /// Binds a member to a connection. If that is closed already, the grace period begins. True: a
    /// deadline moved forward.
    pub(crate) fn bind_connection(
        &self,
        session: &Arc<MemberSession>,
        connection: u64,
        now_ms: i64,
    ) -> bool {
        let grace_ms = self.grace_ms.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        // A request may have found the session in a snapshot that was just replaced.
        if session.is_over.load(Ordering::Relaxed) {
            return false;
        }
        state.part(session);
        if !state.open.contains(&connection) {
            return state.begin_grace(session, (now_ms, grace_ms));
        }
        session.connection.store(connection, Ordering::Relaxed);
        state.by_connection.entry(connection).or_default().push(Arc::clone(session));
        false
    }

    /// Handles a closed connection. True: a deadline moved forward.
    pub(crate) fn closed(&self, connection: u64, now_ms: i64) -> bool {
        let grace_ms = self.grace_ms.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        state.open.remove(&connection);
        let mut earlier = false;
        for session in state.by_connection.remove(&connection).unwrap_or_default() {
            session.connection.store(NO_CONNECTION, Ordering::Relaxed);
            earlier |= state.begin_grace(&session, (now_ms, grace_ms));
        }
        earlier
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.state.lock().due.first_key_value().map(|((deadline_ms, _), _)| *deadline_ms)
    }

    /// Removes the members whose sessions have expired.
    pub(crate) fn expired(&self, now_ms: i64) -> ExpiredMembers {
        let mut state = self.state.lock();
        let mut groups: ExpiredMembers = Vec::new();
        let mut places: HashMap<Arc<str>, usize> = HashMap::new();
        while let Some(entry) = state.due.first_entry() {
            if entry.key().0 > now_ms {
                break;
            }
            let session = entry.remove();
            session.queued_ms.store(NEVER, Ordering::Relaxed);
            if session.deadline_ms() > now_ms {
                state.requeue(&session);
                continue;
            }
            let group_id = &session.group_id;
            let place = *places.entry(Arc::clone(group_id)).or_insert_with(|| {
                groups.push((Arc::clone(group_id), Vec::new()));
                groups.len() - 1
            });
            if let Some((_, members)) = groups.get_mut(place) {
                members.push(Arc::clone(&session.member_id));
            }
        }
        groups
    }
}

impl SessionTable {
    /// Queues the session at its deadline, unless it is queued earlier.
    fn requeue(&mut self, session: &Arc<MemberSession>) {
        let deadline_ms = session.deadline_ms();
        if deadline_ms < session.queued_ms.load(Ordering::Relaxed) {
            self.unqueue(session);
            session.queued_ms.store(deadline_ms, Ordering::Relaxed);
            self.due.insert((deadline_ms, session.number), Arc::clone(session));
        }
    }

    fn unqueue(&mut self, session: &MemberSession) {
        let queued_ms = session.queued_ms.swap(NEVER, Ordering::Relaxed);
        self.due.remove(&(queued_ms, session.number));
    }

    /// Unbinds the session from its connection.
    fn part(&mut self, session: &Arc<MemberSession>) {
        let connection = session.connection.swap(NO_CONNECTION, Ordering::Relaxed);
        if let Some(by_connection) = self.by_connection.get_mut(&connection) {
            by_connection.retain(|other| other.number != session.number);
            if by_connection.is_empty() {
                self.by_connection.remove(&connection);
            }
        }
    }

    fn begin_grace(
        &mut self,
        session: &Arc<MemberSession>,
        (now_ms, grace_ms): (i64, i64),
    ) -> bool {
        if session.is_static || grace_ms < 0 {
            return false;
        }
        let first = self.due.first_key_value().map_or(NEVER, |((deadline_ms, _), _)| *deadline_ms);
        session.grace_ms.store(now_ms.saturating_add(grace_ms), Ordering::Relaxed);
        self.requeue(session);
        session.queued_ms.load(Ordering::Relaxed) < first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> MemberSessions {
        let sessions = MemberSessions::default();
        sessions.set_grace(500);
        sessions
    }

    fn add(sessions: &MemberSessions, member: &str, timeout_ms: Option<i64>) -> Arc<MemberSession> {
        let entry = NewMember { group_id: "g".into(), member_id: member.into(), is_static: false };
        let session = sessions.add(entry);
        session.refresh(0);
        sessions.time(&session, timeout_ms);
        session
    }

    fn expired(sessions: &MemberSessions, now_ms: i64) -> Vec<String> {
        let groups = sessions.expired(now_ms);
        groups.into_iter().flat_map(|(_, members)| members).map(|id| id.to_string()).collect()
    }

    #[test]
    fn a_beat_moves_the_deadline_and_nothing_else() {
        let sessions = sessions();
        let (a, _b) = (add(&sessions, "a", Some(1000)), add(&sessions, "b", Some(1500)));
        a.refresh(900);
        assert_eq!(sessions.next_deadline(), Some(1000), "the list is not touched");
        assert_eq!(expired(&sessions, 1000), [""; 0]);
        assert_eq!(sessions.next_deadline(), Some(1500));
        assert_eq!(expired(&sessions, 1899), ["b"]);
        assert_eq!(expired(&sessions, 1900), ["a"]);
        assert_eq!(sessions.next_deadline(), None);
        assert_eq!(expired(&sessions, 9999), [""; 0], "once");
    }

    #[test]
    fn a_shorter_timeout_counts_at_once_and_a_removed_member_never() {
        let sessions = sessions();
        let session = add(&sessions, "a", Some(10_000));
        sessions.time(&session, Some(100));
        assert_eq!(sessions.next_deadline(), Some(100));
        sessions.time(&session, None);
        assert_eq!(expired(&sessions, 5000), [""; 0], "while it joins, its time does not run");
        sessions.time(&session, Some(100));
        sessions.remove(&session);
        assert_eq!((expired(&sessions, 5000).len(), sessions.next_deadline()), (0, None));
    }

    #[test]
    fn a_lost_connection_is_forgiven_for_the_grace() {
        let sessions = sessions();
        let (a, b) = (add(&sessions, "a", Some(45_000)), add(&sessions, "b", None));
        for connection in 1..=2 {
            sessions.opened(connection);
        }
        assert!(!sessions.bind_connection(&a, 1, 0) && !sessions.bind_connection(&b, 1, 0));
        assert!(sessions.closed(1, 100));
        assert_eq!(sessions.next_deadline(), Some(600));
        a.refresh(300);
        assert!(a.is_on_other_connection(2) && !sessions.bind_connection(&a, 2, 300));
        assert_eq!(expired(&sessions, 600), ["b"], "even while it joins");
        assert_eq!(sessions.next_deadline(), Some(45_300));
        assert!(!sessions.closed(1, 700), "it spoke elsewhere since");
        assert!(sessions.bind_connection(&a, 1, 700), "closed before it was heard of");
        assert_eq!(expired(&sessions, 1200), ["a"]);
    }

    #[test]
    fn a_member_that_is_gone_is_bound_to_no_connection_by_a_late_request() {
        let sessions = sessions();
        sessions.opened(1);
        let session = add(&sessions, "a", Some(1000));
        sessions.remove(&session);
        session.refresh(10);
        assert!(!sessions.bind_connection(&session, 1, 10));
        assert!(!sessions.closed(1, 20));
        assert_eq!((expired(&sessions, 9999).len(), sessions.next_deadline()), (0, None));
    }

    #[test]
    fn static_members_and_prod_mode_know_no_grace() {
        let sessions = sessions();
        sessions.opened(1);
        let entry = NewMember { group_id: "g".into(), member_id: "s".into(), is_static: true };
        let session = sessions.add(entry);
        sessions.bind_connection(&session, 1, 0);
        assert!(!sessions.closed(1, 0));
        sessions.set_grace(-1);
        let session = add(&sessions, "a", Some(1000));
        sessions.opened(2);
        sessions.bind_connection(&session, 2, 0);
        assert!(!sessions.closed(2, 0));
        assert_eq!((expired(&sessions, 999).len(), expired(&sessions, 1000).len()), (0, 1));
        let state = sessions.state.lock();
        assert!(state.due.is_empty() && state.by_connection.is_empty() && state.open.is_empty());
    }
}
