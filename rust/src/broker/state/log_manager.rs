//! The broker's log directories, and the directory of each partition.
//!
//! Threads: any; each table has its own short lock.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::state::dir_assignments::DirAssignments;
use crate::ids::TopicPartition;
use crate::storage::{FoundPartition, LogDir};

/// The log directories of a broker, and the directory of each partition.
pub struct LogManager {
    pub(crate) dirs: Vec<Arc<LogDir>>,
    pub(crate) places: Mutex<DirAssignments>,
    /// The preferred directories of future replicas.
    pub(crate) preferred_dirs: Mutex<HashMap<TopicPartition, usize>>,
    /// Replicas whose loss was reported to the policy.
    pub(crate) lost: Mutex<BTreeSet<TopicPartition>>,
    /// Copies that earlier starts began to make (see `moves`).
    pub(crate) futures: Mutex<HashMap<TopicPartition, (usize, PathBuf)>>,
}

/// A partition that was found in a log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedLog {
    /// The partition and its files.
    pub found: FoundPartition,
    /// The log directory, as a number from 0.
    pub dir: usize,
}

impl LogManager {
    /// A manager of open log directories.
    pub fn new(dirs: Vec<Arc<LogDir>>) -> Self {
        Self {
            dirs,
            places: Mutex::default(),
            preferred_dirs: Mutex::default(),
            lost: Mutex::default(),
            futures: Mutex::default(),
        }
    }

    /// The log directories.
    pub fn dirs(&self) -> &[Arc<LogDir>] {
        &self.dirs
    }

    /// The directory of a partition. A new one goes to its preferred directory, or to the one with
    /// the fewest partitions. `None` if it may be in an offline directory.
    pub(crate) fn place(&self, name: &TopicPartition, is_new: bool) -> Option<usize> {
        let mut places = self.places.lock();
        if let Some(dir) = places.at(name) {
            return Some(dir);
        }
        if !is_new && self.dirs.iter().any(|dir| dir.is_offline()) {
            return None;
        }
        let preferred = self.preferred_dirs.lock().remove(name);
        if let Some(index) = preferred
            && self.dirs.get(index).is_some_and(|dir| !dir.is_offline())
        {
            places.insert(name.clone(), index);
            return Some(index);
        }
        let usable = self.dirs.iter().enumerate().filter(|(_, dir)| !dir.is_offline());
        let (index, _) = usable.min_by_key(|(index, _)| places.count(*index))?;
        places.insert(name.clone(), index);
        Some(index)
    }
}
