//! The lock of a log directory: `.lock`, locked with fcntl as Java does.
//!
//! Threads: any; the list of this process's locks is behind a short lock.
//! Not promised: that a file system keeps locks between machines.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::errors::StorageError;
use super::files::{Disk, RealDisk};

const LOCK: &str = ".lock";

/// `fcntl` locks do not keep out the same process, so it keeps its own list.
static LOCKED: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);

/// Locks a directory, whose path is canonical. Errors: another process, or this one, has the lock.
pub(super) fn take_lock(path: &Path) -> Result<File, StorageError> {
    let locked_by_other = || StorageError::Locked(path.display().to_string().into());
    let fail = |e| StorageError::io("lock", path, e);
    let mut locked = LOCKED.lock();
    let locked = locked.get_or_insert_default();
    if locked.contains(path) {
        return Err(locked_by_other());
    }
    let file = RealDisk.create(&path.join(LOCK)).map_err(fail)?;
    if !crate::sys::try_lock(&file).map_err(fail)? {
        return Err(locked_by_other());
    }
    locked.insert(path.to_owned());
    Ok(file)
}

/// Frees a lock. The file is closed first: closing any descriptor of a file ends the process's lock
/// on it, also one that another broker object takes as soon as the path is off the list.
pub(super) fn free_lock(path: &Path, file: File) {
    drop(file);
    if let Some(locked) = &mut *LOCKED.lock() {
        locked.remove(path);
    }
}
