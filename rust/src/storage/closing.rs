//! Closes a broker's logs and then its log directories.
//!
//! Order in a directory: every log writes the files that the next start needs; all of them are
//! synced; the checkpoints are written; the clean-shutdown marker is written last. Each step
//! begins after the one before has ended. So after a crash in between, or a failed sync, the
//! next start checks the logs. If many logs must be synced, one call syncs their whole file
//! system. A single log needs eight syncs, of 2 ms each on an idle disk: 100,000 logs took
//! minutes. Without such a call each log is flushed by itself, several at a time.
//! Threads: one a directory, with [`THREADS`] - 1 more if it has many logs; the caller waits.
//! Limits: a directory that makes no progress for the caller's patience goes offline and gets no
//! marker; its thread stays blocked in a call to the disk. It does not delay other directories.
//! Not promised: which of several errors is returned. Each log keeps its own.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::dirs::LogDir;
use super::errors::StorageError;
use super::log::{Ending, Log};
use super::panics::caught;

/// Up to this many logs are synced one by one.
const FEW: usize = 64;
/// Threads that work on the logs of one directory, its own thread included.
const THREADS: usize = 4;

/// A directory that is being closed, and the logs in it.
struct ClosingDir {
    dir: Arc<LogDir>,
    logs: Vec<Arc<Log>>,
    /// Rises with each step, of all directories.
    steps: Arc<AtomicU64>,
}

/// Closes `logs`, which no thread may use any more, and the directories, so that the next start
/// needs no check. It closes all that can be closed, and returns the first error.
pub fn close_all(
    dirs: &[Arc<LogDir>],
    logs: Vec<Arc<Log>>,
    patience: Duration,
) -> Result<(), StorageError> {
    let steps = Arc::new(AtomicU64::new(0));
    let mut parts: Vec<_> = dirs.iter().map(|dir| (Arc::clone(dir), Vec::new())).collect();
    for log in logs {
        let home = log.dir();
        if let Some((_, part)) = parts.iter_mut().find(|(dir, _)| Arc::ptr_eq(dir, &home)) {
            part.push(log);
        }
    }
    let (sender, results) = mpsc::channel();
    for (index, (dir, logs)) in parts.into_iter().enumerate() {
        let closing = Arc::new(ClosingDir { dir, logs, steps: Arc::clone(&steps) });
        let other = (sender.clone(), Arc::clone(&closing));
        let run = move || drop(other.0.send((index, other.1.run())));
        if let Err(error) = thread::Builder::new().name("krust-close".into()).spawn(run) {
            tracing::warn!("log directories are closed one after the other: {error}");
            let _ = sender.send((index, closing.run()));
        }
    }
    drop(sender);
    let mut left: Vec<_> = dirs.iter().map(Some).collect();
    let mut outcome = Ok(());
    let mut seen = steps.load(Ordering::Relaxed);
    loop {
        match results.recv_timeout(patience) {
            Ok((index, closed)) => {
                outcome = outcome.and(closed);
                left.get_mut(index).and_then(Option::take);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let now = steps.load(Ordering::Relaxed);
                if std::mem::replace(&mut seen, now) == now {
                    break;
                }
            }
        }
    }
    for dir in left.into_iter().flatten() {
        let seconds = patience.as_secs_f64();
        dir.take_offline(&format_args!("closing it did not get on for {seconds} s"));
        outcome = outcome.and(dir.online());
    }
    outcome
}

impl ClosingDir {
    fn run(&self) -> Result<(), StorageError> {
        let path = self.dir.path().display();
        let closed = caught(&format_args!("closing {path}"), || self.close_logs());
        let closed = closed.unwrap_or_else(|| {
            self.dir.take_offline(&"closing it panicked");
            self.dir.online()
        });
        closed.and(self.dir.close())
    }

    fn close_logs(&self) -> Result<(), StorageError> {
        let unsynced = Mutex::new(Vec::new());
        let mut outcome = self.each(&self.logs, |log| {
            let ending = log.begin_close()?;
            if ending.is_unsynced {
                unsynced.lock().push((Arc::clone(log), ending));
            } else {
                log.end_close(ending);
            }
            Ok(())
        });
        let mut one_by_one = unsynced.into_inner();
        if one_by_one.len() > FEW {
            let is_here = |(log, _): &mut (Arc<Log>, _)| self.dir.is_same_file_system(&log.path());
            let together: Vec<_> = one_by_one.extract_if(.., is_here).collect();
            match self.sync_together(&together) {
                Ok(true) => {}
                Ok(false) => one_by_one.extend(together),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.and(self.each(&one_by_one, |(log, _)| log.close()))
    }

    /// Closes logs after one sync of all; false if the file system has no such sync.
    fn sync_together(&self, logs: &[(Arc<Log>, Ending)]) -> Result<bool, StorageError> {
        self.each(logs, |(log, _)| log.write_epochs())?;
        if !self.dir.sync_all()? {
            return Ok(false);
        }
        self.each(logs, |(log, ending)| {
            log.end_close(*ending);
            Ok(())
        })?;
        Ok(true)
    }

    /// Runs `f` for each item, several at a time if there are many. Returns the first error.
    fn each<T: Sync>(
        &self,
        items: &[T],
        f: impl Fn(&T) -> Result<(), StorageError> + Sync,
    ) -> Result<(), StorageError> {
        let (next, first) = (AtomicUsize::new(0), Mutex::new(Ok(())));
        let work = || {
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = f(item) {
                    let mut first = first.lock();
                    *first = first.clone().and(Err(error));
                }
                self.steps.fetch_add(1, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            let more = if items.len() > FEW { THREADS - 1 } else { 0 };
            for _ in 0..more {
                // If no thread can be started, this one does all.
                let worker = thread::Builder::new().name("krust-close".into());
                let _ = worker.spawn_scoped(scope, work);
            }
            work();
        });
        first.into_inner()
    }
}
