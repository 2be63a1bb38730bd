//! A producer with a thread of its own: callers append records, the thread sends them.
//!
//! A caller adds a record to the open batch of its partition under one short lock and goes on. A
//! batch is closed when the next record does not fit or `linger` has passed; the thread seals it
//! (codec, checksum), sends it and takes the answers. A topic that is new is looked up by the
//! thread, and a full buffer is emptied by it: [`Sender::offer`] says [`Offer::Wait`] then, and
//! [`Sender::wait_for`] waits.
//! ```text
//! offer --full, linger, flush--> closed --thread: seal, send--> delivered --> take_delivered
//! ```
//! Invariant: `held_bytes` = uncompressed bytes of all batches that are not delivered; a record is
//!     taken while it is below `buffer_bytes`, so it passes that by one record at most.
//! Threads: any caller; one thread each Sender, from its making to [`Sender::close`]. The lock
//!     is never held while anything waits, so callers may hold other locks.
//! Not promised: that what is open when a Sender is dropped without `close` gets sent.

mod topics;

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::cluster::Cluster;
use super::error::{Error, Result};
use super::options::{Interrupt, Options, Wait};
use super::partitioner::{Sticky, by_key};
use super::producer::{Config, Delivered, Filled, Producer};
use crate::record::batch::{Builder, Entry};
use topics::{Known, Look, Open};

/// How long the thread asks for one topic before it looks after the others.
const TOPIC_ASK: Duration = Duration::from_millis(500);
/// Emptied builders kept for the next batches.
const SPARE: usize = 16;
/// Failures of batches that nobody watches, kept for [`Sender::take_delivered`] at most.
const UNWATCHED: usize = 1000;
/// What a record's lengths, deltas and attributes take at most.
const RECORD_OVERHEAD: usize = 36;

/// What became of an offered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is record `index` of the batch `ticket`.
    Taken {
        /// The batch, as [`Delivered`] will name it.
        ticket: u64,
        /// The place in it, from 0.
        index: i32,
    },
    /// Not taken: the topic is not known yet, or the buffer is full.
    Wait,
}

/// A closed batch on its way: what is to be told of it.
struct Pending {
    size: usize,
    watched: bool,
}

struct State {
    topics: HashMap<Arc<str>, Known>,
    /// Open batches in the order of opening: topic, partition, ticket, when its time is up.
    open: VecDeque<(Arc<str>, i32, u64, Instant)>,
    closed: Vec<Filled>,
    pending: HashMap<u64, Pending>,
    delivered: Vec<Delivered>,
    /// How many of those nobody watches.
    unwatched: usize,
    spare: Vec<Builder>,
    sticky: Sticky,
    next_ticket: u64,
    held_bytes: usize,
    /// Whoever flushes wants what is open closed now.
    flushing: bool,
    asleep: Option<Option<Instant>>,
    ending: bool,
    /// The thread ended by a panic: nothing is delivered any more.
    failed: bool,
    /// Wakes the thread; there while that is.
    wake: Option<UnixStream>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    linger: Duration,
    batch_bytes: usize,
    buffer_bytes: usize,
    times: Times,
    /// Waits of the thread end at once.
    abort: AtomicBool,
}

/// How long topics are waited for and known.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// What a new topic may take (`max.block.ms`).
    pub max_block: Duration,
    /// After which a topic is looked up again (`metadata.max.age.ms`).
    pub metadata_max_age: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let (max_block, metadata_max_age) = (Duration::from_secs(60), Duration::from_secs(300));
        Self { max_block, metadata_max_age }
    }
}

/// Ends the waits of the thread when the Sender is closed or dropped.
struct Abort(Arc<Shared>);

impl Interrupt for Abort {
    fn interrupted(&self) -> bool {
        self.0.abort.load(Ordering::Relaxed)
    }
}

/// See the module.
pub struct Sender {
    shared: Arc<Shared>,
    options: Options,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// What the thread writes to where there is news; there until `close`.
    news: Mutex<Option<UnixStream>>,
    pid: u32,
}

impl Sender {
    /// A sender to the cluster of `options`; their interrupt is for callers that wait.
    pub fn new(options: Options, config: Config, times: Times) -> Result<Self> {
        let (wake, woken) = pair()?;
        let (news, read_news) = pair()?;
        let seed = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9);
        let state = State {
            topics: HashMap::new(),
            open: VecDeque::new(),
            closed: Vec::new(),
            pending: HashMap::new(),
            delivered: Vec::new(),
            unwatched: 0,
            spare: Vec::new(),
            sticky: Sticky::new(seed),
            next_ticket: 1,
            held_bytes: 0,
            flushing: false,
            asleep: None,
            ending: false,
            failed: false,
            wake: Some(wake),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            linger: config.linger,
            batch_bytes: config.batch_bytes,
            buffer_bytes: config.buffer_bytes,
            times,
            abort: AtomicBool::new(false),
        });
        let interrupt = Arc::new(Abort(Arc::clone(&shared)));
        let cluster = Cluster::new(Options { interrupt, ..options.clone() });
        let (shared_too, backoff) = (Arc::clone(&shared), options.retry_backoff);
        let producer = Producer::new(cluster, config)?;
        let work = Work { shared: shared_too, producer, woken, news, backoff };
        let thread = std::thread::Builder::new()
            .name("krust-sender".to_owned())
            .spawn(move || {
                let _ended = Ended(Arc::clone(&work.shared));
                work.run();
            })
            .map_err(|error| Error::Invalid(format!("no thread can be started: {error}")))?;
        let (thread, news) = (Mutex::new(Some(thread)), Mutex::new(Some(read_news)));
        Ok(Self { shared, options, thread, news, pid: std::process::id() })
    }

    /// Takes a record if that needs no waiting; without a partition, its key decides. `watch`: the
    /// batch's delivery is to be told, also when it is no failure.
    pub fn offer(
        &self,
        topic: &str,
        partition: Option<i32>,
        (entry, watch): (&Entry<'_>, bool),
    ) -> Result<Offer> {
        let shared = &*self.shared;
        let mut guard = shared.state.lock();
        let Some(name) = shared.known(&mut guard, topic)? else { return Ok(Offer::Wait) };
        let state = &mut *guard;
        let Some(Known::Lanes(lanes)) = state.topics.get_mut(topic) else {
            return Ok(Offer::Wait);
        };
        let partition = match (partition, entry.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => by_key(key, lanes.count),
            (None, None) => state.sticky.current(lanes.count),
        };
        let Some(lane) = lanes.lane(partition) else {
            lanes.doubt(topic, partition)?;
            shared.wake(&mut guard);
            return Ok(Offer::Wait);
        };
        let size = size(entry);
        let (mut wake, mut opened) = (false, None);
        if lane.opened.is_some() && lane.builder.size() + size > shared.batch_bytes {
            let spare = state.spare.pop().unwrap_or_default();
            close(lane, (&name, partition), spare, (&mut state.closed, &mut state.pending));
            state.sticky.next();
            wake = true;
        }
        if lane.opened.is_none() {
            let now = Instant::now();
            (lane.opened, opened) = (Some(now), Some(now));
            (lane.ticket, lane.watched) = (state.next_ticket, false);
            state.next_ticket += 1;
            let due = now + shared.linger;
            state.open.push_back((name, partition, lane.ticket, due));
            wake |= matches!(state.asleep, Some(until) if until.is_none_or(|until| due < until));
        }
        let before = lane.builder.size();
        lane.builder.add(entry);
        lane.watched |= watch;
        let (ticket, index) = (lane.ticket, lane.builder.count() - 1);
        state.held_bytes += lane.builder.size() - before;
        wake |= opened.is_some_and(|now| lanes.ages(now, shared.times.metadata_max_age));
        if wake {
            shared.wake(&mut guard);
        }
        Ok(Offer::Taken { ticket, index })
    }

    /// Waits until `offer` to this topic may do better, at most until `wait` ends or `max_block`
    /// has passed.
    pub fn wait_for(&self, topic: &str) -> Result<()> {
        let wait = self.options.wait(self.shared.times.max_block + Duration::from_secs(1));
        let mut state = self.shared.state.lock();
        loop {
            let waits = state.topics.get(topic).is_some_and(Known::is_waited_for)
                || state.held_bytes >= self.shared.buffer_bytes;
            if !waits || state.ending {
                return Ok(());
            }
            self.pause(&mut state, &wait)?;
        }
    }

    /// How many partitions a topic has, if that is known; asks for it otherwise.
    pub fn partitions(&self, topic: &str) -> Result<Option<i32>> {
        let mut state = self.shared.state.lock();
        match state.topics.get(topic) {
            Some(Known::Lanes(lanes)) => Ok(Some(lanes.count)),
            Some(Known::Failed(error)) => {
                let error = error.clone();
                state.topics.remove(topic);
                Err(error)
            }
            Some(Known::Asked(..)) => Ok(None),
            None => {
                state.topics.insert(Arc::from(topic), Known::Asked(Look::now()));
                self.shared.wake(&mut state);
                Ok(None)
            }
        }
    }

    /// Closes every open batch and waits until all are delivered or `time` is over (zero: waits for
    /// nothing): how many batches are left then.
    pub fn flush(&self, time: Duration) -> Result<usize> {
        let wait = self.options.wait(time);
        let mut state = self.shared.state.lock();
        loop {
            let left = state.open.len() + state.pending.len();
            if left == 0 {
                return Ok(0);
            }
            if state.failed {
                return Err(Error::Invalid(
                    "the producer's thread ended by a bug: what it holds is lost".to_owned(),
                ));
            }
            state.flushing = true;
            self.shared.wake(&mut state);
            if wait.left().is_zero() {
                return Ok(left);
            }
            match self.pause(&mut state, &wait) {
                Err(Error::Timeout { .. }) => {}
                other => other?,
            }
        }
    }

    /// Ends the thread, within 100 ms, and its connections; what is not delivered by now is not
    /// told any more.
    pub fn close(&self) {
        self.end();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            drop(thread.join()); // a panic there was told where it happened
        }
        self.shared.state.lock().wake = None;
        self.news.lock().take();
    }

    /// What became of batches since the last call: those that are watched, and failures.
    pub fn take_delivered(&self) -> Vec<Delivered> {
        if let Some(news) = &mut *self.news.lock() {
            drain(news);
        }
        let mut state = self.shared.state.lock();
        state.unwatched = 0;
        std::mem::take(&mut state.delivered)
    }

    /// A descriptor that is readable when `take_delivered` has something, or an offer that waits
    /// may be made again; until `close`.
    pub fn news(&self) -> Result<RawFd> {
        self.news.lock().as_ref().map(AsRawFd::as_raw_fd).ok_or_else(closed)
    }

    /// Bytes of records that are not delivered.
    pub fn held_bytes(&self) -> usize {
        self.shared.state.lock().held_bytes
    }

    fn pause(&self, state: &mut MutexGuard<'_, State>, wait: &Wait) -> Result<()> {
        // Asking the caller's interrupt may need other locks.
        let slice = MutexGuard::unlocked(state, || wait.slice(&"the producer's buffer"))?;
        self.shared.changed.wait_for(state, slice);
        Ok(())
    }

    fn end(&self) {
        self.shared.abort.store(true, Ordering::Relaxed);
        let mut state = self.shared.state.lock();
        state.ending = true;
        self.shared.wake(&mut state);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // A forked child has neither the thread nor any right to the lock.
        if std::process::id() == self.pid {
            self.end();
        }
    }
}

impl Shared {
    /// The topic's own name when records of it are taken now; `None`: not yet.
    fn known(&self, guard: &mut MutexGuard<'_, State>, topic: &str) -> Result<Option<Arc<str>>> {
        let state = &mut **guard;
        if state.ending {
            return Err(closed());
        }
        let full = state.held_bytes >= self.buffer_bytes;
        match state.topics.get_key_value(topic) {
            Some((name, Known::Lanes(_))) if !full => return Ok(Some(Arc::clone(name))),
            Some((_, Known::Failed(error))) => {
                let error = error.clone();
                state.topics.remove(topic);
                return Err(error);
            }
            Some((_, Known::Asked(..))) => return Ok(None),
            Some((_, Known::Lanes(_))) => {
                // Full: what is open leaves early where nothing else makes room.
                state.flushing |= state.closed.is_empty() && state.pending.is_empty();
            }
            None => {
                state.topics.insert(Arc::from(topic), Known::Asked(Look::now()));
            }
        }
        self.wake(guard);
        Ok(None)
    }

    fn wake(&self, state: &mut MutexGuard<'_, State>) {
        if state.asleep.take().is_some()
            && let Some(wake) = &mut state.wake
        {
            drop(wake.write(&[1])); // full: it is awake
        }
    }
}

/// The thread's side.
struct Work {
    shared: Arc<Shared>,
    producer: Producer,
    woken: UnixStream,
    news: UnixStream,
    backoff: Duration,
}

/// Lets go on whoever waits for the thread when it ends by a panic.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state.lock();
            (state.ending, state.failed) = (true, true);
            self.0.changed.notify_all();
        }
    }
}

impl Work {
    fn run(mut self) {
        loop {
            let Some((filled, asked)) = self.take() else { return };
            let mut spare = Vec::with_capacity(filled.len());
            for filled in filled {
                spare.push(self.producer.enqueue(filled));
            }
            for topic in asked {
                self.look_up(&topic);
            }
            if let Err(error) = self.producer.poll()
                && !error.retriable()
            {
                self.producer.fail(&error);
            }
            let delivered = self.producer.take_delivered();
            let until = self.publish(delivered, spare);
            if let Some(until) = until {
                self.producer.sleep(self.woken.as_fd(), until);
                drain(&mut self.woken);
            }
        }
    }

    /// What there is to do; `None`: the Sender is gone.
    fn take(&self) -> Option<(Vec<Filled>, Vec<Arc<str>>)> {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        if state.ending {
            return None;
        }
        let now = Instant::now();
        while let Some((topic, partition, ticket, due)) = state.open.front() {
            let at = usize::try_from(*partition).unwrap_or(usize::MAX);
            let lane = match state.topics.get_mut(topic) {
                Some(Known::Lanes(lanes)) => lanes.open.get_mut(at),
                _ => None,
            };
            let lane = lane.filter(|lane| lane.opened.is_some() && lane.ticket == *ticket);
            if let Some(lane) = lane {
                if !state.flushing && *due > now {
                    break;
                }
                let spare = state.spare.pop().unwrap_or_default();
                let place = (topic, *partition);
                close(lane, place, spare, (&mut state.closed, &mut state.pending));
                state.sticky.next();
            }
            state.open.pop_front();
        }
        state.flushing = false;
        let is_due = |known: &Known| known.look().is_some_and(|look| look.at <= now);
        let asked = state.topics.iter().filter(|(_, known)| is_due(known));
        let asked = asked.map(|(topic, _)| Arc::clone(topic)).collect();
        Some((std::mem::take(&mut state.closed), asked))
    }

    fn look_up(&mut self, topic: &Arc<str>) {
        let found = self.producer.partitions(topic, TOPIC_ASK);
        let times = (self.backoff, self.shared.times.max_block);
        if let Some(known) = self.shared.state.lock().topics.get_mut(topic) {
            known.found(topic, found, times);
        }
        self.tell();
    }

    /// Tells what was delivered. How long to sleep; `None`: there is more to do.
    fn publish(
        &mut self,
        delivered: Vec<Delivered>,
        spare: Vec<Builder>,
    ) -> Option<Option<Instant>> {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let room = SPARE.saturating_sub(state.spare.len());
        state.spare.extend(spare.into_iter().take(room));
        let news = !delivered.is_empty();
        for one in delivered {
            let Some(pending) = state.pending.remove(&one.ticket) else { continue };
            state.held_bytes = state.held_bytes.saturating_sub(pending.size);
            let failed = !pending.watched && one.error.is_some() && state.unwatched < UNWATCHED;
            state.unwatched += usize::from(failed);
            if pending.watched || failed {
                state.delivered.push(one);
            }
        }
        let asked = state.topics.values().filter_map(|known| Some(known.look()?.at));
        let due = state.open.front().map(|(_, _, _, due)| *due);
        let until = asked.chain(due).min();
        let more = state.ending || state.flushing || !state.closed.is_empty();
        state.asleep = if more { None } else { Some(until) };
        drop(guard);
        if news {
            self.tell();
        }
        (!more).then_some(until)
    }

    /// Lets go on whoever waits for news.
    fn tell(&mut self) {
        self.shared.changed.notify_all();
        drop(self.news.write(&[1])); // full: it is readable
    }
}

/// Moves an open batch to the closed ones.
fn close(
    lane: &mut Open,
    (topic, partition): (&Arc<str>, i32),
    spare: Builder,
    (closed, pending): (&mut Vec<Filled>, &mut HashMap<u64, Pending>),
) {
    let Some(opened) = lane.opened.take() else { return };
    let builder = std::mem::replace(&mut lane.builder, spare);
    let size = builder.size() - lane.builder.size();
    pending.insert(lane.ticket, Pending { size, watched: lane.watched });
    let (topic, ticket) = (Arc::clone(topic), lane.ticket);
    closed.push(Filled { topic, partition, builder, opened, ticket });
}

/// What a record takes at most.
fn size(entry: &Entry<'_>) -> usize {
    let headers =
        entry.headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len) + 10);
    RECORD_OVERHEAD
        + entry.key.map_or(0, <[u8]>::len)
        + entry.value.map_or(0, <[u8]>::len)
        + headers.sum::<usize>()
}

/// Takes what lies in an end that never blocks.
fn drain(end: &mut UnixStream) {
    let mut rest = [0; 64];
    while matches!(end.read(&mut rest), Ok(count) if count == rest.len()) {}
}

fn closed() -> Error {
    Error::Invalid("this producer is closed".to_owned())
}

/// Two ends that never block.
fn pair() -> Result<(UnixStream, UnixStream)> {
    let failed = |error: std::io::Error| Error::Invalid(format!("no descriptor is left: {error}"));
    let (one, two) = UnixStream::pair().map_err(failed)?;
    one.set_nonblocking(true).map_err(failed)?;
    two.set_nonblocking(true).map_err(failed)?;
    Ok((one, two))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_no_more_than_is_said_of_it() {
        let long = vec![7; 3 << 20];
        let mut builder = Builder::new();
        for timestamp in [0, i64::MAX, i64::MIN] {
            for some in [None, Some(&[][..]), Some(&long[..])] {
                let headers = [("", None), ("name", some)];
                let entry = Entry { timestamp, key: some, value: some, headers: &headers };
                let before = builder.size();
                builder.add(&entry);
                let took = builder.size() - before;
                assert!(took <= size(&entry), "{took} > {}", size(&entry));
            }
        }
    }
}
