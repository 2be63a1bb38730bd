//! A model of ZooKeeper: registrations, the controller's node, and the state of one partition.
//!
//! Each request is one atomic step, and a write of the partition's state is a compare-and-set: it
//! names the controller epoch and the version that it replaces. A reader reads the brokers and the
//! partition one after the other, so that what it knows may never have been true at once.
//! A watch fires once for each read, as late as the network brings it. Requests of a session are
//! done in the order in which they were sent; one that comes late, by an earlier connection, is not
//! done at all.

use std::collections::HashMap;

use crate::replica::leader::IsrMember;

/// The contents of `/brokers/topics/T/partitions/P/state` and of the topic's assignment. Beside
/// Kafka's fields: the registrations of the in-sync replicas and the eligible replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionState {
    /// -1: none.
    pub leader: i32,
    pub leader_epoch: i32,
    /// The version of the state: it rises with each write.
    pub partition_epoch: i32,
    pub isr: Vec<IsrMember>,
    /// Eligible leader replicas (KIP-966): they left the in-sync set when it became smaller than
    /// the high watermark needs, so they have everything that is committed.
    pub eligible: Vec<IsrMember>,
    pub replicas: Vec<i32>,
    /// The replicas that a reassignment wants in the end; empty: there is none.
    pub target: Vec<i32>,
    /// How often a leader was elected that may lack committed records.
    pub unclean_elections: usize,
}

/// A broker's node in `/brokers/ids`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    pub node: usize,
    /// The zxid that made it.
    pub broker_epoch: i64,
    /// The broker lost no records since it had this broker epoch.
    pub lossless_since: i64,
    session: u64,
}

#[derive(Clone, Debug, Hash)]
pub enum StoreRequest {
    /// Become the controller, if there is none.
    Elect,
    ReadBrokers,
    ReadPartition,
    Write {
        controller_epoch: i32,
        state: PartitionState,
    },
    /// Register the broker. `lossless_since: None`: it may have lost records since it ran last.
    /// `replaces`: it knows the session of its earlier process, and ends it.
    Register {
        lossless_since: Option<i64>,
        replaces: bool,
    },
}

#[derive(Clone, Debug, Hash)]
pub enum StoreAnswer {
    /// The controller epoch of the new controller; `None`: there is one.
    Elected(Option<i32>),
    Brokers(BrokerList),
    Partition(PartitionState),
    Written(WriteOutcome),
    /// The new registration; `None`: that of an earlier process is still there.
    Registered(Option<Registration>),
    SessionExpired,
    /// The answer did not come. Nobody knows whether the request did anything.
    ConnectionLoss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    Done,
    /// The state has another version.
    BadVersion,
    /// Another controller was elected.
    Fenced,
}

/// The live brokers, as they were at a zxid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BrokerList {
    pub registered: Vec<Registration>,
    /// A registration up to this zxid that is not in the list is gone for good.
    pub zxid: i64,
}

impl BrokerList {
    /// A new registration, in place of the one that the node may have.
    pub fn register(&mut self, node: usize, lossless_since: Option<i64>) -> Registration {
        self.registered.retain(|it| it.node != node);
        self.add((node, 0), lossless_since)
    }

    fn add(&mut self, (node, session): (usize, u64), lossless_since: Option<i64>) -> Registration {
        self.zxid += 1;
        let broker_epoch = self.zxid;
        let lossless_since = lossless_since.unwrap_or(broker_epoch);
        let registration = Registration { node, broker_epoch, lossless_since, session };
        self.registered.push(registration);
        registration
    }

    pub fn find(&self, replica: i32) -> Option<&Registration> {
        self.registered.iter().find(|it| node_id(it.node) == replica)
    }
}

/// Whom to tell that something changed.
#[derive(Clone, Copy, Debug, Default)]
struct Watches {
    brokers: bool,
    controller: bool,
}

pub struct ZooKeeper {
    pub brokers: BrokerList,
    pub state: PartitionState,
    pub controller_epoch: i32,
    pub controller: Option<usize>,
    controller_session: u64,
    expired: Vec<u64>,
    /// The newest request of each session.
    newest: HashMap<u64, u64>,
    watches: Vec<Watches>,
    /// Watches that fired and are on their way.
    pub fired: Vec<usize>,
}

impl ZooKeeper {
    /// Brokers that are not registered, and a partition without a leader on the first of them,
    /// whose replicas are all in sync.
    pub fn new(brokers: usize, replicas: usize) -> Self {
        let replicas: Vec<i32> = (0..node_id(replicas)).collect();
        let member = |replica: &i32| IsrMember { replica: *replica, broker_epoch: -1 };
        Self {
            brokers: BrokerList::default(),
            state: PartitionState {
                leader: -1,
                leader_epoch: 0,
                partition_epoch: 0,
                isr: replicas.iter().map(member).collect(),
                eligible: Vec::new(),
                replicas,
                target: Vec::new(),
                unclean_elections: 0,
            },
            controller_epoch: 0,
            controller: None,
            controller_session: 0,
            expired: Vec::new(),
            newest: HashMap::new(),
            watches: vec![Watches::default(); brokers],
            fired: Vec::new(),
        }
    }

    /// Does a request, unless a later one of the same session was done.
    pub fn handle(
        &mut self,
        node: usize,
        (session, number): (u64, u64),
        request: StoreRequest,
    ) -> Option<StoreAnswer> {
        if self.expired.contains(&session) {
            return Some(StoreAnswer::SessionExpired);
        }
        let newest = self.newest.entry(session).or_default();
        if number < *newest {
            return None;
        }
        *newest = number;
        Some(self.done(node, session, request))
    }

    fn done(&mut self, node: usize, session: u64, request: StoreRequest) -> StoreAnswer {
        match request {
            StoreRequest::Elect => {
                if self.controller.is_some() {
                    // The answer to an earlier request may have been lost.
                    let is_own = self.controller_session == session;
                    self.watches[node].controller |= !is_own;
                    return StoreAnswer::Elected(is_own.then_some(self.controller_epoch));
                }
                self.brokers.zxid += 1;
                self.controller_epoch += 1;
                self.controller = Some(node);
                self.controller_session = session;
                StoreAnswer::Elected(Some(self.controller_epoch))
            }
            StoreRequest::ReadBrokers => {
                self.watches[node].brokers = true;
                StoreAnswer::Brokers(self.brokers.clone())
            }
            StoreRequest::ReadPartition => StoreAnswer::Partition(self.state.clone()),
            StoreRequest::Write { controller_epoch, state } => {
                StoreAnswer::Written(self.write(controller_epoch, state))
            }
            StoreRequest::Register { lossless_since, replaces } => {
                StoreAnswer::Registered(self.register((node, session), lossless_since, replaces))
            }
        }
    }

    fn write(&mut self, controller_epoch: i32, state: PartitionState) -> WriteOutcome {
        if controller_epoch != self.controller_epoch {
            return WriteOutcome::Fenced;
        }
        if state.partition_epoch != self.state.partition_epoch {
            return WriteOutcome::BadVersion;
        }
        self.brokers.zxid += 1;
        self.state = PartitionState { partition_epoch: state.partition_epoch + 1, ..state };
        WriteOutcome::Done
    }

    fn register(
        &mut self,
        (node, session): (usize, u64),
        lossless_since: Option<i64>,
        replaces: bool,
    ) -> Option<Registration> {
        let known = self.brokers.registered.iter().find(|it| it.node == node).copied();
        match known {
            Some(own) if own.session == session => return Some(own),
            // A process may replace its node's earlier sessions, which it knows of, and no later.
            Some(other) if !replaces || other.session > session => return None,
            Some(earlier) => self.expire(earlier.session),
            None => {}
        }
        let registration = self.brokers.add((node, session), lossless_since);
        self.fire(|watches| std::mem::take(&mut watches.brokers));
        Some(registration)
    }

    pub fn is_expired(&self, session: u64) -> bool {
        self.expired.contains(&session)
    }

    /// Ends a session, and with it all that it made.
    pub fn expire(&mut self, session: u64) {
        if self.expired.contains(&session) {
            return;
        }
        self.expired.push(session);
        self.brokers.zxid += 1;
        let before = self.brokers.registered.len();
        self.brokers.registered.retain(|it| it.session != session);
        if self.brokers.registered.len() != before {
            self.fire(|watches| std::mem::take(&mut watches.brokers));
        }
        if self.controller.is_some() && self.controller_session == session {
            self.controller = None;
            self.fire(|watches| std::mem::take(&mut watches.controller));
        }
    }

    fn fire(&mut self, is_told: impl Fn(&mut Watches) -> bool) {
        for (node, watches) in self.watches.iter_mut().enumerate() {
            if is_told(watches) {
                self.fired.push(node);
            }
        }
    }
}

pub fn node_id(node: usize) -> i32 {
    i32::try_from(node).unwrap()
}
