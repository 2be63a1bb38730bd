//! What clients said they read (KIP-227): so that a Fetch names only what changed, and its answer
//! too.
//!
//! A session is an [`Interest`] under an id. Its partitions are numbered; those that may have
//! something to say are *active*: changed since they were looked at, named by the request, or with
//! records or an error at the last look. An idle poll looks at the active ones only, and there are
//! none.
//! Limits: `max.incremental.fetch.session.cache.slots` sessions. When full, the one unused longest
//! goes if that is two minutes; else one smaller than the newcomer that has lived two minutes; else
//! the newcomer gets none (id 0) and goes on with full fetches.
//! Epochs: a new session answers epoch 0 and expects 1, 2, ..; after 2^31-1 comes 1.
//! Threads: the cache behind one lock, each session behind its own; never both at once but in
//! [`FetchSessions::create`], which locks a fresh session nobody else has.
//! Not promised: privileged places for followers.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::image::{ClusterImage, FastHasher};
use super::partition::{Partition, Watch};
use crate::ids::{Epoch, TopicId};
use crate::protocol::ErrorCode;

/// A session in use less than this ago keeps its place.
const EVICTION_MS: i64 = 120_000;

/// The partitions that a fetch or a session reads.
#[derive(Debug)]
pub(crate) struct Interest {
    /// Topics are named by id.
    pub(crate) by_id: bool,
    /// By number; `None` where a partition was forgotten.
    pub(crate) entries: Vec<Option<Entry>>,
    /// Numbers of the entries to look at, each once.
    pub(crate) active: Vec<u32>,
    /// Where to begin, so that all partitions get their turn.
    pub(crate) next: u32,
    /// The image that the entries were resolved with.
    pub(crate) image_number: u64,
    /// Collects changes, once somebody waits.
    pub(crate) watch: Option<Arc<Watch>>,
}

/// One partition of an interest.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) topic: Arc<str>,
    pub(crate) id: TopicId,
    pub(crate) partition: i32,
    pub(crate) asked: Asked,
    /// The partition and the leader's epoch, or why it cannot be read here.
    pub(crate) local: Result<(Arc<Partition>, Epoch), ErrorCode>,
    /// The leader, for clients that ask the wrong broker.
    pub(crate) leader: (i32, Epoch),
    /// The topic asks for zstd, which old clients do not know.
    pub(crate) zstd: bool,
    pub(crate) is_active: bool,
    /// What the client was last told; -1: nothing.
    pub(crate) told_high_watermark: i64,
    pub(crate) told_log_start: i64,
}

/// What the client wants of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) fetch_offset: i64,
    pub(crate) max_bytes: i32,
    pub(crate) current_leader_epoch: i32,
    pub(crate) last_fetched_epoch: i32,
}

/// A session.
#[derive(Debug)]
pub(crate) struct FetchSession {
    pub(crate) id: i32,
    /// The epoch that the next request must have.
    pub(crate) epoch: i32,
    pub(crate) interest: Interest,
    names: HashMap<Arc<str>, Numbers>,
    ids: HashMap<TopicId, Numbers, BuildHasherDefault<FastHasher>>,
    free: Vec<u32>,
    closed: bool,
}

type Numbers = HashMap<i32, u32, BuildHasherDefault<FastHasher>>;

/// All sessions.
pub(crate) struct FetchSessions {
    limit: AtomicUsize,
    next_id: AtomicI32,
    sessions: Mutex<HashMap<i32, Cached, BuildHasherDefault<FastHasher>>>,
}

struct Cached {
    session: Arc<Mutex<FetchSession>>,
    created_ms: i64,
    used_ms: i64,
    size: usize,
}

impl Interest {
    /// An interest in nothing yet.
    pub(crate) fn new(by_id: bool) -> Self {
        Self {
            by_id,
            entries: Vec::new(),
            active: Vec::new(),
            next: 0,
            image_number: 0,
            watch: None,
        }
    }

    /// Adds a partition, active; returns its number.
    pub(crate) fn push(&mut self, entry: Entry) -> u32 {
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.active.push(number);
        self.entries.push(Some(entry));
        number
    }

    /// The entry of a number.
    pub(crate) fn entry(&mut self, number: u32) -> Option<&mut Entry> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// Has an entry looked at.
    pub(crate) fn activate(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        if !std::mem::replace(&mut entry.is_active, true) {
            self.active.push(number);
        }
    }

    /// Looks up all partitions again if the image changed.
    pub(crate) fn resolve(&mut self, node: i32, (image, number): (&ClusterImage, u64)) {
        if self.image_number == number {
            return;
        }
        self.image_number = number;
        for at in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else { continue };
            let before = entry.partition().map(Arc::as_ptr);
            let old = entry.partition().cloned();
            entry.resolve(self.by_id, (image, node));
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            if entry.partition().map(Arc::as_ptr) != before
                && let Some(watch) = &self.watch
            {
                old.iter().for_each(|old| old.unwatch(watch));
                entry.partition().iter().for_each(|new| new.watch(watch, at));
            }
            self.activate(at);
        }
    }

    /// Begins to collect changes; the caller looks at everything once more.
    pub(crate) fn start_watch(&mut self) -> Arc<Watch> {
        if let Some(watch) = &self.watch {
            return Arc::clone(watch);
        }
        let watch = Arc::new(Watch::default());
        for (number, entry) in (0..).zip(&self.entries) {
            if let Some(partition) = entry.as_ref().and_then(Entry::partition) {
                partition.watch(&watch, number);
            }
        }
        self.watch = Some(Arc::clone(&watch));
        watch
    }

    /// Activates what changed since it was last asked.
    pub(crate) fn collect_changes(&mut self) {
        let mut changed = Vec::new();
        if let Some(watch) = &self.watch {
            watch.take(&mut changed);
        }
        for number in changed {
            self.activate(number);
        }
    }

    fn end_watch(&mut self) {
        let Some(watch) = self.watch.take() else { return };
        for partition in self.entries.iter().flatten().filter_map(Entry::partition) {
            partition.unwatch(&watch);
        }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.end_watch();
    }
}

impl Entry {
    /// The partition where it is here.
    pub(crate) fn partition(&self) -> Option<&Arc<Partition>> {
        self.local.as_ref().ok().map(|(partition, _)| partition)
    }

    /// Looks the partition up in `image`.
    pub(crate) fn resolve(&mut self, by_id: bool, (image, node): (&ClusterImage, i32)) {
        let id = by_id.then_some(self.id);
        let topic = super::handlers::Named { topic: &self.topic, id }.find(image);
        self.zstd = topic.is_ok_and(|topic| {
            topic.settings.log.compression_type
                == Some(crate::record::compression::Codec::Zstd as u8)
        });
        let state = topic.ok().and_then(|topic| topic.partition(self.partition)).map(|p| &p.state);
        self.leader = state.map_or((-1, Epoch::NONE), |state| (state.leader, state.leader_epoch));
        self.local = topic.and_then(|topic| {
            let (image, partition) = super::handlers::led(topic, self.partition, node)?;
            Ok((Arc::clone(partition), image.state.leader_epoch))
        });
    }
}

impl FetchSession {
    /// The number of a partition, where the session has it.
    pub(crate) fn number(&self, topic: &str, id: TopicId, partition: i32) -> Option<u32> {
        let numbers = if self.interest.by_id { self.ids.get(&id) } else { self.names.get(topic) };
        numbers?.get(&partition).copied()
    }

    /// Adds a partition that the session has not.
    pub(crate) fn add(&mut self, entry: Entry) {
        let (topic, id, partition) = (Arc::clone(&entry.topic), entry.id, entry.partition);
        let local = entry.partition().cloned();
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.interest.entries.get_mut(number as usize) {
                    *place = Some(Entry { is_active: false, ..entry });
                }
                self.interest.activate(number);
                number
            }
            None => self.interest.push(entry),
        };
        if let (Some(watch), Some(partition)) = (&self.interest.watch, local) {
            partition.watch(watch, number);
        }
        self.note((topic, id, partition), number);
    }

    fn note(&mut self, (topic, id, partition): (Arc<str>, TopicId, i32), number: u32) {
        let numbers = if self.interest.by_id {
            self.ids.entry(id).or_default()
        } else {
            self.names.entry(topic).or_default()
        };
        numbers.insert(partition, number);
    }

    /// Takes a partition out.
    pub(crate) fn forget(&mut self, topic: &str, id: TopicId, partition: i32) {
        let Some(number) = self.number(topic, id, partition) else { return };
        let numbers =
            if self.interest.by_id { self.ids.get_mut(&id) } else { self.names.get_mut(topic) };
        if let Some(numbers) = numbers {
            numbers.remove(&partition);
        }
        let place = self.interest.entries.get_mut(number as usize);
        let Some(entry) = place.and_then(Option::take) else { return };
        if let (Some(watch), Some(partition)) = (&self.interest.watch, entry.partition()) {
            partition.unwatch(watch);
        }
        self.interest.active.retain(|active| *active != number);
        self.free.push(number);
    }

    /// How many partitions it has.
    pub(crate) fn size(&self) -> usize {
        self.interest.entries.len() - self.free.len()
    }
}

impl FetchSessions {
    /// No session yet; at most `limit`.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            next_id: AtomicI32::new(0),
            sessions: Mutex::default(),
        }
    }

    /// Another limit; sessions beyond it stay until they are evicted.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// The session that goes on with `epoch`, one further now.
    pub(crate) fn resume(
        &self,
        (id, epoch): (i32, i32),
        by_id: bool,
        now_ms: i64,
    ) -> Result<Arc<Mutex<FetchSession>>, ErrorCode> {
        let session = {
            let mut sessions = self.sessions.lock();
            let cached = sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
            cached.used_ms = now_ms;
            Arc::clone(&cached.session)
        };
        {
            let mut session = session.lock();
            if session.closed {
                return Err(ErrorCode::FetchSessionIdNotFound);
            }
            if session.epoch != epoch {
                return Err(ErrorCode::InvalidFetchSessionEpoch);
            }
            if session.interest.by_id != by_id {
                return Err(ErrorCode::FetchSessionTopicIdError);
            }
            session.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        }
        Ok(session)
    }

    /// Says how many partitions a session has now.
    pub(crate) fn resized(&self, id: i32, size: usize) {
        if let Some(cached) = self.sessions.lock().get_mut(&id) {
            cached.size = size;
        }
    }

    /// Makes a session of `interest`, if there is room or room can be made.
    pub(crate) fn create(
        &self,
        interest: Interest,
        now_ms: i64,
    ) -> Result<Arc<Mutex<FetchSession>>, Interest> {
        let size = interest.entries.len();
        let mut sessions = self.sessions.lock();
        if sessions.len() >= self.limit.load(Ordering::Relaxed) {
            let Some(evicted) = evictable(&sessions, size, now_ms) else { return Err(interest) };
            close(sessions.remove(&evicted));
        }
        let id = loop {
            let id = self.next_id.fetch_add(0x3779_79b9, Ordering::Relaxed) & i32::MAX;
            if id != 0 && !sessions.contains_key(&id) {
                break id;
            }
        };
        let mut session = FetchSession {
            id,
            epoch: 1,
            interest,
            names: HashMap::new(),
            ids: HashMap::default(),
            free: Vec::new(),
            closed: false,
        };
        for number in 0..u32::try_from(size).unwrap_or(u32::MAX) {
            let entry = session.interest.entry(number);
            let key = entry.map(|entry| (Arc::clone(&entry.topic), entry.id, entry.partition));
            if let Some(key) = key {
                session.note(key, number);
            }
        }
        session.interest.start_watch();
        let session = Arc::new(Mutex::new(session));
        let cached =
            Cached { session: Arc::clone(&session), created_ms: now_ms, used_ms: now_ms, size };
        sessions.insert(id, cached);
        Ok(session)
    }

    /// Ends a session.
    pub(crate) fn remove(&self, id: i32) {
        let cached = self.sessions.lock().remove(&id);
        close(cached);
    }
}

fn close(cached: Option<Cached>) {
    if let Some(cached) = cached
        && let Some(mut session) = cached.session.try_lock()
    {
        session.closed = true;
        session.interest.end_watch();
    }
}

/// The session whose place a newcomer of `size` partitions may have.
fn evictable<S>(sessions: &HashMap<i32, Cached, S>, size: usize, now_ms: i64) -> Option<i32> {
    let (oldest, cached) = sessions.iter().min_by_key(|(_, cached)| cached.used_ms)?;
    if now_ms - cached.used_ms > EVICTION_MS {
        return Some(*oldest);
    }
    let settled = sessions.iter().filter(|(_, cached)| now_ms - cached.created_ms > EVICTION_MS);
    let (smallest, cached) = settled.min_by_key(|(_, cached)| cached.size)?;
    (cached.size < size).then_some(*smallest)
}
