//! Directories of partitions that are not served: they are marked as strays or deleted. The topic
//! id in `partition.metadata` says whether a directory belongs to the topic that is served.
//!
//! Threads: any; only the thread that opens or removes a partition touches its directory.
//! Not promised: that a damaged id is recognised if it differs in more than one letter. It looks
//! like another topic's; the stray is kept, and a log line names its path.

use std::path::{Path, PathBuf};

use super::dirs::LogDir;
use super::errors::StorageError;
use super::{files, names};
use crate::ids::{TopicId, TopicPartition};

impl LogDir {
    /// Renames the directory of a partition to `…-stray` and forgets the partition. Returns the new
    /// path; `None`: there was no such directory.
    pub(crate) fn mark_stray(
        &self,
        name: &TopicPartition,
        path: &Path,
    ) -> Result<Option<PathBuf>, StorageError> {
        let target = self.path().join(names::stray_name(name));
        let fail = |error| self.failed(&format!("mark {name} as stray"), error);
        let there = files::rename_if_there(self.disk(), path, &target).map_err(fail)?;
        if there {
            self.sync_dir(self.path())?;
            tracing::warn!(partition = %name, kept = %target.display(), "not this broker's");
        }
        self.forget(name)?;
        Ok(there.then_some(target))
    }

    /// Marks the directory of a partition whose log is not open as stray. With `unless`, only if it
    /// belongs to another topic of that name.
    pub fn mark_unopened_stray(
        &self,
        name: &TopicPartition,
        unless: Option<TopicId>,
    ) -> Result<(), StorageError> {
        let path = self.path().join(name.to_string());
        if let Some(id) = unless
            && !self.is_of_another(name, (&path, id))?
        {
            return Ok(());
        }
        self.mark_stray(name, &path).map(drop)
    }

    /// Whether a partition's directory belongs to another topic of the same name. A file without an
    /// id, or with one that differs in one letter, is damaged and is rewritten.
    fn is_of_another(
        &self,
        name: &TopicPartition,
        (path, id): (&Path, TopicId),
    ) -> Result<bool, StorageError> {
        let file = path.join(names::METADATA);
        let Ok(bytes) = std::fs::read(&file) else { return Ok(false) };
        match names::read_topic_id(path) {
            Some(found) if found == id => return Ok(false),
            Some(found) if !names::is_misread(found, id) => return Ok(true),
            _ => {}
        }
        let found = String::from_utf8_lossy(&bytes);
        tracing::warn!(
            partition = %name, ?found, topic_id = %id,
            "partition.metadata is damaged, it is written again"
        );
        self.replace_file(&file, names::topic_id_text(id).as_bytes()).map(|()| false)
    }

    /// Removes a directory that is no longer needed: one to be deleted, or a copy of a partition.
    pub fn remove_aside(&self, path: &Path) {
        if !self.is_offline()
            && let Err(error) = files::remove_tree(self.disk(), path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), "what nobody wants stays: {error}");
        }
    }
}
