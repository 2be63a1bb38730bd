//! The progress of opening logs, for the thread that watches a start, and the flag that cancels it.
//!
//! Invariants: opened <= logs, checked <= to_check; both are equal once all logs are opened, even
//! if some were cut or failed. Threads: shared; atomics, and a short lock when a log is cut.
//! Not promised: that the four numbers of a snapshot are of the same moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::errors::StorageError;
use super::file_names::{LOG, parse_name};

/// Bytes that are checked between two reports of progress.
pub(crate) const STEP: u64 = 1 << 20;

/// Counts the logs that are opened and the bytes that are checked.
#[derive(Debug, Default)]
pub struct StartProgress {
    logs: AtomicU64,
    opened: AtomicU64,
    to_check: AtomicU64,
    checked: AtomicU64,
    given_up: AtomicBool,
    cuts: Mutex<RecoveryCuts>,
}

/// The sum of the cuts of all recoveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCuts {
    /// Number of logs.
    pub logs: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of offsets, as far as it is known.
    pub offsets: u64,
}

/// A snapshot of the progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningProgress {
    /// Logs to open.
    pub logs: u64,
    /// Logs that were opened or failed.
    pub opened: u64,
    /// Bytes to check.
    pub to_check: u64,
    /// Bytes that were checked or given up.
    pub checked: u64,
}

/// The progress of one log. It is done when this is dropped.
#[derive(Debug)]
pub struct LogCheck {
    progress: Arc<StartProgress>,
    log: Arc<str>,
    left: AtomicU64,
}

impl StartProgress {
    /// Notes a log to open, with about `bytes` to check.
    pub fn expect(self: &Arc<Self>, log: Arc<str>, bytes: u64) -> LogCheck {
        self.logs.fetch_add(1, Ordering::Relaxed);
        self.to_check.fetch_add(bytes, Ordering::Relaxed);
        LogCheck { progress: Arc::clone(self), log, left: AtomicU64::new(bytes) }
    }

    /// The present numbers.
    pub fn snapshot(&self) -> OpeningProgress {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (opened, checked) = (read(&self.opened), read(&self.checked));
        OpeningProgress { logs: read(&self.logs), opened, to_check: read(&self.to_check), checked }
    }

    /// The cuts since the last call.
    pub fn take_cuts(&self) -> RecoveryCuts {
        std::mem::take(&mut *self.cuts.lock())
    }

    /// Cancels the opening: no further log is opened, and checks that run end soon. The disk stays
    /// in a state that the next start can handle.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether the opening was cancelled.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }
}

impl LogCheck {
    /// Adds checked bytes. Errors: the opening was cancelled.
    pub(crate) fn add(&self, bytes: u64) -> Result<(), StorageError> {
        self.count(bytes);
        self.go_on()
    }

    /// Notes the bytes and offsets that a cut of this log removed.
    pub(crate) fn add_cut(&self, bytes: u64, offsets: u64) {
        let mut cuts = self.progress.cuts.lock();
        cuts.logs += 1;
        cuts.bytes = cuts.bytes.saturating_add(bytes);
        cuts.offsets = cuts.offsets.saturating_add(offsets);
    }

    /// Errors: the opening was cancelled.
    pub(crate) fn go_on(&self) -> Result<(), StorageError> {
        match self.progress.is_given_up() {
            true => Err(StorageError::Closed(Arc::clone(&self.log))),
            false => Ok(()),
        }
    }

    fn count(&self, bytes: u64) {
        let left = self.left.load(Ordering::Relaxed);
        let counted = bytes.min(left);
        self.left.store(left - counted, Ordering::Relaxed);
        self.progress.checked.fetch_add(counted, Ordering::Relaxed);
    }
}

impl Drop for LogCheck {
    fn drop(&mut self) {
        self.count(u64::MAX);
        self.progress.opened.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bytes of the partition's directory at `path` that a start after a crash reads completely.
pub(crate) fn bytes_to_check(path: &Path, recovery_point: i64) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let segment = |entry: &std::fs::DirEntry| match parse_name(entry.file_name().to_str()?)? {
        (base, LOG) => Some((base, entry.metadata().ok()?.len())),
        _ => None,
    };
    let sizes: BTreeMap<i64, u64> = entries.flatten().filter_map(|entry| segment(&entry)).collect();
    let first = sizes.range(..=recovery_point).next_back().map_or(i64::MIN, |(base, _)| *base);
    sizes.range(first..).map(|(_, size)| size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_done_has_checked_all_it_had_to() {
        let progress = Arc::new(StartProgress::default());
        let (one, other) = (progress.expect("a".into(), 100), progress.expect("b".into(), 10));
        one.add(30).unwrap();
        one.add(80).unwrap();
        let snapshot = OpeningProgress { logs: 2, opened: 0, to_check: 110, checked: 100 };
        assert_eq!(progress.snapshot(), snapshot);
        drop((one, other));
        assert_eq!(progress.snapshot(), OpeningProgress { opened: 2, checked: 110, ..snapshot });
    }

    #[test]
    fn who_is_given_up_learns_it_with_the_next_step() {
        let progress = Arc::new(StartProgress::default());
        let one = progress.expect("a".into(), 100);
        one.add(1).unwrap();
        progress.give_up();
        assert!(matches!(one.add(1), Err(StorageError::Closed(name)) if &*name == "a"));
    }
}
