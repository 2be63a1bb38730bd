//! One directory of `log.dirs`: `meta.properties`, clean-shutdown marker, checkpoints, and its
//! partitions (see `names`). Its lock is that of `dir_lock`.
//! Formats: `meta.properties` version 0 (Java properties: broker.id, version, cluster.id);
//! `.kafka_cleanshutdown` JSON `{"version":0,"brokerEpoch":n}`, removed at the start, with the
//! epoch of the registration that ended (-1: none).
//! States: online -> offline on EIO or any failed sync, until the next start. Earlier writes may be
//! lost without a trace, so nothing in the directory is acknowledged again.
//! Threads: shared; the offline flag is an atomic, the rest short locks.
//! Not promised: files of other programs stay.

use std::any::Any;
use std::collections::HashSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::checkpoints::{CheckpointedOffsets, Checkpoints};
use super::descriptors::Descriptors;
use super::dir_lock::{free_lock, take_lock};
use super::errors::StorageError;
use super::files::{self, Disk, RealDisk};
use super::index_cache::{INDEX_CACHE_BYTES, IndexCache};
use super::meta::{self, META};
use super::names::{self, DirKind, FoundPartition};
use super::progress;
use super::sync_times::{SyncStats, SyncTimes};
use crate::ids::{Offset, TopicPartition};

/// The clean-shutdown marker.
pub(crate) const CLEAN: &str = ".kafka_cleanshutdown";

/// How a log directory is opened.
#[derive(Clone, Debug)]
pub struct DirOptions {
    /// The cluster this broker belongs to; `None`: whatever the directory says.
    pub cluster_id: Option<String>,
    /// This broker's id.
    pub broker_id: i32,
    /// What changes the disk.
    pub disk: Arc<dyn Disk>,
    /// The cache of open files, shared by all directories.
    pub descriptors: Arc<Descriptors>,
    /// The cache of indexes, shared by all directories.
    pub index_cache: Arc<IndexCache>,
}

/// An open log, as its log directory sees it.
pub(crate) trait LogInDir: Any + Send + Sync {
    /// The partition.
    fn name(&self) -> &TopicPartition;
    /// Whether it has files and is not closed.
    fn is_on_disk(&self) -> bool;
    /// The directory; another one after a move.
    fn dir(&self) -> Arc<LogDir>;
    /// The offsets for the checkpoints; `None`: the log is damaged.
    fn points(&self) -> Option<CheckpointedOffsets>;
    /// Saves what must not be behind the checkpoints.
    fn prepare_checkpoint(&self) -> Result<(), StorageError>;
}

/// An open log directory.
pub struct LogDir {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    descriptors: Arc<Descriptors>,
    index_cache: Arc<IndexCache>,
    cluster_id: Mutex<Option<String>>,
    broker_id: i32,
    was_clean: bool,
    broker_epoch: AtomicI64,
    offline: AtomicBool,
    /// The last check found too little free space.
    low: AtomicBool,
    syncs: SyncTimes,
    offsets: Mutex<Checkpoints>,
    logs: Mutex<Vec<Weak<dyn LogInDir>>>,
    opened: Mutex<HashSet<TopicPartition>>,
    lock: Mutex<Option<File>>,
    /// The directory itself, opened before anything was written: a sync of the whole file system
    /// through it reports every failed write since then. Held as long as the lock.
    handle: Mutex<Option<Arc<File>>>,
}

impl std::fmt::Debug for LogDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogDir {{ {} }}", self.path.display())
    }
}

impl Default for DirOptions {
    fn default() -> Self {
        Self {
            cluster_id: None,
            broker_id: 0,
            disk: Arc::new(RealDisk),
            descriptors: Descriptors::new(256),
            index_cache: IndexCache::new(INDEX_CACHE_BYTES),
        }
    }
}

impl LogDir {
    /// Opens the directory at `path`, making it if it is not there: takes the lock, checks
    /// `meta.properties` against the options (writes it if there is none and the cluster is
    /// known), takes away the clean-shutdown marker, reads the checkpoints.
    pub fn open(path: &Path, options: &DirOptions) -> Result<Arc<Self>, StorageError> {
        files::make_dirs(&*options.disk, path).map_err(|e| StorageError::io("make", path, e))?;
        let path = path.canonicalize().map_err(|e| StorageError::io("resolve", path, e))?;
        let lock = take_lock(&path)?;
        let dir = Self::found(path, options, Some(lock));
        dir.check_meta(options)?;
        if dir.was_clean {
            let fail = |e| dir.failed("remove the clean-shutdown marker", e);
            files::remove_if_there(&*dir.disk, &dir.path.join(CLEAN)).map_err(fail)?;
            dir.sync_dir(&dir.path)?;
        }
        Ok(Arc::new(dir))
    }

    /// Opens the directory at `path`; one that the disk refuses is offline from the start.
    /// Errors: another process or another cluster has it.
    pub fn open_or_offline(path: &Path, options: &DirOptions) -> Result<Arc<Self>, StorageError> {
        let error = match Self::open(path, options) {
            Err(error @ (StorageError::Io { .. } | StorageError::NoSpace(_))) => error,
            other => return other,
        };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let dir = Self::found(path, options, None);
        dir.take_offline(&error);
        Ok(Arc::new(dir))
    }

    /// The directory as it is found; without the lock it does not count as cleanly shut down.
    fn found(path: PathBuf, options: &DirOptions, lock: Option<File>) -> Self {
        Self {
            cluster_id: Mutex::new(None),
            broker_id: options.broker_id,
            was_clean: lock.is_some() && path.join(CLEAN).exists(),
            broker_epoch: AtomicI64::new(-1),
            offline: AtomicBool::new(false),
            low: AtomicBool::new(false),
            syncs: SyncTimes::default(),
            offsets: Mutex::new(Checkpoints::read(&path)),
            opened: Mutex::default(),
            logs: Mutex::new(Vec::new()),
            handle: Mutex::new(lock.as_ref().and_then(|_| File::open(&path).ok()).map(Arc::new)),
            lock: Mutex::new(lock),
            descriptors: Arc::clone(&options.descriptors),
            index_cache: Arc::clone(&options.index_cache),
            disk: Arc::clone(&options.disk),
            path,
        }
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster it belongs to, if it says so.
    pub fn cluster_id(&self) -> Option<String> {
        self.cluster_id.lock().clone()
    }

    /// Makes the directory belong to `cluster_id`; fine if it does already.
    pub fn join(&self, cluster_id: &str) -> Result<(), StorageError> {
        let mut mine = self.cluster_id.lock();
        match mine.as_deref() {
            Some(known) if known == cluster_id => Ok(()),
            Some(known) => Err(self.meta_error(&format!(
                "cluster.id is {known}, this broker belongs to {cluster_id}; start it with the \
                 log.dirs and the metadata of one cluster, or delete this file if they are"
            ))),
            None => {
                self.replace(META, meta::text(self.broker_id, cluster_id).as_bytes())?;
                *mine = Some(cluster_id.to_owned());
                Ok(())
            }
        }
    }

    /// Whether the last user shut it down cleanly.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Whether it failed since it was opened.
    pub fn is_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire)
    }

    /// Takes it offline until the next start.
    pub fn take_offline(&self, why: &dyn std::fmt::Display) {
        if !self.offline.swap(true, Ordering::AcqRel) {
            tracing::error!(dir = %self.path.display(), "log directory goes offline: {why}");
        }
    }

    /// Number and duration of its syncs.
    pub fn syncs(&self) -> SyncStats {
        self.syncs.stats()
    }

    /// The partitions that lie in it.
    pub fn partitions(&self) -> Result<Vec<FoundPartition>, StorageError> {
        names::list(&self.path).map_err(|e| StorageError::io("list", &self.path, e))
    }

    /// How many bytes of a partition's log its opening has to check.
    pub fn bytes_to_check(&self, name: &TopicPartition) -> u64 {
        if self.was_clean || self.is_offline() {
            return 0;
        }
        let point = self.points(name).recovery.map_or(0, |offset| offset.0);
        progress::bytes_to_check(&self.path.join(name.to_string()), point)
    }

    /// Free and total bytes of its file system.
    pub fn disk_space(&self) -> Result<(u64, u64), StorageError> {
        crate::sys::disk_space(&self.path).map_err(|e| StorageError::io("statvfs", &self.path, e))
    }

    /// Whether less than `reserve_bytes` are free. Says so in the log when that changes.
    pub fn is_low(&self, reserve_bytes: u64) -> Result<bool, StorageError> {
        let (free, _) = self.disk_space()?;
        let low = free < reserve_bytes;
        let dir = self.path.display();
        match (low, self.low.swap(low, Ordering::AcqRel)) {
            (true, false) => tracing::warn!(
                %dir, free, "the disk is filling up: less is free than krust.disk.reserve.bytes; \
                 when it is full, appends are refused"
            ),
            (false, true) => tracing::info!(%dir, free, "there is room on the disk again"),
            _ => {}
        }
        Ok(low)
    }

    /// Writes the checkpoint files, from the logs that are open. Call it every
    /// `log.flush.offset.checkpoint.interval.ms`, never on a network thread.
    pub fn checkpoint(&self) -> Result<(), StorageError> {
        self.online()?;
        for log in self.logs() {
            log.prepare_checkpoint()?;
            self.note(&*log);
        }
        self.write_offsets(&mut self.offsets.lock())
    }

    /// Writes the high watermarks of the logs that are open, if one has moved. Call it every
    /// `replica.high.watermark.checkpoint.interval.ms`, never on a network thread.
    pub fn checkpoint_high_watermarks(&self) -> Result<(), StorageError> {
        self.online()?;
        let logs = self.logs();
        let mut table = self.offsets.lock();
        for log in logs.iter().filter(|log| self.is_dir_of(&***log)) {
            if let Some(points) = log.points() {
                table.high_watermark.set(log.name(), points.high_watermark);
            }
        }
        table.high_watermark.write(|name, text| self.replace(name, text.as_bytes()))
    }

    /// Sets the epoch that the clean-shutdown marker will have.
    pub fn set_broker_epoch(&self, broker_epoch: i64) {
        self.broker_epoch.store(broker_epoch, Ordering::Relaxed);
    }

    /// Writes the checkpoints and the clean-shutdown marker, and frees the lock. All logs in the
    /// directory must be closed before. It writes no marker if a partition was never opened and may
    /// not have been shut down in order.
    pub fn close(&self) -> Result<(), StorageError> {
        let outcome = self.checkpoint().and_then(|()| {
            let opened = self.opened.lock();
            let unopened = |found: &FoundPartition| {
                found.kind == DirKind::Live && !opened.contains(&found.name)
            };
            if !self.was_clean && self.partitions()?.iter().any(unopened) {
                return Ok(());
            }
            let broker_epoch = self.broker_epoch.load(Ordering::Relaxed);
            let marker = format!(r#"{{"version":0,"brokerEpoch":{broker_epoch}}}"#);
            self.replace(CLEAN, marker.as_bytes())
        });
        self.unlock();
        outcome
    }

    /// Takes note of a log's offsets, for the next checkpoint. Those of a damaged log stay as they
    /// were: they are what tells the damage.
    pub(crate) fn note(&self, log: &dyn LogInDir) {
        let mut table = self.offsets.lock();
        if !self.is_dir_of(log) {
            return;
        }
        let Some(points) = log.points() else { return };
        table.recovery.set(log.name(), points.recovery);
        table.log_start.set(log.name(), points.log_start);
        table.high_watermark.set(log.name(), points.high_watermark);
    }

    /// Takes note of a log that was opened in it.
    pub(crate) fn register(&self, log: &Arc<impl LogInDir>) {
        self.opened.lock().insert(log.name().clone());
        let weak = Arc::downgrade(log);
        self.logs.lock().push(weak);
    }

    /// The logs that are open.
    pub(crate) fn logs(&self) -> Vec<Arc<dyn LogInDir>> {
        let mut logs = self.logs.lock();
        logs.retain(|log| log.strong_count() > 0);
        let open = logs.iter().filter_map(Weak::upgrade);
        open.filter(|log| log.is_on_disk() && self.is_dir_of(&**log)).collect()
    }

    /// Whether a log lies here, and was not moved to another directory.
    fn is_dir_of(&self, log: &dyn LogInDir) -> bool {
        std::ptr::eq(&*log.dir(), self)
    }

    /// What the checkpoints say of a partition.
    pub(crate) fn points(&self, name: &TopicPartition) -> CheckpointedOffsets {
        self.offsets.lock().points(name)
    }

    /// Whether a cleaner may have been at logs of which the checkpoints say nothing.
    pub(crate) fn lost_cleaned(&self) -> bool {
        self.offsets.lock().lost_cleaned
    }

    /// Forgets a partition, on disk too, so that a later one of its name inherits nothing.
    pub(crate) fn forget(&self, name: &TopicPartition) -> Result<(), StorageError> {
        self.forget_until_written(name);
        self.write_checkpoints()
    }

    /// Forgets a partition; on disk with the next write of the checkpoints.
    pub(crate) fn forget_until_written(&self, name: &TopicPartition) {
        let mut table = self.offsets.lock();
        table.files().into_iter().for_each(|file| file.set(name, None));
    }

    /// Writes the checkpoint files if they still name a deleted partition of this name.
    pub(crate) fn forget_deleted(&self, name: &TopicPartition) -> Result<(), StorageError> {
        let mut table = self.offsets.lock();
        if table.files().iter().any(|file| file.names_removed(name)) {
            self.write_offsets(&mut table)?;
        }
        Ok(())
    }

    /// Writes the checkpoint files that are behind.
    pub(crate) fn write_checkpoints(&self) -> Result<(), StorageError> {
        self.write_offsets(&mut self.offsets.lock())
    }

    /// Lowers a partition's recovery point, high watermark and clean part on disk to `point` before
    /// its log is cut there: what is appended behind the cut is not committed yet.
    pub(crate) fn lower(&self, name: &TopicPartition, point: Offset) -> Result<(), StorageError> {
        let mut table = self.offsets.lock();
        table.recovery.lower(name, point);
        table.high_watermark.lower(name, point);
        table.cleaned.lower(name, point);
        self.write_offsets(&mut table)
    }

    /// Notes on disk that a partition's log, empty by now, begins at `offset`.
    pub(crate) fn begins(&self, name: &TopicPartition, offset: Offset) -> Result<(), StorageError> {
        let mut table = self.offsets.lock();
        table.log_start.set(name, (offset.0 > 0).then_some(offset));
        self.write_offsets(&mut table)
    }

    /// Writes the checkpoints of a log that is about to move here.
    pub(crate) fn take_over(
        &self,
        name: &TopicPartition,
        points: &CheckpointedOffsets,
    ) -> Result<(), StorageError> {
        let mut table = self.offsets.lock();
        table.recovery.set(name, points.recovery);
        table.log_start.set(name, points.log_start);
        table.high_watermark.set(name, points.high_watermark);
        table.cleaned.set(name, points.cleaned);
        self.write_offsets(&mut table)
    }

    /// Notes on disk that a partition's log is clean up to `offset`.
    pub(crate) fn cleaned(
        &self,
        name: &TopicPartition,
        offset: Offset,
    ) -> Result<(), StorageError> {
        let mut table = self.offsets.lock();
        table.cleaned.set(name, Some(offset));
        self.write_offsets(&mut table)
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub(crate) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    pub(crate) const fn index_cache(&self) -> &Arc<IndexCache> {
        &self.index_cache
    }

    /// An error unless the directory is online.
    pub(crate) fn online(&self) -> Result<(), StorageError> {
        if self.is_offline() {
            return Err(StorageError::Offline(self.path.display().to_string().into()));
        }
        Ok(())
    }

    /// A failure of the disk: takes the directory offline, unless the disk is only full, the
    /// process is out of descriptors, a file went away or ends early (a truncation may have cut it
    /// under a reader), or a reader may not wait for it.
    pub(crate) fn failed(&self, doing: &str, error: std::io::Error) -> StorageError {
        let passes = crate::sys::is_out_of_descriptors(&error)
            || matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::WouldBlock
            );
        let error = StorageError::io(doing, &self.path, error);
        if matches!(error, StorageError::Io { .. }) && !passes {
            self.take_offline(&error);
        }
        error
    }

    /// A failed sync, whatever the reason: takes the directory offline.
    pub(crate) fn sync_failed(&self, path: &Path, error: std::io::Error) -> StorageError {
        let error = StorageError::io("sync", path, error);
        self.take_offline(&error);
        error
    }

    /// Makes a file's data durable.
    pub(crate) fn sync_data(&self, path: &Path, file: &File) -> Result<(), StorageError> {
        let outcome = self.syncs.measured(|| self.disk.sync_data(file));
        outcome.map_err(|error| self.sync_failed(path, error))
    }

    /// Makes a directory's entries durable.
    pub(crate) fn sync_dir(&self, path: &Path) -> Result<(), StorageError> {
        let outcome = self.syncs.measured(|| self.disk.sync_dir(path));
        outcome.map_err(|error| self.sync_failed(path, error))
    }

    /// Makes all durable that was written to its file system; false where no call does that.
    pub(crate) fn sync_all(&self) -> Result<bool, StorageError> {
        let handle = self.handle.lock().clone();
        let Some(handle) = handle else { return Ok(false) };
        match self.syncs.measured(|| self.disk.sync_all(&handle)) {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Ok(false),
            other => other.map(|()| true).map_err(|error| self.sync_failed(&self.path, error)),
        }
    }

    /// Whether `path` lies in the directory's own file system, and not behind a link or a mount.
    pub(crate) fn is_same_file_system(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let device =
            |metadata: std::io::Result<std::fs::Metadata>| metadata.ok().map(|it| it.dev());
        let mine = self.handle.lock().as_ref().and_then(|handle| device(handle.metadata()));
        mine.is_some() && mine == device(std::fs::metadata(path))
    }

    /// Writes a small file so that a crash leaves the old or the new one: temporary, fsync,
    /// rename, fsync of the directory.
    pub(crate) fn replace_file(&self, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
        let temporary = files::with_suffix(path, ".tmp");
        let fail = |error| self.failed(&format!("write {}", temporary.display()), error);
        let file = self.disk.create(&temporary).map_err(fail)?;
        self.disk.set_len(&file, 0).map_err(fail)?;
        self.disk.write_at(&file, &[bytes], 0).map_err(fail)?;
        self.sync_data(&temporary, &file)?;
        self.disk.rename(&temporary, path).map_err(fail)?;
        self.sync_dir(path.parent().unwrap_or(&self.path))
    }

    fn write_offsets(&self, table: &mut Checkpoints) -> Result<(), StorageError> {
        table
            .files()
            .into_iter()
            .try_for_each(|file| file.write(|name, text| self.replace(name, text.as_bytes())))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
        self.replace_file(&self.path.join(name), bytes)
    }

    fn meta_error(&self, what: &str) -> StorageError {
        StorageError::Meta(format!("{}: {what}", self.path.join(META).display()).into())
    }

    fn check_meta(&self, options: &DirOptions) -> Result<(), StorageError> {
        let path = self.path.join(META);
        let known = match std::fs::read(&path) {
            Ok(bytes) if bytes.is_empty() => meta::MetaProperties::default(),
            Ok(bytes) => meta::parse(&bytes).map_err(|what| {
                self.meta_error(&format!(
                    "{what}; restore it from another log directory of this broker, or delete it: \
                     the next start writes it again"
                ))
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                meta::MetaProperties::default()
            }
            Err(error) => return Err(StorageError::io("read", &path, error)),
        };
        if let Some(id) = known.broker_id
            && id.parse() != Ok(options.broker_id)
        {
            let mine = options.broker_id;
            return Err(self.meta_error(&format!(
                "broker.id is {id}, this broker is {mine}; start with broker.id={id}, or with the \
                 log.dirs of broker {mine}"
            )));
        }
        *self.cluster_id.lock() = known.cluster_id;
        options.cluster_id.as_deref().map_or(Ok(()), |id| self.join(id))
    }

    fn unlock(&self) {
        self.handle.lock().take();
        if let Some(file) = self.lock.lock().take() {
            free_lock(&self.path, file);
        }
    }
}

impl Drop for LogDir {
    fn drop(&mut self) {
        self.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_against_a_second_user() {
        let dir = tempfile::tempdir().unwrap();
        let options = DirOptions::default();
        let first = LogDir::open(dir.path(), &options).unwrap();
        assert!(matches!(LogDir::open(dir.path(), &options), Err(StorageError::Locked(_))));
        first.set_broker_epoch(120);
        first.close().unwrap();
        let marker = std::fs::read_to_string(dir.path().join(CLEAN)).unwrap();
        assert_eq!(marker, r#"{"version":0,"brokerEpoch":120}"#);
        let again = LogDir::open(dir.path(), &options).unwrap();
        assert!(again.was_clean());
        drop(again);
        assert!(!LogDir::open(dir.path(), &options).unwrap().was_clean());
    }

    #[test]
    fn a_disk_is_low_when_less_than_the_reserve_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let dir = LogDir::open(dir.path(), &DirOptions::default()).unwrap();
        assert!(dir.is_low(u64::MAX).unwrap());
        assert!(!dir.is_low(0).unwrap());
    }

    #[test]
    fn a_directory_of_another_cluster_or_broker_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let options = |cluster: &str, broker_id| DirOptions {
            cluster_id: Some(cluster.to_owned()),
            broker_id,
            ..DirOptions::default()
        };
        drop(LogDir::open(dir.path(), &options("one", 1)).unwrap());
        let text = std::fs::read_to_string(dir.path().join(META)).unwrap();
        assert!(text.ends_with("\nbroker.id=1\nversion=0\ncluster.id=one\n"));
        assert!(LogDir::open(dir.path(), &options("two", 1)).is_err());
        assert!(LogDir::open(dir.path(), &options("one", 2)).is_err());
        let any = DirOptions { broker_id: 1, ..DirOptions::default() };
        assert_eq!(LogDir::open(dir.path(), &any).unwrap().cluster_id().as_deref(), Some("one"));
    }
}
