//! Deletes partitions: the directory is renamed to `…-delete` at once. Later the new name is
//! synced, and the files are removed.
//!
//! A crash in between loses nothing: the next start removes directories with that name (`settle`).
//! A later partition of the same name inherits nothing: its directory is created after the
//! checkpoints have dropped the old one.
//! Threads: any but a network thread. [`Deletions`] collects those of one metadata delta, so that
//!     each log directory is synced, and its checkpoints are written, once for all of them.
//! Not promised: that a deletion survives a power failure before [`Deletions::sync`]. If the broker
//!     stops before the files are removed, they stay until the next start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dirs::LogDir;
use super::errors::StorageError;
use super::segment::Segment;
use super::{files, names};
use crate::ids::TopicPartition;

/// A partition's directory under its new name.
pub struct DeletedLog {
    dir: Arc<LogDir>,
    path: PathBuf,
    /// They are closed after their files are removed, because closing a changed file may write it.
    _segments: Vec<Arc<Segment>>,
}

/// Deleted partitions whose new names are not synced yet.
#[derive(Default)]
pub struct Deletions {
    deleted: Vec<DeletedLog>,
    dirs: Vec<Arc<LogDir>>,
    segments: Vec<Arc<Segment>>,
}

impl Deletions {
    /// Deletes a partition whose log is not open.
    pub fn delete_unopened(
        &mut self,
        dir: &Arc<LogDir>,
        name: &TopicPartition,
    ) -> Result<(), StorageError> {
        let path = dir.path().join(name.to_string());
        self.rename(dir, name, &path).map(drop)
    }

    /// Keeps the segments of the next renamed log open until its files are removed.
    pub(super) fn close_later(&mut self, segments: Vec<Arc<Segment>>) {
        self.segments = segments;
    }

    /// Renames the directory of a partition and forgets the partition. Returns the new path;
    /// `None`: there was no such directory.
    pub(super) fn rename(
        &mut self,
        dir: &Arc<LogDir>,
        name: &TopicPartition,
        path: &Path,
    ) -> Result<Option<PathBuf>, StorageError> {
        let target = dir.path().join(names::delete_name(name));
        let renamed = files::rename_if_there(dir.disk(), path, &target)
            .map_err(|error| dir.failed(&format!("delete {name}"), error))?;
        dir.forget_until_written(name);
        if !self.dirs.iter().any(|known| Arc::ptr_eq(known, dir)) {
            self.dirs.push(Arc::clone(dir));
        }
        if !renamed {
            return Ok(None);
        }
        let _segments = std::mem::take(&mut self.segments);
        self.deleted.push(DeletedLog { dir: Arc::clone(dir), path: target.clone(), _segments });
        Ok(Some(target))
    }

    /// Whether nothing was deleted.
    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Makes the deletions durable: later partitions of the same names inherit nothing. Returns
    /// the directories to remove. Errors: those of the last log directory that failed.
    pub fn sync(self) -> (Vec<DeletedLog>, Result<(), StorageError>) {
        let mut outcome = Ok(());
        for dir in &self.dirs {
            if let Err(error) = dir.sync_dir(dir.path()).and_then(|()| dir.write_checkpoints()) {
                outcome = Err(error);
            }
        }
        (self.deleted, outcome)
    }
}

/// Deletes a partition whose log is not open, and its files.
pub(super) fn delete_now(dir: &Arc<LogDir>, name: &TopicPartition) -> Result<(), StorageError> {
    let mut deletions = Deletions::default();
    deletions.delete_unopened(dir, name)?;
    let (deleted, outcome) = deletions.sync();
    deleted.iter().for_each(DeletedLog::remove);
    outcome
}

impl DeletedLog {
    /// Removes the directory and its files.
    pub fn remove(&self) {
        self.dir.remove_aside(&self.path);
    }
}
