//! Moves replicas to other log directories, and remembers the preferred directories of future
//! replicas.
//!
//! Threads: any but a network thread, because a slow disk may hold a lock that is needed here.
//! Limits: preferred directories of replicas that do not exist yet are kept in memory only, for at
//!     most [`MAX_PREFERRED_DIRS`] replicas.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::broker::policy::Event;
use crate::broker::requests::broker::Broker;
use crate::broker::state::partition::Partition;
use crate::ids::TopicPartition;
use crate::protocol::value::Value;
use crate::storage::{DirKind, FutureReplica, FutureReplicas, LogDir, StorageError};

/// The most future replicas with a preferred directory.
const MAX_PREFERRED_DIRS: usize = 10_000;

/// A log directory and its partitions; `true` marks a replica that is being copied here.
pub type LogDirContents = (Arc<LogDir>, Vec<(TopicPartition, bool)>);

impl Broker {
    /// All log directories and the partitions in them.
    pub fn log_dirs(&self) -> Vec<LogDirContents> {
        let (partitions, moves) = (self.partitions(), self.moves());
        let contents = |dir: &Arc<LogDir>| {
            let here = partitions.iter().filter(|it| Arc::ptr_eq(&it.log.dir(), dir));
            let coming = moves.iter().filter(|it| Arc::ptr_eq(it.to(), dir));
            let here = here.map(|it| (it.name.clone(), false));
            (Arc::clone(dir), here.chain(coming.map(|it| (it.name().clone(), true))).collect())
        };
        self.log_manager.dirs().iter().map(contents).collect()
    }

    /// Moves a replica to a log directory. A replica that does not exist yet will be created there.
    /// A move to another directory is cancelled.
    /// Errors: there is no such directory, or it is offline.
    pub fn place_replica(&self, name: &TopicPartition, path: &Path) -> Result<(), StorageError> {
        let offline = || StorageError::Offline(path.display().to_string().into());
        let dirs = self.log_manager.dirs();
        let index = dirs.iter().position(|dir| dir.path() == path).ok_or_else(offline)?;
        let dir = dirs.get(index).filter(|dir| !dir.is_offline()).ok_or_else(offline)?;
        let image = self.image();
        let partition = image.topic(&name.topic).and_then(|it| it.partition(name.partition));
        if let Some(partition) = partition.and_then(|it| it.local.as_ref()) {
            if let Some(future_replicas) = self.future_replicas.get() {
                future_replicas.ask(&partition.log, dir, None);
            }
            return Ok(());
        }
        let mut preferred_dirs = self.log_manager.preferred_dirs.lock();
        if preferred_dirs.len() < MAX_PREFERRED_DIRS || preferred_dirs.contains_key(name) {
            preferred_dirs.insert(name.clone(), index);
        }
        Ok(())
    }

    /// The moves that are under way.
    pub(crate) fn moves(&self) -> Vec<Arc<FutureReplica>> {
        self.future_replicas.get().map_or_else(Vec::new, |future_replicas| future_replicas.moves())
    }

    /// Starts the thread that moves logs.
    pub(crate) fn start_moving(self: &Arc<Self>) -> std::io::Result<()> {
        let broker = Arc::downgrade(self);
        let future_replicas = FutureReplicas::start(Box::new(move |log| {
            if let Some(broker) = broker.upgrade() {
                let to = log.dir();
                if let Some(index) =
                    broker.log_manager.dirs().iter().position(|d| Arc::ptr_eq(d, &to))
                {
                    broker.log_manager.places.lock().insert(log.name().clone(), index);
                }
                broker.flushed(log.name());
            }
        }))?;
        let _ = self.future_replicas.set(future_replicas);
        Ok(())
    }

    /// Continues the move of a replica that an earlier start began.
    pub(crate) fn move_on(&self, partition: &Partition) {
        let Some((index, path)) = self.log_manager.futures.lock().remove(&partition.name) else {
            return;
        };
        let Some(dir) = self.log_manager.dirs().get(index).filter(|dir| !dir.is_offline()) else {
            return;
        };
        match self.future_replicas.get() {
            Some(future_replicas) if !Arc::ptr_eq(&partition.log.dir(), dir) => {
                future_replicas.ask(&partition.log, dir, Some(path));
            }
            _ => dir.remove_aside(&path),
        }
    }

    /// Sends the policy the event `LogDirFailed` for the replicas that are lost with a log
    /// directory, once for each.
    pub(crate) fn tell_lost(&self) {
        if !self.log_manager.dirs().iter().any(|dir| dir.is_offline()) {
            return;
        }
        let (node, image) = (self.settings.load().node_id, self.image());
        let mut lost = BTreeSet::new();
        for topic in image.topics() {
            for (number, partition) in (0..).zip(&topic.partitions) {
                let works = partition.local.as_ref().is_some_and(|it| !it.log.is_offline());
                if partition.state.replicas.contains(&node) && !works {
                    lost.insert(TopicPartition::new(Arc::clone(&topic.name), number));
                }
            }
        }
        let mut reported = self.log_manager.lost.lock();
        if *reported == lost {
            return;
        }
        let replica = |name: &TopicPartition| {
            Value::Map(vec![
                ("topic".into(), Value::Str(name.topic.to_string())),
                ("partition".into(), Value::Int(name.partition.into())),
            ])
        };
        let replicas = Value::List(lost.iter().map(replica).collect());
        let request = Value::Map(vec![("replicas".into(), replicas)]);
        self.policy.submit(Event::internal("LogDirFailed", request));
        *reported = lost;
    }

    /// Registers the partitions of a log directory.
    pub(crate) fn note_found(
        &self,
        index: usize,
        dir: &LogDir,
        found: &crate::storage::FoundPartition,
    ) {
        match found.kind {
            DirKind::Live => {
                self.log_manager.places.lock().insert(found.name.clone(), index);
            }
            DirKind::Future => {
                let place = (index, found.path.clone());
                let before = self.log_manager.futures.lock().insert(found.name.clone(), place);
                if let Some((other, path)) = before {
                    let dirs = self.log_manager.dirs();
                    dirs.get(other).map_or(dir, |other| other).remove_aside(&path);
                }
            }
            DirKind::Delete | DirKind::Stray => {}
        }
    }

    /// Removes the copies of deleted partitions.
    pub(crate) fn drop_futures(&self, gone: &[TopicPartition]) {
        let mut futures = self.log_manager.futures.lock();
        for (index, path) in gone.iter().filter_map(|name| futures.remove(name)) {
            if let Some(dir) = self.log_manager.dirs().get(index) {
                dir.remove_aside(&path);
            }
        }
    }
}
