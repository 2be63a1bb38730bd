//! The loop of one fetcher: connect to the leader, ask, wait, append.
//!
//! ```text
//! connect --versions agreed--> ask what is no Fetch --no question is left--> Fetch --answer--> ask
//! any --connection lost, refused as a whole--> pause --> connect
//! Fetch that waits --a partition is new--> connect
//! ```
//! A Fetch may wait for `replica.fetch.wait.max.ms`. A partition that is new does not wait that
//! long: the thread leaves the connection, and with it the session, and starts again. It does so
//! only while no byte of the answer has come, and looks every 50 ms. A pause lasts from 50 ms to
//! `replica.fetch.backoff.ms`.
//! Threads: one. It ends within 50 ms after [`Inbox::stop`], and the time of the append it does.
//! What a leader sends is checked as what any peer sends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::partitions::{PartitionTable, Questions};
use super::request::{
    self, FETCH, FetchVersions, FollowerIdentity, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH,
};
use super::response::Answers;
use super::session::FetcherSession;
use crate::broker::fetching::FetcherSettings;
use crate::broker::image::PeerAddress;
use crate::broker::{Broker, Partition};
use crate::client::connection::{ApiRequest, ApiResponse, BrokerConnection};
use crate::client::options::Wait;
use crate::client::{Address, ClientOptions, Error, Interrupt, Result};
use crate::ids::Epoch;
use crate::protocol::ErrorCode;
use crate::protocol::fetch::FetchResponse;
use crate::protocol::list_offsets::ListOffsetsResponse;
use crate::protocol::offset_for_leader_epoch::OffsetForLeaderEpochResponse;
use crate::storage::AppendError;
use crate::wire::Writer;

/// The first pause after a connection was lost. It doubles with each attempt that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How often it is checked whether the rate of throttled partitions has risen.
const THROTTLE_CHECK: Duration = Duration::from_millis(500);
/// How often a partition may ask in a row what is no Fetch. Each answer brings it nearer to its
/// leader, or is from a leader that contradicts itself.
const QUESTIONS_MAX: usize = 1000;
/// What ListOffsets calls the first offset and the one after the last.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// What changes for a thread.
pub(super) enum PartitionChange {
    /// It fetches the partition, in this leader epoch.
    Begin(Arc<Partition>, Epoch),
    /// It does not fetch the partition any more.
    End(Arc<Partition>),
}

/// How other threads reach a fetcher.
#[derive(Default)]
pub(super) struct Inbox {
    changes: Mutex<Vec<PartitionChange>>,
    posted: Condvar,
    /// A change must not wait for the answer to a Fetch.
    is_urgent: AtomicBool,
    is_stopped: AtomicBool,
}

impl Inbox {
    pub fn post(&self, changes: Vec<PartitionChange>) {
        let begins = changes.iter().any(|change| matches!(change, PartitionChange::Begin(..)));
        let mut all = self.changes.lock();
        all.extend(changes);
        self.is_urgent.fetch_or(begins, Ordering::AcqRel);
        self.posted.notify_one();
    }

    /// Has the thread end soon.
    pub fn stop(&self) {
        let _changes = self.changes.lock();
        self.is_stopped.store(true, Ordering::Release);
        self.posted.notify_one();
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn take(&self) -> Vec<PartitionChange> {
        let mut changes = self.changes.lock();
        self.is_urgent.store(false, Ordering::Release);
        std::mem::take(&mut changes)
    }

    /// Sleeps until a change is posted; at most until `at`.
    fn sleep(&self, at: Option<Instant>) {
        let mut changes = self.changes.lock();
        if !changes.is_empty() || self.is_stopped() {
            return;
        }
        match at {
            Some(at) => drop(self.posted.wait_until(&mut changes, at)),
            None => self.posted.wait(&mut changes),
        }
    }
}

/// Ends waits when the thread is to end.
struct OnStop(Arc<Inbox>);

impl Interrupt for OnStop {
    fn interrupted(&self) -> bool {
        self.0.is_stopped()
    }
}

/// Ends the wait for an answer also when a partition is new.
struct OnChange(Arc<Inbox>);

impl Interrupt for OnChange {
    fn interrupted(&self) -> bool {
        self.0.is_stopped() || self.0.is_urgent.load(Ordering::Acquire)
    }
}

/// An open connection to the leader, and what it serves.
struct OpenConnection {
    connection: BrokerConnection,
    versions: FetchVersions,
}

/// A fetcher.
pub(super) struct FetcherThread {
    broker: Weak<Broker>,
    source: PeerAddress,
    index: usize,
    inbox: Arc<Inbox>,
    table: PartitionTable,
    session: FetcherSession,
    open: Option<OpenConnection>,
    /// Attempts that failed in a row.
    failures: u32,
    retry_at: Option<Instant>,
}

impl FetcherThread {
    pub fn new(
        broker: Weak<Broker>,
        (source, index): (PeerAddress, usize),
        inbox: Arc<Inbox>,
    ) -> Self {
        Self {
            broker,
            source,
            index,
            inbox,
            table: PartitionTable::new(),
            session: FetcherSession::default(),
            open: None,
            failures: 0,
            retry_at: None,
        }
    }

    /// Fetches until it is stopped, or the broker is gone.
    pub fn run(&mut self) {
        while !self.inbox.is_stopped() {
            let Some(broker) = self.broker.upgrade() else { return };
            self.take_changes();
            let settings = broker.settings();
            let sleeps_until = match self.turn(&broker, &settings.fetchers) {
                Ok(until) => until,
                Err(error) => self.lost(&error, &settings.fetchers),
            };
            drop(broker);
            if let Some(until) = sleeps_until {
                self.inbox.sleep(until);
            }
        }
    }

    fn take_changes(&mut self) {
        for change in self.inbox.take() {
            match change {
                PartitionChange::Begin(partition, leader_epoch) => {
                    if let Some(open) = &self.open {
                        partition.begin_fetching(leader_epoch, open.versions.say_divergence());
                    }
                    self.table.begin(partition, leader_epoch);
                }
                PartitionChange::End(partition) => self.table.end(&partition),
            }
        }
    }

    /// One request and its answer. Returns until when the thread sleeps, if it does (`None` inside:
    /// until a change is posted).
    fn turn(
        &mut self,
        broker: &Arc<Broker>,
        settings: &FetcherSettings,
    ) -> Result<Option<Option<Instant>>> {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return Ok(Some(self.retry_at));
        }
        if self.table.is_empty() {
            return Ok(Some(None));
        }
        check_reach(broker, &self.source)?;
        let (version, by_id) = self.connect(broker, settings)?.pick(self.table.has_ids());
        if !self.session.goes_on(by_id) {
            self.table.reset_session();
        }
        let node_id = broker.settings().node_id;
        let replica = FollowerIdentity { node_id, broker_epoch: broker.image().broker_epoch };
        self.ask(broker, (settings, replica))?;
        let Some(open) = &mut self.open else { return Ok(None) };
        let mut changes = self.table.take_changes(by_id);
        if self.session.is_full() {
            self.table.in_turn(&mut changes.send);
        }
        if self.table.is_session_empty() {
            self.session.reset();
            return Ok(Some(self.table.next_retry()));
        }
        let request = request::fetch(&self.table, (&self.session, &changes), (settings, replica));
        let encode = |writer: &mut Writer| request.encode(writer, version);
        let call = ApiRequest { key: FETCH, version, encode: &encode };
        let timeout = Duration::from_millis(settings.socket_timeout_ms)
            + Duration::from_millis(u64::try_from(settings.wait_max_ms).unwrap_or(0));
        let waits = Waits::new(&self.inbox, timeout);
        open.connection.send(&call, &waits.until_stopped)?;
        open.connection.await_response(&waits.until_changed)?;
        let reply = open.connection.receive(&waits.until_stopped)?;
        check_reach(broker, &self.source)?;
        self.fetched(broker, (&reply, by_id), settings).map(|()| None)
    }

    /// Carries out the answer to a Fetch.
    fn fetched(
        &mut self,
        broker: &Arc<Broker>,
        (reply, by_id): (&ApiResponse, bool),
        settings: &FetcherSettings,
    ) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let response = FetchResponse::decode(&mut reply.body(), reply.version)
            .map_err(|error| open.connection.bad(error))?;
        if response.error_code != 0 {
            let error = ErrorCode::from(response.error_code);
            return match self.session.refused(error) {
                true => Ok(()),
                false => Err(Error::refused(response.error_code, "Fetch")),
            };
        }
        if std::mem::take(&mut self.failures) > 0 {
            tracing::info!(leader = self.source.broker, "its partitions are fetched again");
        }
        self.session.answered(response.session_id);
        answers(&mut self.table, broker, settings).fetched(&response, by_id);
        Ok(())
    }

    /// Asks what is no Fetch, until no partition has such a question.
    fn ask(
        &mut self,
        broker: &Arc<Broker>,
        (settings, replica): (&FetcherSettings, FollowerIdentity),
    ) -> Result<()> {
        for _ in 0..QUESTIONS_MAX {
            let (questions, failed) = self.table.questions(throttled_until(broker), &**broker);
            let mut answers = answers(&mut self.table, broker, settings);
            for (slot, error) in failed {
                answers.failed(slot, &AppendError::Storage(error));
            }
            if questions.is_empty() {
                return Ok(());
            }
            self.ask_ends(broker, &questions, (settings, replica))?;
            self.ask_bounds(broker, &questions, (settings, replica))?;
        }
        let source = &self.source;
        let reason = "its answers on the ends of epochs contradict each other".to_owned();
        Err(Error::Protocol { address: format!("{}:{}", source.host, source.port), reason })
    }

    fn ask_ends(
        &mut self,
        broker: &Arc<Broker>,
        questions: &Questions,
        (settings, replica): (&FetcherSettings, FollowerIdentity),
    ) -> Result<()> {
        let Some(request) = request::ends_of_epochs(&self.table, questions, replica) else {
            return Ok(());
        };
        let Some(open) = &mut self.open else { return Ok(()) };
        let version = open.connection.version(OFFSET_FOR_LEADER_EPOCH, i16::MAX)?;
        let encode = |writer: &mut Writer| request.encode(writer, version);
        let call = ApiRequest { key: OFFSET_FOR_LEADER_EPOCH, version, encode: &encode };
        let reply = call_now(&mut open.connection, &call, (&self.inbox, settings))?;
        check_reach(broker, &self.source)?;
        let response = OffsetForLeaderEpochResponse::decode(&mut reply.body(), version)
            .map_err(|error| open.connection.bad(error))?;
        answers(&mut self.table, broker, settings).epochs_end(questions, &response);
        Ok(())
    }

    fn ask_bounds(
        &mut self,
        broker: &Arc<Broker>,
        questions: &Questions,
        (settings, replica): (&FetcherSettings, FollowerIdentity),
    ) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let mut replies = Vec::new();
        for timestamp in [EARLIEST, LATEST] {
            let asked = request::bounds(&self.table, questions, (timestamp, replica));
            let Some(request) = asked else { return Ok(()) };
            let version = request::list_offsets_version(&open.connection)?;
            let encode = |writer: &mut Writer| request.encode(writer, version);
            let call = ApiRequest { key: LIST_OFFSETS, version, encode: &encode };
            replies.push(call_now(&mut open.connection, &call, (&self.inbox, settings))?);
        }
        check_reach(broker, &self.source)?;
        let responses = replies
            .iter()
            .map(|reply| ListOffsetsResponse::decode(&mut reply.body(), reply.version))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| open.connection.bad(error))?;
        if let [earliest, latest] = responses.as_slice() {
            answers(&mut self.table, broker, settings).bounds(questions, (earliest, latest));
        }
        Ok(())
    }

    /// Opens the connection, if there is none. Returns the versions that the leader serves.
    fn connect(&mut self, broker: &Broker, settings: &FetcherSettings) -> Result<FetchVersions> {
        if let Some(open) = &self.open {
            return Ok(open.versions);
        }
        let timeout = Duration::from_millis(settings.socket_timeout_ms);
        let options = ClientOptions {
            client_id: format!("broker-{}-fetcher-{}", broker.settings().node_id, self.index),
            connect_timeout: timeout,
            request_timeout: timeout,
            // A batch may be larger than any setting of this broker. The buffer grows with the
            // bytes that come, and a leader is of this cluster.
            max_frame_bytes: i32::MAX as usize,
            security: broker.inter_broker_security(),
            interrupt: Arc::new(OnStop(Arc::clone(&self.inbox))),
            ..ClientOptions::new(Vec::new())
        };
        let address = Address { host: self.source.host.to_string(), port: self.source.port };
        let connection = BrokerConnection::open(&address, &options, &options.wait(timeout))?;
        let versions = FetchVersions::of(&connection)?;
        self.session.reset();
        for (_, fetched) in self.table.iter() {
            let says_divergence = versions.say_divergence();
            fetched.partition.begin_fetching(fetched.leader_epoch, says_divergence);
        }
        self.open = Some(OpenConnection { connection, versions });
        Ok(versions)
    }

    /// The connection is lost, or is left because of a change. Returns until when to sleep.
    fn lost(&mut self, error: &Error, settings: &FetcherSettings) -> Option<Option<Instant>> {
        self.open = None;
        if matches!(error, Error::Interrupted) {
            return None;
        }
        if self.failures == 0 {
            let source = &self.source;
            tracing::warn!(leader = source.broker, "its partitions cannot be fetched: {error}");
        }
        let longest = Duration::from_millis(settings.backoff_ms);
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(Instant::now() + pause);
        Some(self.retry_at)
    }
}

/// An error if a test cut this broker off from the leader.
fn check_reach(broker: &Broker, source: &PeerAddress) -> Result<()> {
    if broker.peer_reach().reaches(source.broker) {
        return Ok(());
    }
    let address = format!("{}:{}", source.host, source.port);
    let reason = "this broker is cut off from it".to_owned();
    Err(Error::Connect { address, reason, advertised: true })
}

/// Until when throttled partitions wait, if they have to.
fn throttled_until(broker: &Broker) -> Option<Instant> {
    let wait_ms = broker.follower_quota().wait_ms(broker.monotonic_ms());
    let wait_ms = u64::try_from(wait_ms).ok().filter(|wait_ms| *wait_ms > 0)?;
    Some(Instant::now() + Duration::from_millis(wait_ms).min(THROTTLE_CHECK))
}

fn answers<'a>(
    table: &'a mut PartitionTable,
    broker: &'a Arc<Broker>,
    settings: &FetcherSettings,
) -> Answers<'a> {
    let longest_pause = Duration::from_millis(settings.backoff_ms);
    let quota = (broker.follower_quota(), broker.monotonic_ms());
    Answers { table, waker: &**broker, quota, longest_pause }
}

/// Sends a request that is answered at once.
fn call_now(
    connection: &mut BrokerConnection,
    call: &ApiRequest<'_>,
    (inbox, settings): (&Arc<Inbox>, &FetcherSettings),
) -> Result<ApiResponse> {
    let waits = Waits::new(inbox, Duration::from_millis(settings.socket_timeout_ms));
    connection.call(call, &waits.until_stopped)
}

/// The ways to wait for an answer.
struct Waits {
    until_stopped: Wait,
    until_changed: Wait,
}

impl Waits {
    fn new(inbox: &Arc<Inbox>, timeout: Duration) -> Self {
        let until_stopped = Wait::new(timeout, Arc::new(OnStop(Arc::clone(inbox))));
        let until_changed = Wait::new(timeout, Arc::new(OnChange(Arc::clone(inbox))));
        Self { until_stopped, until_changed }
    }
}
