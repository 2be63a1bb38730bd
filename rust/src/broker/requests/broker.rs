//! [`Broker`]: the state that handlers and lifecycle share. It receives the policy's answers.
//!
//! Methods on log directories and deltas are in `lifecycle`, methods on requests in `requests` and
//! `handlers`.
//! Threads: shared by all. Each mutable part has its own lock or is swapped as a whole.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ahash::HashMap;
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;

use crate::broker::policy::{Policy, Ticket};
use crate::broker::requests::access::Authorizer;
use crate::broker::requests::decisions::{self, PolicyAnswer, TicketHolder, Tickets};
use crate::broker::requests::delayed::{ThreadState, Wake};
use crate::broker::requests::service::{Mailbox, Peer};
use crate::broker::requests::workers::Workers;
use crate::broker::state::fetch_sessions::{FetchSessions, SessionLimits};
use crate::broker::state::fetching::{FetcherSettings, ReplicaFetchers};
use crate::broker::state::groups::Groups;
use crate::broker::state::image::{ClusterImage, PeerAddress};
use crate::broker::state::inter_broker::{InterBroker, InterBrokerSettings};
use crate::broker::state::log_manager::LogManager;
use crate::broker::state::logins::{ANONYMOUS, ListenerLogins, Logins};
use crate::broker::state::peer_reach::PeerReach;
use crate::broker::state::principals::PrincipalRules;
use crate::broker::state::producer_ids::ProducerIds;
use crate::broker::state::proven::ProvenBounds;
use crate::broker::state::quotas::account::Quotas;
use crate::broker::state::quotas::bucket::QuotaWindows;
use crate::broker::state::quotas::replication::ReplicationQuota;
use crate::broker::state::read_replicas::{ReplicaSelector, SelectedReplicas};
use crate::broker::state::replication::ReplicationContext;
use crate::broker::state::transactions::{TransactionSettings, Transactions};
use crate::broker::state::waking::{DelayedId, Waker};
use crate::clock::Clock;
use crate::memory::MemoryPool;
use crate::protocol::value::{Value, ValueError};
use crate::storage::{Cleaner, FutureReplicas, LogScheduler, StartProgress, Syncer};
use crate::transport::ClientSecurity;
use crate::transport::sasl::KeySet;
use crate::work::WorkMeter;

/// The settings of the broker that handlers read.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `node.id`.
    pub node_id: i32,
    /// The listener between brokers; `None`: there is no other broker.
    pub inter_broker_listener: Option<Arc<str>>,
    /// `krust.inter.broker.listeners`: the other listeners on which brokers are served while the
    /// one between them is changed.
    pub also_inter_broker: Vec<Arc<str>>,
    /// The listener that would be between brokers; `None`: there are other brokers.
    pub lone_listener: Option<Arc<str>>,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `fetch.max.bytes`.
    pub fetch_max_bytes: i32,
    /// How partitions are fetched from their leaders.
    pub fetchers: FetcherSettings,
    /// How other brokers are asked about transactions.
    pub inter_broker: InterBrokerSettings,
    /// The limits of fetch sessions.
    pub fetch_sessions: SessionLimits,
    /// `max.request.partition.size.limit`: partitions in one answer of DescribeTopicPartitions.
    pub partitions_per_answer: i32,
    /// `krust.group.connection.grace.ms`: how long a group member may be without its connection;
    /// negative: as long as its session lasts.
    pub connection_grace_ms: i64,
    /// `krust.group.load.wait.ms`: how long after the start requests on groups wait while groups
    /// are being read.
    pub group_load_wait_ms: i64,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.commit.timeout.ms`: how long a commit waits for the watermark.
    pub offsets_commit_timeout_ms: i64,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`; counts at the start only.
    pub offsets_retention_check_ms: u64,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads_per_dir: usize,
    /// `krust.policy.timeout.ms`: the longest that the policy may take for a decision.
    pub policy_timeout_ms: i64,
    /// `krust.request.memory.bytes`: the memory that all requests may take together, without read
    /// buffers.
    pub request_memory_bytes: usize,
    /// `krust.policy.request.memory.bytes`: the memory that one request may take as a
    /// decoded value and as Python's objects.
    pub policy_request_bytes: usize,
    /// `krust.policy.response.max.bytes`: the largest answer to a request that is decided in
    /// slices.
    pub policy_response_bytes: usize,
    /// `krust.fetch.converted.memory.bytes`: the memory that all replies converted for old
    /// consumers may take until they are sent.
    pub converted_memory_bytes: usize,
    /// `krust.worker.threads`; counts at the start only.
    pub worker_threads: usize,
    /// `connection.failed.authentication.delay.ms`.
    pub failed_authentication_delay_ms: i64,
    /// `replica.lag.time.max.ms`.
    pub replica_lag_time_max_ms: i64,
    /// `replica.selector.class`.
    pub replica_selector: ReplicaSelector,
    /// The transaction coordinator.
    pub transactions: TransactionSettings,
    /// `quota.window.num`, `quota.window.size.seconds`; count at the start only.
    pub quota_windows: QuotaWindows,
    /// `leader.replication.throttled.rate`: bytes a second for throttled leaders on this broker;
    /// `i64::MAX`: no limit.
    pub leader_throttled_bytes_per_second: i64,
    /// `replication.quota.window.num`, `replication.quota.window.size.seconds`; count at the start
    /// only.
    pub replication_quota_windows: QuotaWindows,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_id: 0,
            inter_broker_listener: None,
            also_inter_broker: Vec::new(),
            lone_listener: None,
            auto_create_topics: true,
            fetch_max_bytes: 57_671_680,
            fetchers: FetcherSettings::default(),
            inter_broker: InterBrokerSettings::default(),
            fetch_sessions: SessionLimits::default(),
            partitions_per_answer: 2000,
            connection_grace_ms: -1,
            group_load_wait_ms: 10_000,
            offset_metadata_max_bytes: 4096,
            offsets_commit_timeout_ms: 5000,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            offsets_retention_check_ms: 600_000,
            recovery_threads_per_dir: 2,
            policy_timeout_ms: 300_000,
            request_memory_bytes: 256 << 20,
            policy_request_bytes: 8 << 20,
            policy_response_bytes: 64 << 20,
            converted_memory_bytes: 64 << 20,
            worker_threads: 2,
            failed_authentication_delay_ms: 100,
            replica_lag_time_max_ms: 30_000,
            replica_selector: ReplicaSelector::Leader,
            transactions: TransactionSettings::default(),
            quota_windows: QuotaWindows::default(),
            leader_throttled_bytes_per_second: i64::MAX,
            replication_quota_windows: QuotaWindows::default(),
        }
    }
}

/// The broker. See the module.
pub struct Broker {
    pub(crate) me: Weak<Self>,
    pub(crate) settings: ArcSwap<Settings>,
    pub(crate) image: ArcSwap<ClusterImage>,
    /// The image's number, which rises with each new image. Threads compare it before they take the
    /// new `Arc`.
    pub(crate) image_number: AtomicU64,
    pub(crate) applying: Mutex<()>,
    pub(crate) log_manager: LogManager,
    pub(crate) progress: Arc<StartProgress>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) mailbox: OnceLock<Arc<dyn Mailbox<Wake>>>,
    pub(crate) syncer: OnceLock<Arc<Syncer>>,
    pub(crate) log_scheduler: OnceLock<Arc<LogScheduler>>,
    pub(crate) cleaner: OnceLock<Arc<Cleaner>>,
    pub(crate) future_replicas: OnceLock<Arc<FutureReplicas>>,
    pub(crate) fetchers: OnceLock<Arc<dyn ReplicaFetchers>>,
    pub(crate) inter_broker: OnceLock<Arc<dyn InterBroker>>,
    inter_broker_security: ArcSwapOption<ClientSecurity>,
    /// What clients must prove on listeners with SASL.
    pub(crate) logins: Logins,
    /// The name of clients without a login and without a certificate.
    pub(crate) anonymous: Arc<str>,
    /// Who may do what; unset: everybody everything.
    pub(crate) authorizer: OnceLock<Authorizer>,
    /// What throttled followers on this broker may fetch.
    pub(crate) follower_quota: ReplicationQuota,
    /// What throttled leaders on this broker may send.
    pub(crate) leader_quota: ReplicationQuota,
    /// The memory of all requests, without read buffers.
    pub(crate) memory: Arc<MemoryPool>,
    /// Memory of all converted replies until they are sent.
    pub(crate) converted_memory: Arc<MemoryPool>,
    pub(crate) workers: Workers,
    /// The longest that a network thread was busy for one connection.
    pub(crate) work: WorkMeter,
    /// Logs requests that are too large for the policy.
    pub(crate) too_large: LimitedWarning,
    /// Logs logins that failed.
    pub(crate) failed_login: LimitedWarning,
    pub(crate) tickets: Tickets,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) proven: ProvenBounds,
    pub(crate) groups: Groups,
    pub(crate) transactions: Transactions,
    /// Set when the broker closes, so that replays of coordinators end.
    pub(crate) replays_stop: AtomicBool,
    pub(crate) quotas: Quotas,
    pub(crate) replication: Arc<ReplicationContext>,
    pub(crate) peer_reach: PeerReach,
    pub(crate) selected_replicas: SelectedReplicas,
    /// The number of the last connection.
    pub(crate) connections: AtomicU64,
}

/// A warning that a peer can cause. It is logged at most once a second, with the number of those
/// left out.
#[derive(Debug, Default)]
pub(crate) struct LimitedWarning(Mutex<(Option<i64>, u64)>);

impl LimitedWarning {
    /// Logs the warning now, or counts it as left out.
    pub(crate) fn warn(&self, now_ms: i64, say: impl FnOnce(u64)) {
        let mut state = self.0.lock();
        let (said_ms, more) = *state;
        if said_ms.is_some_and(|said_ms| now_ms < said_ms + 1000) {
            state.1 = more + 1;
        } else {
            *state = (Some(now_ms), 0);
            say(more);
        }
    }
}

impl Broker {
    /// A broker over opened log directories.
    pub fn new(
        settings: Settings,
        log_manager: LogManager,
        policy: Arc<dyn Policy>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let groups = Groups::default();
        groups.snapshots.set_grace(settings.connection_grace_ms);
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            fetch_sessions: FetchSessions::new(settings.fetch_sessions),
            quotas: Quotas::new(settings.quota_windows),
            leader_quota: ReplicationQuota::new(
                settings.leader_throttled_bytes_per_second,
                settings.replication_quota_windows,
            ),
            follower_quota: ReplicationQuota::new(
                settings.fetchers.throttled_bytes_per_second,
                settings.replication_quota_windows,
            ),
            memory: MemoryPool::new(settings.request_memory_bytes),
            converted_memory: MemoryPool::new(settings.converted_memory_bytes),
            workers: Workers::new(settings.worker_threads),
            work: WorkMeter::default(),
            settings: ArcSwap::from_pointee(settings),
            image: ArcSwap::from_pointee(ClusterImage::empty()),
            image_number: AtomicU64::new(0),
            applying: Mutex::new(()),
            log_manager,
            replication: ReplicationContext::new(Arc::clone(&clock)),
            progress: Arc::default(),
            clock,
            policy,
            mailbox: OnceLock::new(),
            syncer: OnceLock::new(),
            log_scheduler: OnceLock::new(),
            cleaner: OnceLock::new(),
            future_replicas: OnceLock::new(),
            fetchers: OnceLock::new(),
            inter_broker: OnceLock::new(),
            inter_broker_security: ArcSwapOption::empty(),
            logins: Logins::new(),
            anonymous: ANONYMOUS.into(),
            authorizer: OnceLock::new(),
            too_large: LimitedWarning::default(),
            failed_login: LimitedWarning::default(),
            tickets: Tickets::default(),
            producer_ids: ProducerIds::default(),
            proven: Default::default(),
            groups,
            transactions: Transactions::default(),
            replays_stop: AtomicBool::new(false),
            peer_reach: PeerReach::default(),
            selected_replicas: SelectedReplicas::default(),
            connections: AtomicU64::new(0),
        })
    }

    /// Sets the mailbox that wakes network threads. Only the first call counts.
    pub fn connect(&self, mailbox: Arc<dyn Mailbox<Wake>>) {
        let wait_ms = self.settings.load().group_load_wait_ms;
        self.groups.have_requests_wait(self.clock.monotonic_ms().saturating_add(wait_ms));
        let _ = self.mailbox.set(mailbox);
    }

    /// Sets the TLS and the login of connections to other brokers.
    pub fn set_inter_broker_security(&self, security: ClientSecurity) {
        self.inter_broker_security.store(Some(Arc::new(security)));
    }

    /// The TLS and the login of connections to other brokers.
    pub fn inter_broker_security(&self) -> ClientSecurity {
        self.inter_broker_security.load().as_deref().cloned().unwrap_or_default()
    }

    /// Sets what the listeners with SASL ask of their clients, by name.
    pub fn set_logins(&self, listeners: HashMap<Arc<str>, Arc<ListenerLogins>>) {
        self.logins.set(listeners);
    }

    /// Sets the keys that sign the tokens of a listener with OAUTHBEARER.
    pub fn set_token_keys(&self, listener: &str, keys: KeySet) {
        self.logins.set_keys(listener, keys);
    }

    /// How many tokens had a key that is not among those, since the start.
    pub fn missing_token_keys(&self) -> u64 {
        self.logins.missing_keys()
    }

    /// Sets how the subjects of clients' certificates become names of users, by listener.
    pub fn set_principal_rules(&self, rules: HashMap<Arc<str>, Arc<PrincipalRules>>) {
        self.logins.set_rules(rules);
    }

    /// Has ACLs decide what clients may do, from the connections on that begin later. Only the
    /// first call counts.
    ///
    /// super_users     names of principals to whom everything is allowed (`super.users`)
    /// allow_everyone  resources without an ACL are everybody's (`allow.everyone.if.no.acl.found`)
    pub fn set_authorizer(&self, super_users: HashSet<String>, allow_everyone: bool) {
        let _ = self.authorizer.set(Authorizer { super_users, allow_everyone, class: None });
    }

    /// How many logins have failed since the start.
    pub fn failed_logins(&self) -> u64 {
        self.logins.failed()
    }

    /// Sets the threads that ask other brokers. Only the first call counts.
    pub fn set_inter_broker(&self, threads: Arc<dyn InterBroker>) {
        let _ = self.inter_broker.set(threads);
    }

    /// Another broker's address and the threads that ask it; `None`: it cannot be asked now.
    pub(crate) fn peer(&self, broker: i32) -> Option<(PeerAddress, &Arc<dyn InterBroker>)> {
        let settings = self.settings.load();
        let listener = settings.inter_broker_listener.as_ref()?;
        let address = self.image.load().peer_address(broker, listener)?;
        Some((address, self.inter_broker.get()?)).filter(|_| broker != settings.node_id)
    }

    /// The newest image.
    pub fn image(&self) -> Arc<ClusterImage> {
        self.image.load_full()
    }

    /// What throttled followers on this broker may fetch.
    pub fn follower_quota(&self) -> &ReplicationQuota {
        &self.follower_quota
    }

    /// Monotonic milliseconds.
    pub fn monotonic_ms(&self) -> i64 {
        self.clock.monotonic_ms()
    }

    /// The current settings.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// The progress of opening logs. Its observer may cancel the start.
    pub fn progress(&self) -> &Arc<StartProgress> {
        &self.progress
    }

    /// The memory that all requests may take together.
    pub fn memory(&self) -> &Arc<MemoryPool> {
        &self.memory
    }

    /// The memory that all replies converted for old consumers may take together.
    pub fn converted_memory(&self) -> &Arc<MemoryPool> {
        &self.converted_memory
    }

    /// The most work that a network thread did for one connection while others waited.
    pub fn work(&self) -> &WorkMeter {
        &self.work
    }

    /// The other brokers that this one may connect to.
    pub fn peer_reach(&self) -> &PeerReach {
        &self.peer_reach
    }

    /// Replaces the settings.
    pub fn set_settings(&self, settings: Settings) {
        self.fetch_sessions.set_limits(settings.fetch_sessions);
        self.memory.set_limit(settings.request_memory_bytes);
        self.converted_memory.set_limit(settings.converted_memory_bytes);
        self.groups.snapshots.set_grace(settings.connection_grace_ms);
        self.leader_quota.set_rate(settings.leader_throttled_bytes_per_second);
        self.follower_quota.set_rate(settings.fetchers.throttled_bytes_per_second);
        let before = self.settings.swap(Arc::new(settings));
        if before.fetchers.threads != self.settings.load().fetchers.threads
            && let Some(fetchers) = self.fetchers.get()
        {
            fetchers.reconfigure();
        }
    }

    /// Takes the policy's answer to an event. A ticket that is not open is ignored.
    ///
    /// Errors: the value is no response of the event's API. The client's connection is then closed,
    /// so that the client does not wait for ever.
    pub fn answer(&self, ticket: Ticket, response: &Value) -> Result<(), ValueError> {
        if let Some(TicketHolder::Request { thread, delayed, question }) =
            self.tickets.purpose(ticket)
        {
            let (wake, outcome) = match question.answered(response) {
                Ok(PolicyAnswer::Whole(output)) => (Wake::Answer(delayed, output), Ok(())),
                Ok(PolicyAnswer::Slice(part)) => match question.proceed(ticket, part) {
                    Ok(next) => {
                        self.policy.submit(*next);
                        return Ok(());
                    }
                    Err(output) => (Wake::Answer(delayed, output), Ok(())),
                },
                Err(error) => (Wake::Fail(delayed), Err(error)),
            };
            if self.tickets.close(ticket).is_some() {
                self.post(thread, wake);
            }
            return outcome;
        }
        match self.tickets.close(ticket) {
            Some(TicketHolder::Request { .. }) | None => Ok(()),
            Some(TicketHolder::AutoCreate { thread, delayed }) => {
                self.post(thread, Wake::Created(delayed, decisions::refused_topics(response)));
                Ok(())
            }
            Some(TicketHolder::ProducerIds) => self.producer_ids_came(response),
            Some(TicketHolder::AlterPartition) => {
                self.proposals_answered(ticket, response);
                Ok(())
            }
            Some(TicketHolder::SelectReplicas) => {
                self.replicas_selected(ticket, response);
                Ok(())
            }
        }
    }

    /// Counts and logs a client that did not prove who it is.
    pub(crate) fn login_failed(&self, peer: &Peer, reason: &str) {
        self.logins.count_failed();
        self.failed_login.warn(self.clock.monotonic_ms(), |more| {
            tracing::warn!(
                peer = %peer.remote,
                listener = %peer.listener,
                more,
                "a login failed ({reason})"
            );
        });
    }

    pub(crate) fn post(&self, thread: usize, wake: Wake) {
        if let Some(mailbox) = self.mailbox.get() {
            mailbox.post(thread, wake);
        }
    }

    /// Updates a thread's image if it is not the newest.
    pub(crate) fn refresh(&self, thread: &mut ThreadState) {
        let number = self.image_number.load(Ordering::Acquire);
        if thread.image_number != number {
            thread.image_number = number;
            thread.image = self.image.load_full();
        }
    }
}

impl Mailbox<Wake> for Broker {
    fn post(&self, thread: usize, wake: Wake) {
        Self::post(self, thread, wake);
    }
}

impl Waker for Broker {
    fn wake(&self, thread: usize, delayed: DelayedId) {
        self.post(thread, Wake::Recheck(delayed));
    }

    fn isr_proposed(&self) {
        self.send_proposals();
    }
}
