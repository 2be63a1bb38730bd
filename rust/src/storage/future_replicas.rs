//! The thread that moves logs to other log directories (see `log/relocate`): each has a future
//! replica there. At a start it finishes or removes moves that a crash interrupted.
//!
//! Moves run one after the other. If one cannot continue now (the disk is full, a cleaner works on
//! the log), the next one comes first. A move ends when its log is deleted or the move is
//! cancelled; its directory is then removed. The next start continues a move that a stop
//! interrupted. A move that panics ends. If the panic came while the log switched directories, both
//! directories go offline. A panic elsewhere ends the thread: see [`FutureReplicas::has_failed`].
//! Threads: one thread moves; a request takes a short lock.
//! Not promised: an order among moves, or the end of the move of a log that is written faster than
//! it is copied.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::deletion::delete_now;
use super::dirs::LogDir;
use super::errors::StorageError;
use super::files;
use super::log::{Copied, FutureLog, Log, MOVED};
use super::names::{self, DirKind, FoundPartition};
use super::panics::caught;
use crate::ids::TopicPartition;

/// The time after which a move that could not continue is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Called when a log has moved to another directory.
type MoveCallback = Box<dyn Fn(&Arc<Log>) + Send + Sync>;

/// One log's move.
pub struct FutureReplica {
    log: Arc<Log>,
    to: Arc<LogDir>,
    path: PathBuf,
    cancelled: AtomicBool,
    progress: Arc<Copied>,
    future: Mutex<Option<FutureLog>>,
}

/// The thread that moves logs.
pub struct FutureReplicas {
    state: Mutex<MoveQueue>,
    changed: Condvar,
    failed: AtomicBool,
    arrived: MoveCallback,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct MoveQueue {
    moves: VecDeque<Arc<FutureReplica>>,
    stopped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MoveStep {
    Again,
    Later,
    Done,
}

impl std::fmt::Debug for FutureReplicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FutureReplicas {{ moves: {} }}", self.state.lock().moves.len())
    }
}

impl FutureReplica {
    /// The partition.
    pub fn name(&self) -> &TopicPartition {
        self.log.name()
    }

    /// The target directory.
    pub fn to(&self) -> &Arc<LogDir> {
        &self.to
    }

    /// Bytes copied so far.
    pub fn size(&self) -> u64 {
        self.progress.size.load(Ordering::Relaxed)
    }

    /// Number of offsets not copied yet.
    pub fn lag(&self) -> i64 {
        let end = self.progress.end.load(Ordering::Relaxed).max(self.log.log_start_offset().0);
        (self.log.log_end_offset().0 - end).max(0)
    }

    /// Ends a move after a panic: the copy is removed, the log stays where it is.
    fn fail(&self) -> MoveStep {
        if !Arc::ptr_eq(&self.log.dir(), &self.to) {
            let remove = || self.to.remove_aside(&self.path);
            caught(&"the end of a move", remove).unwrap_or_default();
        }
        MoveStep::Done
    }

    fn goes_on(&self) -> bool {
        !self.cancelled.load(Ordering::Acquire)
    }
}

impl FutureReplicas {
    /// Starts the thread; `arrived` runs on it.
    pub fn start(arrived: MoveCallback) -> std::io::Result<Arc<Self>> {
        let future_replicas = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            failed: AtomicBool::new(false),
            arrived,
            thread: Mutex::new(None),
        });
        let me = Arc::clone(&future_replicas);
        let thread =
            std::thread::Builder::new().name("krust-future_replicas".into()).spawn(move || {
                if caught(&"the future_replicas thread", || me.run()).is_none() {
                    me.failed.store(true, Ordering::Release);
                }
            })?;
        *future_replicas.thread.lock() = Some(thread);
        Ok(future_replicas)
    }

    /// Moves `log` to `to`, instead of any other target. If the log is there already, a move under
    /// way ends. `path`: the directory of a copy that an earlier start began.
    pub fn ask(&self, log: &Arc<Log>, to: &Arc<LogDir>, path: Option<PathBuf>) {
        let mut state = self.state.lock();
        let known = state.moves.iter().find(|it| it.name() == log.name() && it.goes_on());
        if known.is_some_and(|it| Arc::ptr_eq(&it.to, to) && Arc::ptr_eq(&it.log, log)) {
            return;
        }
        if let Some(known) = known {
            known.cancelled.store(true, Ordering::Release);
        }
        // A move under way may still end at its former target; then the log is moved back.
        if known.is_some() || !Arc::ptr_eq(&log.dir(), to) {
            let fresh = || to.path().join(names::future_name(log.name()));
            state.moves.push_back(Arc::new(FutureReplica {
                log: Arc::clone(log),
                to: Arc::clone(to),
                path: path.unwrap_or_else(fresh),
                cancelled: AtomicBool::new(false),
                progress: Arc::default(),
                future: Mutex::default(),
            }));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The moves that run or wait.
    pub fn moves(&self) -> Vec<Arc<FutureReplica>> {
        let state = self.state.lock();
        let is_under_way =
            |it: &&Arc<FutureReplica>| it.goes_on() && !Arc::ptr_eq(&it.log.dir(), &it.to);
        state.moves.iter().filter(is_under_way).cloned().collect()
    }

    /// Interrupts the thread and waits for its end.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the future_replicas thread had panicked");
        }
    }

    /// Whether the thread ended by a panic: no log moves any more.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    fn run(&self) {
        loop {
            let next = {
                let mut state = self.state.lock();
                while state.moves.is_empty() && !state.stopped {
                    self.changed.wait(&mut state);
                }
                if state.stopped {
                    return;
                }
                state.moves.front().cloned()
            };
            let Some(next) = next else { continue };
            let doing = format_args!("the move of {} to {}", next.name(), next.to.path().display());
            let step = caught(&doing, || self.step(&next)).unwrap_or_else(|| next.fail());
            let mut state = self.state.lock();
            if step != MoveStep::Again {
                state.moves.pop_front();
            }
            if step == MoveStep::Later {
                state.moves.push_back(next);
                if !state.stopped {
                    self.changed.wait_for(&mut state, RETRY);
                }
            }
        }
    }

    fn step(&self, it: &FutureReplica) -> MoveStep {
        let mut future = it.future.lock();
        let outcome = if it.goes_on() { self.go_on(it, &mut future) } else { Ok(MoveStep::Done) };
        let step = match outcome {
            Ok(step) => step,
            Err(StorageError::NoSpace(what)) => {
                tracing::debug!(log = %it.name(), "the move waits for room: {what}");
                MoveStep::Later
            }
            Err(StorageError::Closed(_)) => MoveStep::Done,
            Err(error) => {
                let to = it.to.path().display();
                tracing::warn!(log = %it.name(), "not moved to {to}: {error}");
                MoveStep::Done
            }
        };
        if step == MoveStep::Done {
            let has_begun = future.take().is_some();
            if !Arc::ptr_eq(&it.log.dir(), &it.to) {
                it.to.remove_aside(&it.path);
            } else if has_begun {
                tracing::info!(log = %it.name(), "moved to {}", it.to.path().display());
                (self.arrived)(&it.log);
            }
        }
        step
    }

    fn go_on(
        &self,
        it: &FutureReplica,
        future: &mut Option<FutureLog>,
    ) -> Result<MoveStep, StorageError> {
        if Arc::ptr_eq(&it.log.dir(), &it.to) {
            return Ok(MoveStep::Done);
        }
        let future = match future {
            Some(future) => future,
            None => future.insert(FutureLog::begin(&it.log, &it.to, (&it.path, &it.progress))?),
        };
        let missing = future.copy(&|| it.goes_on() && !self.is_stopped())?;
        if self.is_stopped() || !it.goes_on() || !FutureLog::is_little(missing) {
            return Ok(MoveStep::Again);
        }
        let from = it.log.dir();
        let swap = caught(&format_args!("the end of the move of {}", it.name()), || future.swap());
        let swapped = swap.unwrap_or_else(|| {
            let half = StorageError::Meta("a move panicked where a log changes its place".into());
            [&from, &it.to].into_iter().for_each(|dir| dir.take_offline(&half));
            Err(half)
        })?;
        Ok(if swapped { MoveStep::Done } else { MoveStep::Later })
    }
}

/// Finishes deletions that a crash interrupted, and moves whose copy had replaced the log. Call it
/// before any log is opened.
/// Errors: a partition is in two directories, and no file says which one is current.
pub fn settle(dirs: &[Arc<LogDir>]) -> Result<(), StorageError> {
    let mut places: HashMap<TopicPartition, Vec<(&Arc<LogDir>, FoundPartition)>> = HashMap::new();
    for dir in dirs.iter().filter(|dir| !dir.is_offline()) {
        for found in dir.partitions()? {
            match found.kind {
                DirKind::Live => places.entry(found.name.clone()).or_default().push((dir, found)),
                DirKind::Delete => dir.remove_aside(&found.path),
                DirKind::Future | DirKind::Stray => {}
            }
        }
    }
    for (name, places) in places {
        let marked = |(_, found): &&(&Arc<LogDir>, FoundPartition)| found.path.join(MOVED).exists();
        let mut moved = places.iter().filter(marked);
        let (newest, is_one) = (moved.next(), moved.next().is_none());
        match newest {
            Some((dir, found)) if is_one => {
                for (other, _) in places.iter().filter(|place| !Arc::ptr_eq(place.0, dir)) {
                    tracing::info!(log = %name, "a move to {} is ended", dir.path().display());
                    delete_now(other, &name)?;
                }
                forget_move(dirs, dir, found)?;
            }
            _ if places.len() > 1 => {
                let paths: Vec<String> =
                    places.iter().map(|(_, found)| found.path.display().to_string()).collect();
                let text = format!(
                    "{name} lies in two log directories ({}): move the one away that is older",
                    paths.join(" and ")
                );
                return Err(StorageError::Meta(text.into()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes the marker, unless the old files may be in a directory that is offline now.
fn forget_move(
    dirs: &[Arc<LogDir>],
    dir: &LogDir,
    found: &FoundPartition,
) -> Result<(), StorageError> {
    let marker = found.path.join(MOVED);
    let from = std::fs::read(&marker).map_err(|error| StorageError::io("read", &marker, error))?;
    let from = PathBuf::from(OsString::from_vec(from));
    if !dirs.iter().any(|dir| *dir.path() == from && !dir.is_offline()) {
        return Ok(());
    }
    files::remove_if_there(dir.disk(), &marker)
        .map_err(|error| dir.failed("remove a marker", error))?;
    dir.sync_dir(&found.path)
}
