//! The threads that send requests to other brokers: markers to leaders, questions to coordinators.
//!
//! ```text
//! mod     which thread sends which request; threads begin and end
//! thread  the loop of one thread: take what is queued, connect, ask, answer
//! markers, partitions  one API each: many requests as one message, and its answer for each
//! ```
//! There is a thread for each peer and API, because a broker answers a connection's requests in
//! order, and a marker may wait long for replicas. What is queued while a request is on its way
//! leaves in the next one. A thread without a request for `idle_ms` ends.
//! Threads: any thread may call [`InterBrokerThreads`]; its lock is held for a short time.
//! Limits: [`QUEUED_MAX`] requests for each peer and API; more end with NETWORK_EXCEPTION.
//! Promised: [`InterBroker::stop`] returns within 100 ms and the time of one callback. Every
//!     request's callback is called.
//! Not promised: that a request is not carried out if it ends with an error.

mod markers;
mod partitions;
mod thread;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use self::thread::{PeerQueue, PeerThread};
use crate::broker::Broker;
use crate::broker::image::PeerAddress;
use crate::broker::inter_broker::{InterBroker, PeerMarker, PeerPartitions};
use crate::protocol::ErrorCode;
use crate::storage::panics::caught;

/// The most requests that wait for one peer and API.
const QUEUED_MAX: usize = 50_000;

/// One kind of request to a peer.
trait PeerApi: Send + Sized + 'static {
    /// The API's name in the names of threads.
    const NAME: &'static str;

    /// Takes the requests that leave together: the oldest, and those that fit to it.
    fn take_batch(queue: &mut VecDeque<Self>) -> Vec<Self>;

    /// Sends a batch as one message, and ends its requests with the peer's answer. Errors: the
    /// requests have not ended.
    fn ask(
        batch: &mut Vec<Self>,
        peer: &mut thread::OpenPeer<'_>,
    ) -> crate::client::error::Result<()>;

    /// Ends the request with an error.
    fn fail(self, error: ErrorCode);
}

/// The threads of one API.
struct ApiThreads<A> {
    state: Mutex<ThreadsState<A>>,
}

struct ThreadsState<A> {
    running: HashMap<PeerAddress, RunningThread<A>>,
    /// Threads that are ending.
    ending: Vec<JoinHandle<()>>,
    is_stopped: bool,
}

struct RunningThread<A> {
    queue: Arc<PeerQueue<A>>,
    handle: JoinHandle<()>,
}

impl<A> Default for ApiThreads<A> {
    fn default() -> Self {
        let state = ThreadsState { running: HashMap::new(), ending: Vec::new(), is_stopped: false };
        Self { state: Mutex::new(state) }
    }
}

/// The threads of a broker.
pub struct InterBrokerThreads {
    broker: Weak<Broker>,
    failed: Arc<AtomicBool>,
    markers: ApiThreads<PeerMarker>,
    partitions: ApiThreads<PeerPartitions>,
}

impl InterBrokerThreads {
    /// Has `broker` send requests to other brokers from now on.
    pub fn start(broker: &Arc<Broker>) -> Arc<Self> {
        let threads = Arc::new(Self {
            broker: Arc::downgrade(broker),
            failed: Arc::default(),
            markers: ApiThreads::default(),
            partitions: ApiThreads::default(),
        });
        broker.set_inter_broker(Arc::clone(&threads) as _);
        threads
    }

    /// How many threads run.
    pub fn threads(&self) -> usize {
        let count = |handle: &JoinHandle<()>| usize::from(!handle.is_finished());
        let markers = self.markers.state.lock();
        let partitions = self.partitions.state.lock();
        let markers = markers.running.values().map(|it| count(&it.handle)).sum::<usize>();
        markers + partitions.running.values().map(|it| count(&it.handle)).sum::<usize>()
    }

    /// Queues a request, and starts the peer's thread if it has none.
    fn send<A: PeerApi>(&self, threads: &ApiThreads<A>, peer: &PeerAddress, request: A) {
        let refused = {
            let mut state = threads.state.lock();
            if state.is_stopped { Some(request) } else { self.queue(&mut state, peer, request) }
        };
        if let Some(request) = refused {
            request.fail(ErrorCode::NetworkException);
        }
    }

    /// Returns the request if it cannot be queued.
    fn queue<A: PeerApi>(
        &self,
        state: &mut ThreadsState<A>,
        peer: &PeerAddress,
        request: A,
    ) -> Option<A> {
        let request = match state.running.get(peer) {
            Some(running) => match running.queue.push(request) {
                Ok(()) => return None,
                Err(request) if running.queue.is_ended() => request,
                Err(request) => return Some(request),
            },
            None => request,
        };
        let ended = state.running.remove(peer).map(|ended| ended.handle);
        state.ending.extend(ended);
        state.ending.retain(|handle| !handle.is_finished());
        let queue = Arc::new(PeerQueue::of(request));
        match self.spawn(peer, Arc::clone(&queue)) {
            Ok(handle) => {
                state.running.insert(peer.clone(), RunningThread { queue, handle });
                None
            }
            Err(error) => {
                tracing::error!("no thread for requests to broker {}: {error}", peer.broker);
                self.failed.store(true, Ordering::Release);
                queue.end().pop_front()
            }
        }
    }

    fn spawn<A: PeerApi>(
        &self,
        peer: &PeerAddress,
        queue: Arc<PeerQueue<A>>,
    ) -> std::io::Result<JoinHandle<()>> {
        let name = format!("krust-{}-{}", A::NAME, peer.broker);
        let mut thread = PeerThread::new(Weak::clone(&self.broker), peer.clone(), queue);
        let failed = Arc::clone(&self.failed);
        std::thread::Builder::new().name(name.clone()).spawn(move || {
            if caught(&name, || thread.run()).is_none() {
                failed.store(true, Ordering::Release);
            }
        })
    }
}

impl<A: PeerApi> ApiThreads<A> {
    /// Has all threads end. Returns their handles.
    fn end(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.state.lock();
        state.is_stopped = true;
        let running = std::mem::take(&mut state.running);
        running.values().for_each(|thread| thread.queue.stop());
        let mut handles = std::mem::take(&mut state.ending);
        handles.extend(running.into_values().map(|thread| thread.handle));
        handles
    }
}

impl InterBroker for InterBrokerThreads {
    fn write_marker(&self, leader: &PeerAddress, request: PeerMarker) {
        self.send(&self.markers, leader, request);
    }

    fn add_partitions(&self, coordinator: &PeerAddress, request: PeerPartitions) {
        self.send(&self.partitions, coordinator, request);
    }

    fn stop(&self) {
        let handles = self.markers.end().into_iter().chain(self.partitions.end());
        // A thread that drops the broker as the last one comes here itself.
        let here = std::thread::current().id();
        for handle in handles.filter(|handle| handle.thread().id() != here) {
            if handle.join().is_err() {
                tracing::error!("a thread of requests to brokers panicked while it ended");
            }
        }
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

impl Drop for InterBrokerThreads {
    fn drop(&mut self) {
        self.stop();
    }
}
