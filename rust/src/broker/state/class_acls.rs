//! The ACLs that a user's class gives clients (`authorizer.class.name`).
//!
//! A client is a user with an address and a listener. The class is asked for its ACLs when its
//! first request comes, and again `cache_ms` after it was asked, as long as the client is
//! connected. A request reads the newest answer without a lock. It waits only if no answer counts:
//! before the first one, and if the class could not be asked again for several `timeout_ms`.
//! A class that fails gives a client no ACL, and nothing is allowed to it, not even what
//! `allow.everyone.if.no.acl.found` allows.
//!
//! States of a client, with their transitions:
//! - queued: asked as soon as possible -> asked
//! - asked: the class decides -> due
//! - due: it has an answer. Its time has come, and it is connected -> asked; it is not -> idle
//! - idle: connected again -> queued; others need its place -> forgotten
//!
//! Invariant: a client is in `queue`, `due` or `idle` exactly while its state says so. Requests
//!     wait only for clients that are queued or asked.
//! Threads: any. One thread takes the questions and brings the answers.
//! Limits: [`CLIENTS_MAX`] clients; those that are idle for longest are forgotten first, then those
//!     whose answers are oldest. One that finds no place is refused for `cache_ms`.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use ahash::HashMap;
use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};

use crate::broker::state::acls::AclTable;
use crate::broker::state::waking::DelayedId;
use crate::clock::Clock;

/// The most clients whose ACLs are kept.
const CLIENTS_MAX: usize = 10_000;
/// The most clients that the class is asked for in one turn, and the most that are looked at.
const TURN: usize = 64;
const LOOKED_AT: usize = 256;
/// How many calls of the class a request waits for: those for other clients may come first.
const CALLS: i64 = 3;

/// When the class is asked.
#[derive(Clone, Copy, Debug)]
pub struct AskTimes {
    /// `krust.authorizer.cache.ms`.
    pub cache_ms: i64,
    /// `krust.authorizer.timeout.ms`: how long one call may take.
    pub timeout_ms: i64,
}

/// A client, as the class sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClassClient {
    /// The name of its principal.
    pub user: Arc<str>,
    /// The address it comes from, as ACLs name it.
    pub host: Arc<str>,
    /// The name of the listener it came through.
    pub listener: Arc<str>,
}

/// A client for whose ACLs the class is to be asked, and the number of the question.
pub type ClientQuestion = (u64, ClassClient);

/// A request that waits, by its thread.
type DelayedRequest = (usize, DelayedId);

/// The ACLs of one client.
#[derive(Debug)]
pub(crate) struct ClientAcls {
    number: u64,
    pub(crate) client: ClassClient,
    table: ArcSwap<AclTable>,
    /// Until when the table counts, in monotonic milliseconds.
    counts_until_ms: AtomicI64,
    /// How many connections it has that have sent a request.
    connections: AtomicUsize,
}

/// The client of a connection. The class is asked again and again while this exists.
#[derive(Debug)]
pub(crate) struct ConnectedClient(Arc<ClientAcls>);

/// The clients of a class. See the module.
#[derive(Debug)]
pub struct ClassAcls {
    times: AskTimes,
    clients: Mutex<Clients>,
    /// A client was queued, or the end has come.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Clients {
    numbers: HashMap<ClassClient, u64>,
    known: HashMap<u64, KnownClient>,
    last: u64,
    queue: VecDeque<u64>,
    due: BTreeSet<(i64, u64)>,
    idle: BTreeSet<(i64, u64)>,
    is_closed: bool,
}

#[derive(Debug)]
struct KnownClient {
    acls: Arc<ClientAcls>,
    state: AskState,
    waiting: HashSet<DelayedRequest>,
}

#[derive(Clone, Copy, Debug)]
enum AskState {
    Queued,
    Asked { since_ms: i64 },
    Due { at_ms: i64 },
    Idle { since_ms: i64 },
}

impl ClientAcls {
    fn new(number: u64, client: &ClassClient, counts_until_ms: i64) -> Arc<Self> {
        Arc::new(Self {
            number,
            client: client.clone(),
            table: ArcSwap::default(),
            counts_until_ms: AtomicI64::new(counts_until_ms),
            connections: AtomicUsize::new(0),
        })
    }

    /// What the class said last; nothing is allowed before.
    pub(crate) fn table(&self) -> Arc<AclTable> {
        self.table.load_full()
    }

    /// Whether this table is what the class said last.
    pub(crate) fn is_newest(&self, table: &Arc<AclTable>) -> bool {
        Arc::ptr_eq(&self.table.load(), table)
    }

    /// Whether there is an answer that counts.
    #[inline]
    pub(crate) fn counts(&self, now_ms: i64) -> bool {
        now_ms < self.counts_until_ms.load(Ordering::Acquire)
    }

    /// The same table stays if it says the same, so that nobody looks up partitions again.
    fn set(&self, table: AclTable, counts_until_ms: i64) {
        if **self.table.load() != table {
            self.table.store(Arc::new(table));
        }
        self.counts_until_ms.store(counts_until_ms, Ordering::Release);
    }
}

impl ConnectedClient {
    fn new(acls: &Arc<ClientAcls>) -> Self {
        acls.connections.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(acls))
    }

    pub(crate) fn acls(&self) -> &Arc<ClientAcls> {
        &self.0
    }
}

impl Drop for ConnectedClient {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ClassAcls {
    /// No client is known yet.
    pub(crate) fn new(times: AskTimes) -> Self {
        Self { times, clients: Mutex::default(), changed: Condvar::new() }
    }

    /// How long a request waits at most.
    pub(crate) fn wait_ms(&self) -> i64 {
        self.times.timeout_ms.saturating_mul(CALLS)
    }

    /// The client of a connection. The class is asked for one that is new or was idle.
    pub(crate) fn connect(&self, client: &ClassClient, now_ms: i64) -> ConnectedClient {
        let mut clients = self.clients.lock();
        let number = clients.numbers.get(client).copied().or_else(|| clients.add(client));
        let known = number.and_then(|number| clients.known.get(&number));
        let Some(known) = known else {
            let refused = ClientAcls::new(0, client, now_ms.saturating_add(self.times.cache_ms));
            return ConnectedClient::new(&refused);
        };
        let connected = ConnectedClient::new(&known.acls);
        if matches!(known.state, AskState::Idle { .. }) {
            clients.hurry(connected.0.number);
            self.changed.notify_one();
        }
        connected
    }

    /// Has a request wait for the answer. False: it need not, for an answer counts, or the client
    /// was forgotten and must connect again.
    pub(crate) fn wait(&self, acls: &ClientAcls, request: DelayedRequest, now_ms: i64) -> bool {
        let mut clients = self.clients.lock();
        let Some(known) = clients.known.get_mut(&acls.number) else { return false };
        if acls.counts(now_ms) {
            return false;
        }
        known.waiting.insert(request);
        clients.hurry(acls.number);
        self.changed.notify_one();
        true
    }

    /// A request waits no longer: its connection was closed.
    pub(crate) fn cancel(&self, acls: &ClientAcls, request: DelayedRequest) {
        if let Some(known) = self.clients.lock().known.get_mut(&acls.number) {
            known.waiting.remove(&request);
        }
    }

    /// A request has waited for too long: nothing is allowed to its client until an answer comes,
    /// or this has counted for as long as a call may take.
    pub(crate) fn give_up(&self, acls: &ClientAcls, request: DelayedRequest, now_ms: i64) {
        let mut clients = self.clients.lock();
        if let Some(known) = clients.known.get_mut(&acls.number) {
            known.waiting.remove(&request);
        }
        if !acls.counts(now_ms) {
            acls.set(AclTable::default(), now_ms.saturating_add(self.times.timeout_ms));
        }
    }

    /// The clients for which the class is to be asked now. Waits for the first, for at most
    /// `timeout`, or until a client is due. `None`: the end has come.
    pub fn questions(&self, clock: &dyn Clock, timeout: Duration) -> Option<Vec<ClientQuestion>> {
        let mut clients = self.clients.lock();
        let mut found = clients.next(clock.monotonic_ms());
        if found.is_empty() && !clients.is_closed {
            let due_ms = clients.due.first().map_or(i64::MAX, |(at_ms, _)| *at_ms);
            let wait_ms = due_ms.saturating_sub(clock.monotonic_ms()).max(0);
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or_default());
            self.changed.wait_for(&mut clients, timeout.min(wait));
            found = clients.next(clock.monotonic_ms());
        }
        (!clients.is_closed).then_some(found)
    }

    /// Takes the class's answer to a question. `Err`: there is none, and the class is asked again
    /// after this many milliseconds. Returns the requests that have waited for it.
    pub(crate) fn answered(
        &self,
        number: u64,
        answer: Result<AclTable, i64>,
        now_ms: i64,
    ) -> HashSet<DelayedRequest> {
        let mut clients = self.clients.lock();
        let clients = &mut *clients;
        let Some(known) = clients.known.get_mut(&number) else { return HashSet::new() };
        let AskState::Asked { since_ms } = known.state else { return HashSet::new() };
        let (table, at_ms) = match answer {
            Ok(table) => (table, since_ms.saturating_add(self.times.cache_ms)),
            Err(retry_ms) => (AclTable::default(), now_ms.saturating_add(retry_ms)),
        };
        known.acls.set(table, at_ms.max(now_ms).saturating_add(self.wait_ms()));
        known.state = AskState::Due { at_ms };
        clients.due.insert((at_ms, number));
        std::mem::take(&mut known.waiting)
    }

    /// Ends the questions.
    pub fn close(&self) {
        self.clients.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl Clients {
    /// Adds a client, idle, and returns its number. `None`: there is no place.
    fn add(&mut self, client: &ClassClient) -> Option<u64> {
        if self.known.len() >= CLIENTS_MAX {
            let place = self.idle.pop_first().or_else(|| self.due.pop_first());
            let forgotten = self.known.remove(&place?.1)?;
            self.numbers.remove(&forgotten.acls.client);
            forgotten.acls.counts_until_ms.store(i64::MIN, Ordering::Release);
        }
        self.last += 1;
        let number = self.last;
        let acls = ClientAcls::new(number, client, i64::MIN);
        let state = AskState::Idle { since_ms: i64::MIN };
        self.idle.insert((i64::MIN, number));
        self.known.insert(number, KnownClient { acls, state, waiting: HashSet::new() });
        self.numbers.insert(client.clone(), number);
        Some(number)
    }

    /// Queues a client that has an answer or is idle.
    fn hurry(&mut self, number: u64) {
        let Some(known) = self.known.get_mut(&number) else { return };
        match known.state {
            AskState::Due { at_ms } => self.due.remove(&(at_ms, number)),
            AskState::Idle { since_ms } => self.idle.remove(&(since_ms, number)),
            AskState::Queued | AskState::Asked { .. } => return,
        };
        known.state = AskState::Queued;
        self.queue.push_back(number);
    }

    /// The next questions, by turns of clients that are queued and of those that are due, so that a
    /// crowd of new clients does not hold up the others.
    fn next(&mut self, now_ms: i64) -> Vec<ClientQuestion> {
        let mut found = Vec::new();
        for looked_at in 0..LOOKED_AT {
            let first = if looked_at % 2 == 0 { self.next_queued() } else { self.next_due(now_ms) };
            let next = first.or_else(|| self.next_queued()).or_else(|| self.next_due(now_ms));
            let Some((number, is_waited_for)) = next else { break };
            let Some(known) = self.known.get_mut(&number) else { continue };
            if is_waited_for || known.acls.connections.load(Ordering::Acquire) > 0 {
                known.state = AskState::Asked { since_ms: now_ms };
                found.push((number, known.acls.client.clone()));
            } else {
                known.state = AskState::Idle { since_ms: now_ms };
                self.idle.insert((now_ms, number));
            }
            if found.len() >= TURN {
                break;
            }
        }
        found
    }

    fn next_queued(&mut self) -> Option<(u64, bool)> {
        self.queue.pop_front().map(|number| (number, true))
    }

    fn next_due(&mut self, now_ms: i64) -> Option<(u64, bool)> {
        let due = self.due.first().copied().filter(|(at_ms, _)| *at_ms <= now_ms)?;
        self.due.remove(&due);
        Some((due.1, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::state::acls::{AclBinding, AclClient, BesideAcls, Operation, ResourceType};
    use crate::clock::ManualClock;

    const TIMES: AskTimes = AskTimes { cache_ms: 500, timeout_ms: 1000 };

    fn client(user: &str) -> ClassClient {
        ClassClient { user: user.into(), host: "10.0.0.1".into(), listener: "SASL".into() }
    }

    fn table(topic: &str) -> AclTable {
        AclTable::new(&[AclBinding {
            resource_type: ResourceType::Topic,
            is_prefixed: false,
            name: topic.into(),
            principal: "User:*".into(),
            host: "*".into(),
            operation: Operation::Read,
            is_allow: true,
        }])
    }

    fn reads(connected: &ConnectedClient, topic: &str) -> bool {
        let client = AclClient::of_class(connected.acls(), BesideAcls::Nothing);
        client.allows(Operation::Read, ResourceType::Topic, topic)
    }

    /// The numbers of the next questions, without waiting.
    fn asked(class: &ClassAcls, now_ms: i64) -> Vec<u64> {
        let clock = ManualClock::at(0);
        clock.advance(now_ms);
        let questions = class.questions(&clock, Duration::ZERO).unwrap();
        questions.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_client_is_asked_for_once_and_again_while_it_is_connected() {
        let class = ClassAcls::new(TIMES);
        let (first, second) = (class.connect(&client("a"), 0), class.connect(&client("a"), 0));
        assert_eq!(asked(&class, 0), [1]);
        assert_eq!(asked(&class, 100_000), [0; 0], "the question is open");
        assert!(!first.acls().counts(0));
        class.answered(1, Ok(table("t")), 100);
        assert!(reads(&first, "t") && reads(&second, "t"));
        assert_eq!(asked(&class, 499), [0; 0]);
        drop(first);
        assert_eq!(asked(&class, 500), [1], "500 ms after it was asked");
        class.answered(1, Ok(table("u")), 600);
        assert!(!reads(&second, "t") && reads(&second, "u"));
        drop(second);
        assert_eq!(asked(&class, 100_000), [0; 0]);
        let again = class.connect(&client("a"), 100_000);
        assert!(!again.acls().counts(100_000));
        assert_eq!(asked(&class, 100_000), [1]);
    }

    #[test]
    fn an_answer_counts_until_three_calls_after_it_is_due_could_have_ended() {
        let class = ClassAcls::new(TIMES);
        let connected = class.connect(&client("a"), 0);
        asked(&class, 0);
        class.answered(1, Ok(table("t")), 10);
        asked(&class, 500);
        assert!(connected.acls().counts(3499) && !connected.acls().counts(3500));
        assert!(class.wait(connected.acls(), (0, DelayedId(1)), 3500));
        assert!(!class.wait(connected.acls(), (0, DelayedId(1)), 3499));
    }

    #[test]
    fn without_an_answer_nothing_is_allowed_whatever_the_settings_allow_beside_acls() {
        let class = ClassAcls::new(TIMES);
        let connected = class.connect(&client("a"), 0);
        let may = |name: &str| {
            let beside = BesideAcls::ResourcesWithoutAcl;
            let client = AclClient::of_class(connected.acls(), beside);
            client.allows(Operation::Read, ResourceType::Topic, name)
        };
        assert!(!may("other"));
        asked(&class, 0);
        class.answered(1, Ok(table("t")), 0);
        assert!(may("other"));
        asked(&class, 500);
        class.answered(1, Err(500), 600);
        assert!(!may("other") && !may("t") && connected.acls().counts(600));
        assert_eq!(asked(&class, 1100), [1], "it is asked again");
    }

    #[test]
    fn a_request_waits_for_the_answer_and_is_woken_by_it() {
        let class = ClassAcls::new(TIMES);
        let connected = class.connect(&client("a"), 0);
        for id in 1..=3 {
            assert!(class.wait(connected.acls(), (7, DelayedId(id)), 0));
        }
        class.cancel(connected.acls(), (7, DelayedId(2)));
        asked(&class, 0);
        class.give_up(connected.acls(), (7, DelayedId(3)), 3000);
        assert!(connected.acls().counts(3999) && !reads(&connected, "t"));
        let woken = class.answered(1, Ok(table("t")), 3100);
        assert_eq!(woken.into_iter().collect::<Vec<_>>(), [(7, DelayedId(1))]);
        assert!(reads(&connected, "t"));
        assert!(class.answered(1, Ok(table("u")), 3200).is_empty(), "it was answered");
        assert!(reads(&connected, "t"));
    }

    #[test]
    fn the_same_answer_changes_no_table() {
        let class = ClassAcls::new(TIMES);
        let connected = class.connect(&client("a"), 0);
        asked(&class, 0);
        class.answered(1, Ok(table("t")), 0);
        let before = connected.acls().table();
        asked(&class, 500);
        class.answered(1, Ok(table("t")), 500);
        assert!(connected.acls().is_newest(&before));
    }

    #[test]
    fn the_client_that_is_idle_for_longest_is_forgotten_first() {
        let class = ClassAcls::new(TIMES);
        let name = |number: usize| client(&format!("user-{number}"));
        let mut connected = Vec::new();
        for number in 0..CLIENTS_MAX {
            connected.push(class.connect(&name(number), 0));
        }
        let refused = class.connect(&name(CLIENTS_MAX), 0);
        assert!(refused.acls().counts(499) && !reads(&refused, "t"), "all others are asked for");
        assert!(!class.wait(refused.acls(), (0, DelayedId(1)), 500), "it connects again");
        while !asked(&class, 0).is_empty() {}
        for number in 1..=CLIENTS_MAX {
            class.answered(number as u64, Ok(table("t")), 0);
        }
        connected.remove(41);
        while !asked(&class, 500).is_empty() {}
        let late = class.connect(&name(CLIENTS_MAX), 500);
        assert_eq!(late.acls().number, CLIENTS_MAX as u64 + 1);
        assert_eq!(class.connect(&name(40), 500).acls().number, 41);
        let clients = class.clients.lock();
        assert_eq!(clients.known.len(), CLIENTS_MAX);
        assert!(!clients.numbers.contains_key(&name(41)));
    }

    #[test]
    fn the_end_ends_the_questions() {
        let class = ClassAcls::new(TIMES);
        class.close();
        let clock = ManualClock::at(0);
        assert!(class.questions(&clock, Duration::from_secs(60)).is_none());
    }
}
