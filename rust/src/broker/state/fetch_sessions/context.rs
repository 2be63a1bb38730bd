//! The partitions that a Fetch reads, each with the client's request and the local partition.
//!
//! Threads: a context belongs to one request, or to a session under that session's lock.

use std::sync::Arc;

use crate::broker::state::acls::AclClient;
use crate::broker::state::acls::Operation::Read;
use crate::broker::state::acls::ResourceType::Topic;
use crate::broker::state::image::{ClusterImage, TopicImage};
use crate::broker::state::lookup::{NamedTopic, allowed, find_led, find_replica};
use crate::broker::state::partition::{ChangeWatcher, Partition};
use crate::ids::{Epoch, TopicId};
use crate::protocol::ErrorCode;

/// No image has this number.
const NEVER: u64 = u64::MAX;

/// The partitions that a fetch or a session reads.
#[derive(Debug)]
pub(crate) struct FetchContext {
    /// Topics are named by id.
    pub(crate) by_id: bool,
    /// The reader is a follower or compares replicas.
    pub(crate) reads_to_log_end: bool,
    /// The reader may read followers: it compares replicas, or is a consumer of Fetch v11 or newer.
    pub(crate) reads_any_replica: bool,
    /// By number; `None` where a partition was forgotten.
    pub(crate) entries: Vec<Option<CachedPartition>>,
    /// The numbers of the entries to read, each once.
    pub(crate) active: Vec<u32>,
    /// When a follower's progress was last reported to the partitions that are not active.
    pub(crate) reported_ms: i64,
    /// What a consumer may read, if that is limited.
    pub(crate) reader: Option<Arc<AclClient>>,
    /// The entry to begin with, so that all partitions get their turn.
    pub(crate) next: u32,
    /// The image that the entries were resolved with.
    pub(crate) image_number: u64,
    /// Collects changes after the first wait.
    pub(crate) watch: Option<Arc<ChangeWatcher>>,
}

/// One partition of a context.
#[derive(Debug)]
pub(crate) struct CachedPartition {
    pub(crate) topic: Arc<str>,
    pub(crate) id: TopicId,
    pub(crate) partition: i32,
    pub(crate) request: ReadRequest,
    /// The partition and its leader epoch, or the error if it cannot be read here.
    pub(crate) local: Result<(Arc<Partition>, Epoch), ErrorCode>,
    /// The leader, for clients that ask the wrong broker.
    pub(crate) leader: (i32, Epoch),
    /// The topic's compression is zstd, which old clients do not know.
    pub(crate) zstd: bool,
    pub(crate) is_active: bool,
    /// The offsets that the client was last sent; -1: none.
    pub(crate) sent_high_watermark: i64,
    pub(crate) sent_log_start: i64,
}

const _: () = assert!(size_of::<Option<CachedPartition>>() <= 112);

/// The client's request for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) fetch_offset: i64,
    pub(crate) max_bytes: i32,
    pub(crate) current_leader_epoch: i32,
    pub(crate) last_fetched_epoch: i32,
    /// A follower's log start offset.
    pub(crate) log_start: i64,
}

impl FetchContext {
    /// An empty context.
    pub(crate) fn new(by_id: bool) -> Self {
        Self {
            by_id,
            reads_to_log_end: false,
            reads_any_replica: false,
            entries: Vec::new(),
            active: Vec::new(),
            reported_ms: i64::MIN / 2,
            reader: None,
            next: 0,
            image_number: 0,
            watch: None,
        }
    }

    /// Reserves space for `count` more partitions.
    pub(crate) fn reserve(&mut self, partitions: usize) {
        self.entries.reserve_exact(partitions);
        self.active.reserve_exact(partitions);
    }

    /// Adds a partition, active; returns its number.
    pub(crate) fn push(&mut self, entry: CachedPartition) -> u32 {
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.active.push(number);
        self.entries.push(Some(entry));
        number
    }

    /// The entry of a number.
    pub(crate) fn entry(&mut self, number: u32) -> Option<&mut CachedPartition> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// Makes these partitions active, and no others. Each is named once.
    pub(crate) fn set_active(&mut self, numbers: Vec<u32>) {
        for number in &numbers {
            if let Some(entry) = self.entry(*number) {
                entry.is_active = true;
            }
        }
        self.active = numbers;
    }

    /// Makes a partition active.
    pub(crate) fn activate(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        if !std::mem::replace(&mut entry.is_active, true) {
            self.active.push(number);
        }
    }

    /// Looks up all partitions again if the image changed, or what a user's class allows.
    pub(crate) fn resolve(&mut self, node: i32, (image, number): (&ClusterImage, u64)) {
        let is_outdated = || self.reader.as_ref().is_some_and(|reader| reader.is_outdated());
        if self.image_number == number && !is_outdated() {
            return;
        }
        self.image_number = number;
        if let Some(reader) = &mut self.reader {
            *reader = Arc::new(reader.seen_by(&image.acls));
        }
        for at in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else { continue };
            let before = entry.partition().map(Arc::as_ptr);
            let old = entry.partition().cloned();
            entry.resolve(
                (self.by_id, self.reader.as_deref()),
                (image, node, self.reads_any_replica),
            );
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            if entry.partition().map(Arc::as_ptr) != before
                && let Some(watch) = &self.watch
            {
                old.iter().for_each(|old| old.remove_watcher(watch));
                entry.partition().iter().for_each(|new| new.add_watcher(watch, at));
            }
            self.activate(at);
        }
    }

    /// Goes on for a client, which may be another than before.
    pub(crate) fn go_on_for(&mut self, reader: Option<&Arc<AclClient>>) {
        let is_same = match (&self.reader, reader) {
            (Some(before), Some(now)) => before.is_like(now),
            (before, now) => before.is_none() == now.is_none(),
        };
        if !is_same {
            self.reader = reader.cloned();
            self.image_number = NEVER;
        }
    }

    /// Begins to collect changes. The caller reads all partitions once more afterwards.
    pub(crate) fn start_watch(&mut self) -> Arc<ChangeWatcher> {
        if let Some(watch) = &self.watch {
            return Arc::clone(watch);
        }
        let watch = Arc::new(ChangeWatcher::new(self.reads_to_log_end));
        for (number, entry) in (0..).zip(&self.entries) {
            if let Some(partition) = entry.as_ref().and_then(CachedPartition::partition) {
                partition.add_watcher(&watch, number);
            }
        }
        self.watch = Some(Arc::clone(&watch));
        watch
    }

    /// Activates the partitions that changed since the last call.
    pub(crate) fn collect_changes(&mut self) {
        let mut changed = Vec::new();
        if let Some(watch) = &self.watch {
            watch.take(&mut changed);
        }
        for number in changed {
            self.activate(number);
        }
    }

    /// Ends the collection of changes.
    pub(crate) fn end_watch(&mut self) {
        let Some(watch) = self.watch.take() else { return };
        for partition in self.entries.iter().flatten().filter_map(CachedPartition::partition) {
            partition.remove_watcher(&watch);
        }
    }
}

impl Drop for FetchContext {
    fn drop(&mut self) {
        self.end_watch();
    }
}

impl CachedPartition {
    /// The partition, if it is on this broker.
    pub(crate) fn partition(&self) -> Option<&Arc<Partition>> {
        self.local.as_ref().ok().map(|(partition, _)| partition)
    }

    /// Looks the partition up in `image`, if the reader may read it.
    fn resolve(
        &mut self,
        (by_id, reader): (bool, Option<&AclClient>),
        (image, node, any): (&ClusterImage, i32, bool),
    ) {
        let id = by_id.then_some(self.id);
        let found = NamedTopic { topic: &self.topic, id }.find(image);
        let topic = allowed(&self.topic, found, |name| {
            reader.is_none_or(|reader| reader.allows(Read, Topic, name))
        });
        self.resolve_in(topic, (node, any));
    }

    /// Looks the partition up in its topic, or notes the error. `any`: a follower on this broker
    /// will do.
    pub(crate) fn resolve_in(
        &mut self,
        topic: Result<&Arc<TopicImage>, ErrorCode>,
        (node, any): (i32, bool),
    ) {
        self.zstd = topic.is_ok_and(|topic| {
            topic.settings.log.compression_type
                == Some(crate::record::compression::Codec::Zstd as u8)
        });
        let state = topic.ok().and_then(|topic| topic.partition(self.partition)).map(|p| &p.state);
        self.leader = state.map_or((-1, Epoch::NONE), |state| (state.leader, state.leader_epoch));
        self.local = topic.and_then(|topic| {
            let (image, partition) = match any {
                true => find_replica(topic, self.partition, node)?,
                false => find_led(topic, self.partition, node)?,
            };
            Ok((Arc::clone(partition), image.state.leader_epoch))
        });
    }
}
