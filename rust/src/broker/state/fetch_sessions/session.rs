//! One session: a context whose partitions are found by name or id.
//!
//! Invariant: each partition has one number; a number that was given back has no entry.
//! Threads: under the session's lock.

use std::sync::Arc;

use ahash::HashMap;

use crate::broker::state::fetch_sessions::context::{CachedPartition, FetchContext};
use crate::ids::TopicId;

/// The partitions and the epoch of a session; its lock guards them.
#[derive(Debug)]
pub(crate) struct FetchSession {
    /// The epoch that the next request must have.
    pub(crate) epoch: i32,
    pub(crate) context: FetchContext,
    names: HashMap<Arc<str>, PartitionNumbers>,
    ids: HashMap<TopicId, PartitionNumbers>,
    free: Vec<u32>,
    /// How many partitions were taken out so far.
    forgotten: u64,
    is_closed: bool,
}

type PartitionNumbers = HashMap<i32, u32>;

impl FetchSession {
    /// A new session.
    pub(crate) fn new(context: FetchContext) -> Self {
        Self {
            epoch: 1,
            context,
            names: HashMap::default(),
            ids: HashMap::default(),
            free: Vec::new(),
            forgotten: 0,
            is_closed: false,
        }
    }

    /// Notes the numbers of all its partitions, and begins to collect changes.
    pub(crate) fn begin(&mut self) {
        for number in 0..u32::try_from(self.context.entries.len()).unwrap_or(u32::MAX) {
            let entry = self.context.entry(number);
            let key = entry.map(|entry| (Arc::clone(&entry.topic), entry.id, entry.partition));
            if let Some(key) = key {
                self.note(key, number);
            }
        }
        self.context.start_watch();
    }

    /// The number of a partition; `None` if the session does not have it.
    pub(crate) fn number(&self, topic: &str, id: TopicId, partition: i32) -> Option<u32> {
        let numbers = if self.context.by_id { self.ids.get(&id) } else { self.names.get(topic) };
        numbers?.get(&partition).copied()
    }

    /// Adds a partition that the session does not have yet.
    pub(crate) fn add(&mut self, entry: CachedPartition) {
        let (topic, id, partition) = (Arc::clone(&entry.topic), entry.id, entry.partition);
        let local = entry.partition().cloned();
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.context.entries.get_mut(number as usize) {
                    *place = Some(CachedPartition { is_active: false, ..entry });
                }
                self.context.activate(number);
                number
            }
            None => self.context.push(entry),
        };
        if let (Some(watch), Some(partition)) = (&self.context.watch, local) {
            partition.add_watcher(watch, number);
        }
        self.note((topic, id, partition), number);
    }

    fn note(&mut self, (topic, id, partition): (Arc<str>, TopicId, i32), number: u32) {
        let numbers = if self.context.by_id {
            self.ids.entry(id).or_default()
        } else {
            self.names.entry(topic).or_default()
        };
        numbers.insert(partition, number);
    }

    /// Removes a partition.
    pub(crate) fn forget(&mut self, topic: &str, id: TopicId, partition: i32) {
        let Some(number) = self.number(topic, id, partition) else { return };
        let numbers =
            if self.context.by_id { self.ids.get_mut(&id) } else { self.names.get_mut(topic) };
        if let Some(numbers) = numbers {
            numbers.remove(&partition);
        }
        let place = self.context.entries.get_mut(number as usize);
        let Some(entry) = place.and_then(Option::take) else { return };
        if let (Some(watch), Some(partition)) = (&self.context.watch, entry.partition()) {
            partition.remove_watcher(watch);
        }
        self.context.active.retain(|active| *active != number);
        self.free.push(number);
        self.forgotten += 1;
    }

    /// The number of partitions that were removed so far. While it stays the same, each number
    /// means the same partition.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The number of its partitions.
    pub(crate) fn size(&self) -> usize {
        self.context.entries.len() - self.free.len()
    }

    /// Whether it was removed from the cache.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Notes that it was removed from the cache.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.context.end_watch();
    }
}
