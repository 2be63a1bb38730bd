//! A bounded cache of open files. 10,000 partitions with three files each exceed a process's
//! descriptors, so a file is opened when it is used and closed by the clock algorithm.
//!
//! Eviction gives a second chance: a file that was used since the last visit stays open. A file
//! with unsynced changes is never closed, because a later sync would not report an error of the
//! disk. Such a file stays open beyond the limit until a sync thread syncs it (`sync_with`). If 1.5
//! x limit files are open, the next opener syncs it.
//! A file that a reader holds stays open until the reader drops it.
//! Invariant: holders registered <= 1.5 x limit + 1, plus those being opened.
//! Threads: a hit needs no lock, because the holder keeps its own file; one mutex for opens, which
//! is not held during a sync.
//! Not promised: a strict limit. Files that readers still hold after their eviction exceed it.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

/// Most holders that one opening visits.
const VISITS: usize = 512;

/// The result of asking a holder to close its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseOutcome {
    /// The file is closed.
    Yes,
    /// The file was used since the last visit.
    Used,
    /// The file has unsynced changes.
    Unsynced,
}

/// An owner of an open file. It can close the file.
pub(crate) trait FileHolder: Send + Sync {
    /// Closes the file, unless it has unsynced changes or (without `at_once`) was used since the
    /// last visit.
    fn close(&self, at_once: bool) -> CloseOutcome;
    /// Syncs the file, so that it can be closed. Blocks.
    fn sync_now(self: Arc<Self>);
}

/// Has another thread sync a holder's file.
type SyncLater = Box<dyn Fn(Weak<dyn FileHolder>) + Send + Sync>;

/// The cache: the holders of open files.
pub struct Descriptors {
    limit: usize,
    ring: Mutex<VecDeque<Weak<dyn FileHolder>>>,
    later: OnceLock<SyncLater>,
}

impl std::fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Descriptors {{ limit: {} }}", self.limit)
    }
}

impl Descriptors {
    /// A cache of at most `limit` segments that hold files open.
    pub fn new(limit: usize) -> Arc<Self> {
        let ring = Mutex::new(VecDeque::new());
        Arc::new(Self { limit: limit.max(1), ring, later: OnceLock::new() })
    }

    /// How many segments hold files open.
    pub fn len(&self) -> usize {
        self.ring.lock().len()
    }

    /// Whether no segment holds a file open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets `later`, which has another thread sync files that cannot be closed before.
    pub(crate) fn sync_with(&self, later: impl Fn(Weak<dyn FileHolder>) + Send + Sync + 'static) {
        let _ = self.later.set(Box::new(later));
    }

    /// Whether so many files are open that whoever opens one more may have to sync another one.
    pub(crate) fn must_sync_first(&self) -> bool {
        self.len() >= self.most()
    }

    /// How many may be open before the next opener syncs one.
    const fn most(&self) -> usize {
        self.limit + self.limit / 2
    }

    /// Registers a holder that opens a file, and makes room for it.
    pub(crate) fn enter(&self, holder: Weak<dyn FileHolder>) {
        let (unsynced, count) = {
            let mut ring = self.ring.lock();
            (evict(&mut ring, self.limit), ring.len())
        };
        if let Some(unsynced) = unsynced {
            match self.later.get() {
                Some(later) if count < self.most() => later(unsynced),
                _ => {
                    if let Some(holder) = unsynced.upgrade() {
                        holder.sync_now();
                    }
                    evict(&mut self.ring.lock(), self.limit);
                }
            }
        }
        self.ring.lock().push_back(holder);
    }

    /// Closes the oldest holder at once, for a caller that was refused a descriptor.
    pub(crate) fn make_room(&self) {
        let mut unsynced = None;
        {
            let mut ring = self.ring.lock();
            for _ in 0..ring.len().min(VISITS) {
                let Some(oldest) = ring.pop_front() else { return };
                match oldest.upgrade().map(|holder| (holder.close(true), holder)) {
                    Some((CloseOutcome::Yes, _)) => return,
                    Some((_, holder)) => {
                        unsynced.get_or_insert(holder);
                        ring.push_back(oldest);
                    }
                    None => {}
                }
            }
        }
        if let Some(holder) = unsynced {
            Arc::clone(&holder).sync_now();
            holder.close(true);
        }
    }
}

/// Closes files that were not used until fewer than `limit` are left. Returns an unsynced one if
/// that does not suffice.
fn evict(ring: &mut VecDeque<Weak<dyn FileHolder>>, limit: usize) -> Option<Weak<dyn FileHolder>> {
    let mut unsynced = None;
    for _ in 0..(ring.len() * 2).min(VISITS) {
        if ring.len() < limit {
            return None;
        }
        let oldest = ring.pop_front()?;
        let closed = oldest.upgrade().map_or(CloseOutcome::Yes, |holder| holder.close(false));
        if closed == CloseOutcome::Unsynced {
            unsynced.get_or_insert_with(|| Weak::clone(&oldest));
        }
        if closed != CloseOutcome::Yes {
            ring.push_back(oldest);
        }
    }
    unsynced.filter(|_| ring.len() >= limit)
}
