//! Applies metadata deltas: log directories are opened at start, partitions are added and removed,
//! and everything is closed at the end.
//!
//! A delta makes a new image and swaps it in; requests that already run keep the old one. A
//! partition stays the same object from image to image while its topic's id stays.
//! Threads: any but a network thread, because opening a log may recover it and deleting one removes
//!     files. One delta at a time.
//! Not promised: that every partition of a delta can be opened. A partition on a failed disk is not
//!     led here.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::broker::lifecycle::groups::replay::GroupReplay;
use crate::broker::lifecycle::opening::{ApplyError, LogToOpen, OpenedLogs};
use crate::broker::lifecycle::transactions::replay::TransactionReplay;
use crate::broker::replica::leader::{IsrMember, Leadership, ReplicationSettings};
use crate::broker::requests::broker::Broker;
use crate::broker::state::groups::shard::TOPIC;
use crate::broker::state::image::{
    ClusterImage, MetadataDelta, PartitionImage, PartitionState, TopicDelta, TopicImage,
    TopicSettings,
};
use crate::broker::state::log_manager::LoadedLog;
use crate::broker::state::partition::{LeaderAssignment, Partition};
use crate::broker::state::quotas;
use crate::broker::state::transactions;
use crate::broker::state::waking::Wakes;
use crate::ids::{TopicId, TopicPartition};
use crate::storage::{
    Cleaner, CleanerOptions, DeletedLog, Deletions, Intervals, LogConfig, LogScheduler, Open,
    ScheduledTask, StorageError, Syncer, close_all, settle,
};

/// A log directory that makes no progress for this long while it is closed is abandoned.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often the log directories are checked for failures.
const LOOK_MS: u64 = 1000;
/// How often in-sync sets whose outcome is unknown are proposed again. Until the outcome is known,
/// records wait for the proposed replica, and it may have stopped together with the controller.
const REPEAT_MS: u64 = 100;

/// The effects of a delta on the partitions of this broker.
struct DeltaStep {
    strays: HashSet<TopicPartition>,
    failures: Vec<ApplyError>,
    /// Whether this is the first delta, which names what existed before the start.
    is_first: bool,
    /// The brokers that are alive.
    alive: Vec<i32>,
    /// Partitions whose waiting requests must be woken.
    left: Vec<Arc<Partition>>,
    /// Partitions that this delta assigned to this broker or removed from it.
    assigned: Vec<Arc<Partition>>,
    deletions: Deletions,
}

/// A topic after the delta, and before it.
struct TopicPlan {
    name: Arc<str>,
    id: TopicId,
    internal: bool,
    settings: Arc<TopicSettings>,
    config: Arc<LogConfig>,
    /// All partitions by number, and whether the delta names them.
    partitions: Vec<(PartitionState, bool)>,
    old: Option<Arc<TopicImage>>,
}

impl TopicPlan {
    fn new(name: Arc<str>, delta: TopicDelta, old: Option<Arc<TopicImage>>) -> Self {
        let TopicDelta { id, internal, settings, partitions } = delta;
        let settings = match &old {
            Some(old) if *old.settings == settings => Arc::clone(&old.settings),
            _ => Arc::new(settings),
        };
        let config = Arc::new(settings.log.clone());
        let partitions = merged(&name, old.as_deref(), partitions);
        Self { name, id, internal, settings, config, partitions, old }
    }

    fn before(&self, number: i32) -> Option<Arc<Partition>> {
        self.old.as_ref()?.partition(number)?.local.clone()
    }
}

/// All partitions of a topic: those of the image, with the changes of a delta.
fn merged(
    name: &str,
    old: Option<&TopicImage>,
    changed: Vec<(i32, PartitionState)>,
) -> Vec<(PartitionState, bool)> {
    let old = old.map_or(&[][..], |old| &old.partitions);
    let mut partitions: Vec<_> = old.iter().map(|old| (old.state.clone(), false)).collect();
    for (number, state) in changed {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let count = partitions.len();
        match partitions.get_mut(at) {
            Some(partition) => *partition = (state, true),
            None if at == count => partitions.push((state, true)),
            None => tracing::error!("a delta names {name}-{number}, but not those before it"),
        }
    }
    partitions
}

/// Applies the changes of a delta, except for topics.
fn change_cluster(image: &mut ClusterImage, delta: &mut MetadataDelta) {
    image.version = delta.version;
    if let Some(cluster_id) = delta.cluster_id.take() {
        image.cluster_id = cluster_id;
    }
    if let Some(controller_id) = delta.controller_id {
        image.controller_id = controller_id;
    }
    if let Some(brokers) = delta.brokers.take() {
        image.brokers = brokers.into();
    }
    if let Some(broker_epoch) = delta.broker_epoch {
        image.broker_epoch = broker_epoch;
    }
    if let Some(waits) = delta.waits {
        image.waits = waits;
    }
    if let Some(rows) = delta.quotas.take() {
        image.quotas = quotas::QuotaTable::of(rows).map(Arc::new);
    }
    if let Some(users) = delta.scram.take() {
        image.scram = Arc::new(users);
    }
    if !delta.tokens.is_empty() {
        image.tokens = Arc::new(image.tokens.changed(std::mem::take(&mut delta.tokens)));
    }
    if let Some(acls) = delta.acls.take() {
        image.acls = acls;
    }
}

impl Broker {
    /// The partitions in the log directories. They are opened when a delta names them.
    pub fn load(&self) -> Result<Vec<LoadedLog>, StorageError> {
        settle(&self.log_manager.dirs)?;
        let mut all = Vec::new();
        let dirs = self.log_manager.dirs.iter().enumerate();
        for (index, dir) in dirs.filter(|(_, dir)| !dir.is_offline()) {
            for found in dir.partitions()? {
                self.note_found(index, dir, &found);
                all.push(LoadedLog { found, dir: index });
            }
        }
        Ok(all)
    }

    /// Makes the next image. A delta whose number is not above the image's is ignored. Returns the
    /// partitions that could not be opened or removed; the rest of the delta is applied.
    pub fn apply(&self, mut delta: MetadataDelta) -> Vec<ApplyError> {
        let _one_at_a_time = self.applying.lock();
        let mut image = ClusterImage::clone(&self.image.load());
        if delta.version <= image.version {
            return Vec::new();
        }
        let is_first = image.version == 0;
        let have_brokers_changed = delta.brokers.is_some();
        change_cluster(&mut image, &mut delta);
        let mut step = DeltaStep {
            strays: delta.strays,
            failures: Vec::new(),
            is_first,
            alive: image.brokers.iter().map(|broker| broker.id).collect(),
            left: Vec::new(),
            assigned: Vec::new(),
            deletions: Deletions::default(),
        };
        let deleted = self.remove_topics(&delta.topics, (&mut image, &mut step));
        let plan = |(name, topic): (Arc<str>, Option<TopicDelta>)| {
            let old = image.topic(&name).cloned();
            topic.map(|topic| TopicPlan::new(name, topic, old))
        };
        let plans: Vec<TopicPlan> = delta.topics.into_iter().filter_map(plan).collect();
        let wanted = plans.iter().flat_map(|plan| self.wanted(plan, step.is_first)).collect();
        let mut opened = self.open_all(wanted);
        let mut changed = Vec::new();
        for plan in plans {
            let topic = Arc::new(self.build(plan, (&mut opened, &mut step)));
            changed.push(Arc::clone(&topic));
            image.put(topic);
        }
        // This precedes the new image, so that a thread that sees the topic of groups finds their
        // shards.
        let node = self.settings.load().node_id;
        let topic = image.topic(TOPIC).map(|it| &**it);
        let (loading, left) = self.groups.follow(topic, node);
        self.unloaded(left.iter().map(|group_id| &**group_id));
        self.load_shards::<GroupReplay>(loading);
        let topic = image.topic(transactions::shard::TOPIC).map(|it| &**it);
        let loading = self.transactions.shards.follow(topic, node).to_load;
        self.load_shards::<TransactionReplay>(loading);
        self.image.store(Arc::new(image));
        self.image_number.fetch_add(1, Ordering::Release);
        self.tell_leaders(&changed, &step.alive, have_brokers_changed);
        if !step.deletions.is_empty() {
            self.remove_later(std::mem::take(&mut step.deletions));
        }
        self.forget_topics(&deleted);
        for partition in step.left.drain(..) {
            partition.abandon(&mut Wakes { here: None, waker: self });
        }
        self.assign_fetchers(&step.assigned, have_brokers_changed);
        self.set_strays_aside(&mut step);
        step.failures
    }

    /// Notifies the partitions of the changes after the image has them.
    fn tell_leaders(&self, changed: &[Arc<TopicImage>], alive: &[i32], have_brokers_changed: bool) {
        // A flush while a partition was in no image yet has woken no request.
        for partition in changed.iter().flat_map(|topic| topic.partitions.iter()) {
            if let Some(partition) = &partition.local {
                let mut wakes = Wakes { here: None, waker: self };
                partition.advance(&mut wakes);
                partition.wake_readers(&mut wakes);
            }
        }
        if have_brokers_changed {
            for partition in self.partitions() {
                partition.brokers_changed(alive, &mut Wakes { here: None, waker: self });
            }
        }
    }

    /// Removes the topics from the image that the delta deletes or replaces. Returns them.
    fn remove_topics(
        &self,
        topics: &[(Arc<str>, Option<TopicDelta>)],
        (image, step): (&mut ClusterImage, &mut DeltaStep),
    ) -> Vec<Arc<str>> {
        let mut deleted = Vec::new();
        for (name, topic) in topics {
            let old_id = image.topic(name).map(|old| old.id);
            if topic.as_ref().is_none_or(|topic| old_id != Some(topic.id))
                && let Some(old) = image.remove(name)
            {
                let local = old.partitions.iter().filter_map(|p| p.local.as_ref());
                local.for_each(|partition| self.drop_partition(partition, step));
                deleted.push(Arc::clone(&old.name));
            }
            if topic.is_none() && old_id.is_none() {
                self.delete_unopened(name, step);
            }
        }
        deleted
    }

    /// The logs of a topic that must be opened here.
    fn wanted(&self, plan: &TopicPlan, is_first: bool) -> Vec<LogToOpen> {
        let node = self.settings.load().node_id;
        let mut wanted = Vec::new();
        for (number, (state, _)) in (0..).zip(&plan.partitions) {
            if !state.replicas.contains(&node) || plan.before(number).is_some() {
                continue;
            }
            let open = Open {
                config: Arc::clone(&plan.config),
                topic_id: Some(plan.id),
                leader_epoch: Some(state.leader_epoch).filter(|epoch| epoch.0 >= 0),
                clean: false,
                dense: !plan.config.compact,
                clock: Arc::clone(&self.clock),
                syncer: self.syncer.get().cloned(),
                checking: None,
            };
            let name = TopicPartition::new(Arc::clone(&plan.name), number);
            let is_new = !is_first && state.leader_epoch.0 <= 0;
            wanted.push(LogToOpen { name, open, is_new });
        }
        wanted
    }

    fn build(
        &self,
        mut plan: TopicPlan,
        (opened, step): (&mut OpenedLogs, &mut DeltaStep),
    ) -> TopicImage {
        let node = self.settings.load().node_id;
        let has_changed = plan.old.as_ref().is_some_and(|old| old.settings != plan.settings);
        let mut partitions = Vec::with_capacity(plan.partitions.len());
        for (number, (state, is_named)) in (0..).zip(std::mem::take(&mut plan.partitions)) {
            let before = plan.before(number);
            let is_open = before.is_some();
            let local = if !state.replicas.contains(&node) {
                before.iter().for_each(|partition| self.drop_partition(partition, step));
                None
            } else if let Some(partition) = before {
                if has_changed {
                    partition.reconfigure(Arc::clone(&plan.config));
                }
                Some(partition)
            } else {
                let name = TopicPartition::new(Arc::clone(&plan.name), number);
                let opened = opened.remove(&name).transpose();
                opened.map_err(|error| step.failures.push(error)).ok().flatten()
            };
            if let Some(partition) = &local
                && (!is_open || has_changed)
            {
                partition.set_throttled(plan.settings.throttles.of(number, node));
            }
            if let Some(partition) = &local
                && (is_named || !is_open || has_changed)
            {
                let settings = &plan.settings;
                self.assign(partition, (&state, settings), (node, step));
            }
            partitions.push(PartitionImage { state, local });
        }
        let TopicPlan { name, id, internal, settings, .. } = plan;
        TopicImage { name, id, internal, settings, partitions }
    }

    /// Makes a replica leader or follower, as the image says.
    fn assign(
        &self,
        partition: &Arc<Partition>,
        (state, settings): (&PartitionState, &TopicSettings),
        (node, step): (i32, &mut DeltaStep),
    ) {
        step.assigned.push(Arc::clone(partition));
        if state.leader != node {
            step.left.push(Arc::clone(partition));
            return partition.follow(state.leader_epoch);
        }
        let isr = state.isr.iter().map(|id| IsrMember { replica: *id, broker_epoch: -1 });
        let assignment = LeaderAssignment {
            node,
            leadership: Leadership {
                leader_epoch: state.leader_epoch,
                partition_epoch: state.partition_epoch,
                isr: isr.collect(),
                replicas: state.replicas.clone(),
            },
            settings: ReplicationSettings {
                lag_time_max_ms: self.settings.load().replica_lag_time_max_ms,
                min_insync_replicas: usize::try_from(settings.min_insync_replicas).unwrap_or(0),
            },
            alive: &step.alive,
        };
        partition.lead(assignment, &mut Wakes { here: None, waker: self });
    }

    /// Removes a partition that is no longer on this broker.
    fn drop_partition(&self, partition: &Arc<Partition>, step: &mut DeltaStep) {
        self.log_manager.places.lock().remove(&partition.name);
        let outcome = match step.strays.remove(&partition.name) {
            true => partition.log.mark_stray(),
            false => partition.log.delete(&mut step.deletions),
        };
        if let Err(error) = outcome {
            step.failures.push(ApplyError { partition: partition.name.clone(), error });
        }
        partition.remove();
        step.assigned.push(Arc::clone(partition));
        step.left.push(Arc::clone(partition));
    }

    /// Deletes the logs of a topic that was in no image.
    fn delete_unopened(&self, topic: &str, step: &mut DeltaStep) {
        let mut places = self.log_manager.places.lock();
        let gone = |name: &TopicPartition| &*name.topic == topic && !step.strays.contains(name);
        let gone = places.extract(gone);
        drop(places);
        let names: Vec<_> = gone.iter().map(|(name, _)| name.clone()).collect();
        self.drop_futures(&names);
        for (partition, index) in gone {
            let dir = self.log_manager.dirs.get(index);
            let deletions = &mut step.deletions;
            if let Some(Err(error)) = dir.map(|dir| deletions.delete_unopened(dir, &partition)) {
                step.failures.push(ApplyError { partition, error });
            }
        }
    }

    /// Has the log scheduler make the deletions of a delta durable and remove their files.
    fn remove_later(&self, deletions: Deletions) {
        let sync = move || {
            let (deleted, outcome) = deletions.sync();
            if let Err(error) = outcome {
                tracing::error!("deleted partitions may come back after a power failure: {error}");
            }
            deleted
        };
        if let Some(scheduler) = self.log_scheduler.get() {
            scheduler.submit(Box::new(move |scheduler| {
                sync().iter().take_while(|_| !scheduler.is_stopping()).for_each(DeletedLog::remove);
            }));
        } else {
            sync().iter().for_each(DeletedLog::remove);
        }
    }

    /// Marks logs that are in no image as stray.
    fn set_strays_aside(&self, step: &mut DeltaStep) {
        let image = self.image.load();
        for partition in step.strays.drain() {
            let topic = image.topic(&partition.topic);
            if topic.and_then(|it| it.partition(partition.partition)?.local.as_ref()).is_some() {
                continue;
            }
            let place = self.log_manager.places.lock().remove(&partition);
            let dir = place.and_then(|index| self.log_manager.dirs.get(index));
            if let Some(Err(error)) = dir.map(|dir| dir.mark_unopened_stray(&partition, None)) {
                step.failures.push(ApplyError { partition, error });
            }
        }
    }

    /// The sync thread moved a flushed offset, or a disk failed.
    pub(crate) fn flushed(&self, name: &TopicPartition) {
        let image = self.image.load();
        let topic = image.topic(&name.topic);
        let partition = topic.and_then(|topic| topic.partition(name.partition)?.local.as_ref());
        let Some(partition) = partition else { return };
        let mut wakes = Wakes { here: None, waker: self };
        if partition.log.is_offline() {
            partition.abandon(&mut wakes);
        } else {
            partition.advance(&mut wakes);
        }
    }

    /// Starts the sync threads, the log scheduler and the log cleaner (`None`: no cleaner). Call it
    /// before the first delta.
    pub fn start_syncing(
        self: &Arc<Self>,
        intervals: Intervals,
        cleaner: Option<CleanerOptions>,
    ) -> std::io::Result<()> {
        let broker = Arc::downgrade(self);
        let syncer = Syncer::start(Box::new(move |name| {
            if let Some(broker) = broker.upgrade() {
                broker.flushed(name);
            }
        }))?;
        let dirs = self.log_manager.dirs.clone();
        dirs.iter().for_each(|dir| syncer.sync_files_of(dir.descriptors()));
        let _ = self.syncer.set(syncer);
        let broker = Arc::downgrade(self);
        let expiry = ScheduledTask {
            interval_ms: self.settings.load().offsets_retention_check_ms,
            run: Box::new(move || broker.upgrade().iter().for_each(|it| it.expire_offsets())),
        };
        let broker = Arc::downgrade(self);
        let look = ScheduledTask {
            interval_ms: LOOK_MS,
            run: Box::new(move || broker.upgrade().iter().for_each(|it| it.tell_lost())),
        };
        let broker = Arc::downgrade(self);
        let repeat = ScheduledTask {
            interval_ms: REPEAT_MS,
            run: Box::new(move || broker.upgrade().iter().for_each(|it| it.repeat_proposals())),
        };
        let broker = Arc::downgrade(self);
        let lag_time_max_ms = self.settings.load().replica_lag_time_max_ms;
        let lag = ScheduledTask {
            interval_ms: u64::try_from(lag_time_max_ms / 2).unwrap_or(0).max(1),
            run: Box::new(move || broker.upgrade().iter().for_each(|it| it.tick_replication())),
        };
        let mut tasks = vec![expiry, look, repeat, lag];
        tasks.extend(self.transaction_rounds());
        let clock = || Arc::clone(&self.clock);
        let log_scheduler = LogScheduler::start(dirs.clone(), intervals, clock(), tasks)?;
        let _ = self.log_scheduler.set(log_scheduler);
        self.start_moving()?;
        if let Some(options) = cleaner {
            let _ = self.cleaner.set(Cleaner::start(dirs, options, clock())?);
        }
        Ok(())
    }

    /// The thread that panicked, if one did. The broker must stop then.
    pub fn failed_thread(&self) -> Option<&'static str> {
        let failed = [
            ("sync", self.syncer.get().is_some_and(|it| it.has_failed())),
            ("log scheduler", self.log_scheduler.get().is_some_and(|it| it.has_failed())),
            ("cleaner", self.cleaner.get().is_some_and(|it| it.has_failed())),
            ("replica move", self.future_replicas.get().is_some_and(|it| it.has_failed())),
            ("fetcher", self.fetchers.get().is_some_and(|it| it.has_failed())),
            ("peer", self.inter_broker.get().is_some_and(|it| it.has_failed())),
        ];
        failed.into_iter().find(|(_, failed)| *failed).map(|(name, _)| name)
    }

    /// Replaces the settings of the log cleaner.
    pub fn set_cleaner(&self, options: CleanerOptions) {
        let outcome = self.cleaner.get().map_or(Ok(()), |cleaner| cleaner.reconfigure(options));
        if let Err(error) = outcome {
            tracing::error!("no more threads for the cleaner: {error}");
        }
    }

    /// All partitions on this broker.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        let image = self.image.load();
        let topics = image.topics();
        topics.flat_map(|t| t.partitions.iter().filter_map(|p| p.local.clone())).collect()
    }

    /// Closes all logs and directories, so that the next start needs no recovery. No request may be
    /// handled any more.
    pub fn close(&self) -> Result<(), StorageError> {
        self.replays_stop.store(true, Ordering::Release);
        self.transactions.markers.stop();
        self.workers.stop();
        if let Some(fetchers) = self.fetchers.get() {
            fetchers.stop();
        }
        if let Some(inter_broker) = self.inter_broker.get() {
            inter_broker.stop();
        }
        if let Some(syncer) = self.syncer.get() {
            syncer.stop();
        }
        if let Some(log_scheduler) = self.log_scheduler.get() {
            log_scheduler.stop();
        }
        if let Some(future_replicas) = self.future_replicas.get() {
            future_replicas.stop();
        }
        if let Some(cleaner) = self.cleaner.get() {
            cleaner.stop();
        }
        let broker_epoch = self.image.load().broker_epoch;
        self.log_manager.dirs.iter().for_each(|dir| dir.set_broker_epoch(broker_epoch));
        let logs = self.partitions().iter().map(|it| Arc::clone(&it.log)).collect();
        close_all(&self.log_manager.dirs, logs, PATIENCE)
    }
}
