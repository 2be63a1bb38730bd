//! Fetch sessions (KIP-227): the broker remembers the partitions that a client reads, so that
//! requests and replies name only those that changed.
//!
//! A session is a [`FetchContext`] with an id. Its partitions are numbered. A partition is *active*
//! if the next Fetch must read it: it changed since the last read, the request names it, or the
//! last read returned records or an error. An idle poll has no active partition to read.
//! Limits: `max.incremental.fetch.session.cache.slots` sessions. If the cache is full, a new
//! session evicts the one that was unused longest, if for two minutes; else a smaller one that
//! is two minutes old; else the client gets no session (id 0) and continues with full fetches.
//! A client also gets none for more than `krust.fetch.session.max.partitions`, or if all
//! sessions together would exceed `krust.fetch.session.cache.max.partitions`. A session that
//! grows beyond these limits ends (70). A session ends when the connection closes that used it
//! last.
//! Memory: a partition of a session takes about 153 bytes: 112 as an [`CachedPartition`], 4 in
//! `active`, 16 and 5 in lists of watches, about 14 in the map of numbers. The log keeps up to 2
//! KiB of the partition's newest records in memory (`storage/log/recent`).
//! Epochs: a request with epoch 0 creates a session; the next ones have 1, 2, ..; 1 follows 2^31-1.
//! Files: `context` has the partitions of a Fetch, `session` finds them by name or id, and this
//! file has all sessions.
//! Threads: the cache has one lock, each session its own. A session's lock is taken before the
//! cache's, never after. A connection remembers the sessions it uses ([`ConnectionSessions`]), so
//! a Fetch takes the cache's lock only if it creates, resizes or ends a session. Work that grows
//! with the partitions of a session is done without the cache's lock.
//! Not promised: priority for the sessions of followers.

mod context;
mod session;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ahash::HashMap;
use parking_lot::{Mutex, MutexGuard};

pub(crate) use crate::broker::state::fetch_sessions::context::{
    CachedPartition, FetchContext, ReadRequest,
};
pub(crate) use crate::broker::state::fetch_sessions::session::FetchSession;
use crate::protocol::ErrorCode;

/// A session that was used less than this long ago is not evicted.
const EVICTION_MS: i64 = 120_000;

/// A session as the cache, its connections and its delayed fetches share it.
#[derive(Debug)]
pub(crate) struct SharedSession {
    session: Mutex<FetchSession>,
    /// The connection that used it last.
    connection: AtomicU64,
    used_ms: AtomicI64,
}

/// The sessions that were used through one connection. A session that ended frees its memory,
/// whether or not it is still named here.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSessions {
    by_id: Vec<(i32, Weak<SharedSession>)>,
}

/// The session that a request resumes, and the connection of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionUse {
    pub(crate) id: i32,
    /// The epoch of the request.
    pub(crate) epoch: i32,
    /// Topics are named by id.
    pub(crate) by_id: bool,
    pub(crate) connection: u64,
    pub(crate) now_ms: i64,
}

/// The limits of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// `max.incremental.fetch.session.cache.slots`.
    pub slots: usize,
    /// `krust.fetch.session.max.partitions`: partitions of one session.
    pub session_partitions: usize,
    /// `krust.fetch.session.cache.max.partitions`: partitions of all sessions together.
    pub all_partitions: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { slots: 1000, session_partitions: 50_000, all_partitions: 200_000 }
    }
}

/// All sessions.
pub(crate) struct FetchSessions {
    cache: Mutex<SessionCache>,
}

/// Invariant: partitions = sum of the sizes of all sessions.
struct SessionCache {
    limits: SessionLimits,
    next_id: i32,
    sessions: HashMap<i32, CachedSession>,
    partitions: usize,
}

struct CachedSession {
    session: Arc<SharedSession>,
    created_ms: i64,
    size: usize,
}

impl SharedSession {
    /// Locks the session.
    pub(crate) fn lock(&self) -> MutexGuard<'_, FetchSession> {
        self.session.lock()
    }

    fn used_by(&self, connection: u64, now_ms: i64) {
        self.used_ms.store(now_ms, Ordering::Relaxed);
        self.connection.store(connection, Ordering::Relaxed);
    }

    fn used_ms(&self) -> i64 {
        self.used_ms.load(Ordering::Relaxed)
    }
}

impl ConnectionSessions {
    /// Notes that a session is used through this connection.
    fn add(&mut self, id: i32, session: &Arc<SharedSession>) {
        self.by_id.retain(|(other, session)| *other != id && session.strong_count() > 0);
        self.by_id.push((id, Arc::downgrade(session)));
    }

    /// Notes that a session has ended.
    fn remove(&mut self, id: i32) {
        self.by_id.retain(|(other, _)| *other != id);
    }

    fn find(&self, id: i32) -> Option<Arc<SharedSession>> {
        self.by_id.iter().find(|(other, _)| *other == id)?.1.upgrade()
    }
}

impl SessionCache {
    /// Reserves an id for a session of `size` partitions. Returns the id and the session that was
    /// evicted for it; `None` if the cache has no room.
    fn place(&mut self, size: usize, now_ms: i64) -> Option<(i32, Option<CachedSession>)> {
        if size > self.limits.session_partitions {
            return None;
        }
        let is_full = self.sessions.len() >= self.limits.slots
            || self.partitions + size > self.limits.all_partitions;
        let evicted = match is_full {
            true => Some(evictable(&self.sessions, size, now_ms)?),
            false => None,
        };
        let freed = evicted.and_then(|id| self.sessions.get(&id)).map_or(0, |cached| cached.size);
        if self.partitions - freed + size > self.limits.all_partitions {
            return None;
        }
        let evicted = evicted.and_then(|id| self.take(id));
        loop {
            self.next_id = self.next_id.wrapping_add(0x3779_79b9) & i32::MAX;
            if self.next_id != 0 && !self.sessions.contains_key(&self.next_id) {
                return Some((self.next_id, evicted));
            }
        }
    }

    fn take(&mut self, id: i32) -> Option<CachedSession> {
        let cached = self.sessions.remove(&id)?;
        self.partitions -= cached.size;
        Some(cached)
    }
}

impl FetchSessions {
    /// A cache without sessions.
    pub(crate) fn new(limits: SessionLimits) -> Self {
        let sessions = HashMap::default();
        Self { cache: Mutex::new(SessionCache { limits, next_id: 0, sessions, partitions: 0 }) }
    }

    /// Replaces the limits. Sessions beyond them stay until they are evicted.
    pub(crate) fn set_limits(&self, limits: SessionLimits) {
        self.cache.lock().limits = limits;
    }

    /// The session that a request resumes, after `update`, and its next epoch.
    pub(crate) fn resume(
        &self,
        sessions: &mut ConnectionSessions,
        request: SessionUse,
        update: impl FnOnce(&mut FetchSession),
    ) -> Result<(Arc<SharedSession>, i32), ErrorCode> {
        let SessionUse { id, epoch, by_id, connection, now_ms } = request;
        let session = match sessions.find(id) {
            Some(session) => session,
            None => {
                let cache = self.cache.lock();
                let cached = cache.sessions.get(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
                let session = Arc::clone(&cached.session);
                drop(cache);
                sessions.add(id, &session);
                session
            }
        };
        let mut locked = session.lock();
        if locked.is_closed() {
            sessions.remove(id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        session.used_by(connection, now_ms);
        if locked.epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if locked.context.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        let next_epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        locked.epoch = next_epoch;
        let before = locked.size();
        update(&mut locked);
        if locked.size() != before && self.resize(id, locked.size()).is_err() {
            locked.close();
            sessions.remove(id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        drop(locked);
        Ok((session, next_epoch))
    }

    /// Notes the new size of a session. Error: the size exceeds a limit, and the session was
    /// removed from the cache.
    fn resize(&self, id: i32, size: usize) -> Result<(), SessionTooLarge> {
        let mut cache = self.cache.lock();
        let limits = cache.limits;
        let Some(cached) = cache.sessions.get_mut(&id) else { return Ok(()) };
        let before = std::mem::replace(&mut cached.size, size);
        cache.partitions = cache.partitions - before + size;
        let is_too_large =
            size > limits.session_partitions || cache.partitions > limits.all_partitions;
        if size > before && is_too_large {
            cache.take(id);
            return Err(SessionTooLarge);
        }
        Ok(())
    }

    /// Creates a session of `context` if the cache has room or can evict one, and ends the session
    /// `replaced` (0: none). Returns the new id; 0: no session.
    pub(crate) fn create(
        &self,
        context: FetchContext,
        (sessions, replaced): (&mut ConnectionSessions, i32),
        (connection, now_ms): (u64, i64),
    ) -> Result<(i32, Arc<SharedSession>), FetchContext> {
        let size = context.entries.len();
        let fresh = Arc::new(SharedSession {
            session: Mutex::new(FetchSession::new(context)),
            connection: AtomicU64::new(connection),
            used_ms: AtomicI64::new(now_ms),
        });
        let mut session = fresh.lock();
        let (ended, placed) = {
            let mut cache = self.cache.lock();
            let ended = cache.take(replaced);
            let placed = cache.place(size, now_ms);
            if let Some((id, _)) = &placed {
                let cached =
                    CachedSession { session: Arc::clone(&fresh), created_ms: now_ms, size };
                cache.sessions.insert(*id, cached);
                cache.partitions += size;
            }
            (ended, placed)
        };
        sessions.remove(replaced);
        close(ended);
        let Some((id, evicted)) = placed else {
            let by_id = session.context.by_id;
            return Err(std::mem::replace(&mut session.context, FetchContext::new(by_id)));
        };
        session.begin();
        drop(session);
        close(evicted);
        sessions.add(id, &fresh);
        Ok((id, fresh))
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: i32) {
        let cached = self.cache.lock().take(id);
        close(cached);
    }

    /// Ends the sessions that a closed connection used last.
    pub(crate) fn closed(&self, connection: u64, sessions: &ConnectionSessions) {
        for (id, session) in &sessions.by_id {
            let Some(session) = session.upgrade() else { continue };
            if session.connection.load(Ordering::Relaxed) == connection {
                self.end(*id);
            }
        }
    }
}

/// A session has more partitions than it may have.
struct SessionTooLarge;

/// Ends a session that was removed from the cache. The caller holds no lock.
fn close(cached: Option<CachedSession>) {
    if let Some(cached) = cached {
        cached.session.lock().close();
    }
}

/// The session that a new one of `size` partitions may evict.
fn evictable(sessions: &HashMap<i32, CachedSession>, size: usize, now_ms: i64) -> Option<i32> {
    let (oldest, cached) = sessions.iter().min_by_key(|(_, cached)| cached.session.used_ms())?;
    if now_ms - cached.session.used_ms() > EVICTION_MS {
        return Some(*oldest);
    }
    let settled = sessions.iter().filter(|(_, cached)| now_ms - cached.created_ms > EVICTION_MS);
    let (smallest, cached) = settled.min_by_key(|(_, cached)| cached.size)?;
    (cached.size < size).then_some(*smallest)
}
