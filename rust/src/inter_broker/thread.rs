//! The loop of one thread: it takes what is queued, connects, asks, and ends the requests.
//!
//! After a failure the requests on their way end with an error, and so do those that were queued
//! meanwhile. The next attempt to connect comes after a pause that doubles up to [`LONGEST_PAUSE`];
//! requests that arrive in the pause wait for that attempt.
//! Threads: one for the loop; any thread pushes.
//! Invariant: a queue that has ended is empty, and refuses requests.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{PeerApi, QUEUED_MAX};
use crate::broker::Broker;
use crate::broker::image::PeerAddress;
use crate::client::connection::{ApiRequest, ApiResponse, BrokerConnection};
use crate::client::error::{Error, Result};
use crate::client::options::Wait;
use crate::client::{Address, ClientOptions, Interrupt};
use crate::protocol::ErrorCode;
use crate::transport::ClientSecurity;

/// The first pause after a failure. It doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A response names each partition of a request once.
const RESPONSE_MAX: usize = 64 << 20;

/// The requests that wait for a thread.
pub(super) struct PeerQueue<A> {
    state: Mutex<QueueState<A>>,
    pushed: Condvar,
}

struct QueueState<A> {
    waiting: VecDeque<A>,
    is_stopped: bool,
    /// The thread takes no more requests.
    has_ended: bool,
}

impl<A: PeerApi> PeerQueue<A> {
    /// A queue with its first request.
    pub fn of(first: A) -> Self {
        let waiting = VecDeque::from([first]);
        let state = QueueState { waiting, is_stopped: false, has_ended: false };
        Self { state: Mutex::new(state), pushed: Condvar::new() }
    }

    /// Adds a request. Errors: the thread has ended, or too many wait.
    pub fn push(&self, request: A) -> std::result::Result<(), A> {
        let mut state = self.state.lock();
        if state.has_ended || state.waiting.len() >= QUEUED_MAX {
            return Err(request);
        }
        state.waiting.push_back(request);
        self.pushed.notify_one();
        Ok(())
    }

    /// Has the thread end soon.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.pushed.notify_one();
    }

    /// Whether the thread takes no more requests.
    pub fn is_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Ends the queue. Returns the requests that waited.
    pub fn end(&self) -> VecDeque<A> {
        let mut state = self.state.lock();
        state.has_ended = true;
        std::mem::take(&mut state.waiting)
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Takes all requests that wait.
    fn take_all(&self) -> VecDeque<A> {
        std::mem::take(&mut self.state.lock().waiting)
    }

    /// Waits for requests, at most for `idle`, and takes a batch. `None`: the thread must end.
    fn next(&self, idle: Duration) -> Option<Vec<A>> {
        let deadline = Instant::now() + idle;
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            if !state.waiting.is_empty() {
                return Some(A::take_batch(&mut state.waiting));
            }
            if self.pushed.wait_until(&mut state, deadline).timed_out() && state.waiting.is_empty()
            {
                state.has_ended = true;
                return None;
            }
        }
    }

    /// Sleeps until `at`, unless the thread must end.
    fn sleep(&self, at: Instant) {
        let mut state = self.state.lock();
        while !state.is_stopped && !self.pushed.wait_until(&mut state, at).timed_out() {}
    }
}

/// Ends waits when the thread is to end.
struct OnStop<A>(Arc<PeerQueue<A>>);

impl<A: PeerApi> Interrupt for OnStop<A> {
    fn interrupted(&self) -> bool {
        self.0.is_stopped()
    }
}

/// A connection for one request.
pub(super) struct OpenPeer<'c> {
    pub connection: &'c mut BrokerConnection,
    wait: Wait,
}

impl OpenPeer<'_> {
    /// Sends a request and waits for its response.
    pub fn call(&mut self, call: &ApiRequest<'_>) -> Result<ApiResponse> {
        self.connection.call(call, &self.wait)
    }
}

/// A thread that asks one peer.
pub(super) struct PeerThread<A: PeerApi> {
    broker: Weak<Broker>,
    peer: PeerAddress,
    queue: Arc<PeerQueue<A>>,
    open: Option<BrokerConnection>,
    /// Attempts that failed in a row.
    failures: u32,
}

impl<A: PeerApi> PeerThread<A> {
    pub fn new(broker: Weak<Broker>, peer: PeerAddress, queue: Arc<PeerQueue<A>>) -> Self {
        Self { broker, peer, queue, open: None, failures: 0 }
    }

    /// Asks until it is stopped, has nothing to ask for long, or the broker is gone.
    pub fn run(&mut self) {
        let _end = EndsQueue(Arc::clone(&self.queue));
        while let Some(broker) = self.broker.upgrade() {
            let settings = broker.settings().inter_broker;
            drop(broker);
            let idle = Duration::from_millis(settings.idle_ms);
            let Some(mut batch) = self.queue.next(idle) else { return };
            let timeout = Duration::from_millis(settings.request_timeout_ms);
            match self.ask(&mut batch, timeout) {
                Ok(()) => self.failures = 0,
                Err(error) => self.lost(batch, &error),
            }
        }
    }

    fn ask(&mut self, batch: &mut Vec<A>, timeout: Duration) -> Result<()> {
        let Some(broker) = self.broker.upgrade() else { return Err(Error::Interrupted) };
        self.check_reach(&broker)?;
        let interrupt: Arc<dyn Interrupt> = Arc::new(OnStop(Arc::clone(&self.queue)));
        let (node, security) = (broker.settings().node_id, broker.inter_broker_security());
        drop(broker);
        // A peer that ended the connection while it was idle has been asked nothing.
        let is_open = |open: &mut BrokerConnection| open.ready().is_ok_and(|is_ready| !is_ready);
        let mut open = self.open.take();
        let connection = match open.as_mut().is_some_and(is_open).then_some(open).flatten() {
            Some(open) => open,
            None => self.connect((node, security), timeout, &interrupt)?,
        };
        let connection = self.open.insert(connection);
        let mut peer = OpenPeer { connection, wait: Wait::new(timeout, interrupt) };
        A::ask(batch, &mut peer)
    }

    fn connect(
        &self,
        (node, security): (i32, ClientSecurity),
        timeout: Duration,
        interrupt: &Arc<dyn Interrupt>,
    ) -> Result<BrokerConnection> {
        let address = Address { host: self.peer.host.to_string(), port: self.peer.port };
        let options = ClientOptions {
            client_id: format!("broker-{node}-{}", A::NAME),
            connect_timeout: timeout,
            request_timeout: timeout,
            max_frame_bytes: RESPONSE_MAX,
            security,
            interrupt: Arc::clone(interrupt),
            ..ClientOptions::new(Vec::new())
        };
        BrokerConnection::open(&address, &options, &options.wait(timeout))
    }

    /// The requests of a batch end, and those that waited meanwhile.
    fn lost(&mut self, batch: Vec<A>, error: &Error) {
        self.open = None;
        let is_stopped = matches!(error, Error::Interrupted);
        if self.failures == 0 && !is_stopped {
            let broker = self.peer.broker;
            tracing::warn!(broker, "no answer to requests of transactions: {error}");
        }
        let code = match error {
            Error::Timeout { .. } => ErrorCode::RequestTimedOut,
            Error::Unsupported { .. } => ErrorCode::UnsupportedVersion,
            _ => ErrorCode::NetworkException,
        };
        let waited = self.queue.take_all();
        batch.into_iter().chain(waited).for_each(|request| request.fail(code));
        if !is_stopped {
            let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
            self.failures = self.failures.saturating_add(1);
            self.queue.sleep(Instant::now() + pause);
        }
    }

    /// An error if a test cut this broker off from the peer.
    fn check_reach(&self, broker: &Broker) -> Result<()> {
        if broker.peer_reach().reaches(self.peer.broker) {
            return Ok(());
        }
        let address = format!("{}:{}", self.peer.host, self.peer.port);
        let reason = "this broker is cut off from it".to_owned();
        Err(Error::Connect { address, reason, advertised: true })
    }
}

/// Ends the requests that wait when the thread ends, even by a panic.
struct EndsQueue<A: PeerApi>(Arc<PeerQueue<A>>);

impl<A: PeerApi> Drop for EndsQueue<A> {
    fn drop(&mut self) {
        self.0.end().into_iter().for_each(|request| request.fail(ErrorCode::NetworkException));
    }
}
