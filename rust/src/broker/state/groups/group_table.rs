//! The newest snapshot of each group, by group id. A snapshot is swapped whole, so a reader never
//! waits for the thread that builds the next one.
//!
//! Invariant: a group that is in the table is not marked as removed.
//! Threads: any. A part's lock is held to look a group up, to add it or to remove it. A group's own
//!     lock is taken before the lock of a part, and only by the thread that changes the group.
//! Errors: none here. [`GroupSnapshots`](super::snapshots::GroupSnapshots) turns a missing
//!     group into a code.

use std::sync::Arc;

use ahash::{HashMap, RandomState};
use arc_swap::{ArcSwapOption, Guard};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::broker::state::groups::published::PublishedGroup;

/// How many parts the table has, each with its lock.
const PARTS: usize = 64;

/// The groups.
#[derive(Debug)]
pub(crate) struct GroupTable {
    hasher: RandomState,
    parts: [RwLock<HashMap<Arc<str>, Arc<PublishedCell>>>; PARTS],
}

/// A group's newest snapshot; `None`: it was replayed, and its snapshot is expected.
type NewestSnapshot = Option<Arc<PublishedGroup>>;

#[derive(Debug, Default)]
struct PublishedCell {
    newest: ArcSwapOption<PublishedGroup>,
    /// The thread that changes the group holds it. True: the group was removed from the table.
    removed: Mutex<bool>,
}

/// Changes a group. One thread at a time has it.
pub(crate) struct GroupChange<'t> {
    name: &'t Arc<str>,
    cell: &'t PublishedCell,
    _removed: MutexGuard<'t, bool>,
}

impl Default for GroupTable {
    fn default() -> Self {
        let parts = std::array::from_fn(|_| RwLock::default());
        Self { hasher: RandomState::new(), parts }
    }
}

impl GroupTable {
    /// A group's newest snapshot. `None`: there is no such group.
    #[inline]
    pub(crate) fn find(&self, group_id: &str) -> Option<Guard<NewestSnapshot>> {
        self.part(group_id).read().get(group_id).map(|cell| cell.newest.load())
    }

    /// All groups.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        let names = |part: &RwLock<HashMap<_, _>>| part.read().keys().cloned().collect::<Vec<_>>();
        self.parts.iter().flat_map(names).collect()
    }

    /// Changes a group, which is added if it is not there. No other thread changes it meanwhile.
    pub(crate) fn change<T>(&self, group_id: &str, change: impl FnOnce(GroupChange<'_>) -> T) -> T {
        loop {
            let (name, cell) = self.get_or_add(group_id);
            let removed = cell.removed.lock();
            if !*removed {
                return change(GroupChange { name: &name, cell: &cell, _removed: removed });
            }
        }
    }

    /// Removes a group. Returns its newest snapshot.
    pub(crate) fn remove(&self, group_id: &str) -> NewestSnapshot {
        let cell = self.part(group_id).read().get(group_id).cloned()?;
        let mut removed = cell.removed.lock();
        if std::mem::replace(&mut *removed, true) {
            return None;
        }
        self.part(group_id).write().remove(group_id);
        cell.newest.load_full()
    }

    fn get_or_add(&self, group_id: &str) -> (Arc<str>, Arc<PublishedCell>) {
        let part = self.part(group_id);
        if let Some((name, cell)) = part.read().get_key_value(group_id) {
            return (Arc::clone(name), Arc::clone(cell));
        }
        let mut part = part.write();
        let name = match part.get_key_value(group_id) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(group_id),
        };
        let cell = Arc::clone(part.entry(Arc::clone(&name)).or_default());
        (name, cell)
    }

    #[inline]
    fn part(&self, group_id: &str) -> &RwLock<HashMap<Arc<str>, Arc<PublishedCell>>> {
        let at = self.hasher.hash_one(group_id) as usize % PARTS;
        // The index is always below the length; the first part satisfies the compiler.
        self.parts.get(at).unwrap_or(&self.parts[0])
    }
}

impl GroupChange<'_> {
    /// The group's id.
    pub(crate) fn name(&self) -> &Arc<str> {
        self.name
    }

    /// The snapshot that the next one replaces.
    pub(crate) fn before(&self) -> NewestSnapshot {
        self.cell.newest.load_full()
    }

    /// Replaces the snapshot.
    pub(crate) fn publish(self, next: NewestSnapshot) {
        self.cell.newest.store(next);
    }
}
