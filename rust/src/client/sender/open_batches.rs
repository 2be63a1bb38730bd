//! The topics of a `Sender`: the number of their partitions, and the open batches.
//!
//! The sender's thread looks a topic up in three cases. The topic is new. A batch is opened and the
//! last look-up was `metadata.max.age.ms` ago; the record does not wait for that. A record names a
//! partition that the topic does not have; the record waits, because the topic may have grown.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::client::producer::MAX_IN_FLIGHT_BATCHES;
use crate::client::{Error, Result};
use crate::record::batch::BatchBuilder;

/// How long to wait for a topic's metadata, and how long to keep it.
#[derive(Clone, Copy, Debug)]
pub struct MetadataTimes {
    /// How long looking up a new topic may take (`max.block.ms`).
    pub max_block: Duration,
    /// The age at which a topic is looked up again (`metadata.max.age.ms`).
    pub metadata_max_age: Duration,
}

impl Default for MetadataTimes {
    fn default() -> Self {
        let (max_block, metadata_max_age) = (Duration::from_secs(60), Duration::from_secs(300));
        Self { max_block, metadata_max_age }
    }
}

/// The open batch of one partition.
#[derive(Default)]
pub(super) struct OpenBatch {
    pub(super) builder: BatchBuilder,
    pub(super) opened: Option<Instant>,
    pub(super) ticket: u64,
    pub(super) watched: bool,
    /// Its `linger` has passed while the partition was busy: the next report closes it.
    pub(super) is_delayed: bool,
    /// How many closed batches of the partition are not reported.
    pub(super) unreported: usize,
}

impl OpenBatch {
    /// Whether it is delayed, and was opened so long ago that it takes no more records.
    pub(super) fn has_waited(&self, opened: Instant, delay_max: Duration) -> bool {
        self.is_delayed && opened.elapsed() >= delay_max
    }

    /// Whether the partition has as many closed batches as may be in flight. Another one could not
    /// be sent yet, so the open batch stays open for more records.
    pub(super) fn is_busy(&self) -> bool {
        self.unreported >= MAX_IN_FLIGHT_BATCHES
    }
}

/// The state of a topic in the sender.
pub(super) enum TopicState {
    /// The thread is looking it up.
    LookingUp(TopicLookup),
    /// The look-up failed. The next caller gets the error.
    Failed(Error),
    /// Its partitions.
    Known(TopicPartitions),
}

/// A look-up that the thread still has to make.
#[derive(Clone, Copy)]
pub(super) struct TopicLookup {
    /// When the look-up was first requested.
    pub(super) since: Instant,
    /// When to make the next attempt.
    pub(super) at: Instant,
}

/// A topic's partitions.
pub(super) struct TopicPartitions {
    /// At least `count` of them: a topic that was created again may have fewer partitions.
    pub(super) open: Vec<OpenBatch>,
    pub(super) count: i32,
    lookup: Option<TopicLookup>,
    looked_up_at: Instant,
    /// Partitions that a record named and the topic does not have; `None` while it is looked up.
    missing: HashMap<i32, Option<Error>>,
}

impl TopicLookup {
    pub(super) fn now() -> Self {
        let now = Instant::now();
        Self { since: now, at: now }
    }

    /// The next attempt after `error`, if that is retriable and the time is not over.
    pub(super) fn retry(
        self,
        error: &Error,
        (backoff, most): (Duration, Duration),
    ) -> Option<Self> {
        let goes_on = error.retriable() && self.since.elapsed() < most;
        goes_on.then(|| Self { at: Instant::now() + backoff, ..self })
    }
}

impl TopicState {
    /// The look-up that is due.
    pub(super) fn lookup(&self) -> Option<TopicLookup> {
        match self {
            TopicState::LookingUp(lookup) => Some(*lookup),
            TopicState::Failed(_) => None,
            TopicState::Known(partitions) => partitions.lookup,
        }
    }

    /// Whether a record may wait for that look-up.
    pub(super) fn blocks_callers(&self) -> bool {
        match self {
            TopicState::LookingUp(_) => true,
            TopicState::Failed(_) => false,
            TopicState::Known(partitions) => partitions.missing.values().any(Option::is_none),
        }
    }

    /// The open batch of a partition.
    pub(super) fn batch(&mut self, partition: i32) -> Option<&mut OpenBatch> {
        let TopicState::Known(partitions) = self else { return None };
        partitions.open.get_mut(usize::try_from(partition).ok()?)
    }

    /// How many open batches are delayed.
    pub(super) fn delayed(&self) -> usize {
        let TopicState::Known(partitions) = self else { return 0 };
        partitions.open.iter().filter(|batch| batch.is_delayed).count()
    }

    /// Has a look-up checked again after `pause`, or fails it if it has taken `most`.
    pub(super) fn await_lookup(&mut self, topic: &str, pause: Duration, most: Duration) {
        let Some(lookup) = self.lookup() else { return };
        if lookup.since.elapsed() >= most {
            let subject = format!("the metadata of topic {topic:?}");
            return self.complete_lookup(topic, Err(Error::Timeout { subject }), (pause, most));
        }
        let next = TopicLookup { at: Instant::now() + pause, ..lookup };
        match self {
            TopicState::Known(partitions) => partitions.lookup = Some(next),
            state => *state = TopicState::LookingUp(next),
        }
    }

    /// Applies the result of a look-up. `times`: the pause between attempts, and their total time.
    pub(super) fn complete_lookup(
        &mut self,
        topic: &str,
        count: Result<i32>,
        times: (Duration, Duration),
    ) {
        let lookup = self.lookup().unwrap_or_else(TopicLookup::now);
        match (self, count) {
            (TopicState::Known(partitions), Err(error)) => {
                partitions.lookup = lookup.retry(&error, times);
                if partitions.lookup.is_none() {
                    partitions.finish_lookup(|_| error.clone());
                }
            }
            (TopicState::Known(partitions), Ok(count)) => {
                partitions.grow(count);
                partitions.finish_lookup(|partition| no_such_partition(topic, partition));
            }
            (known, Ok(count)) => *known = TopicState::Known(TopicPartitions::of(count)),
            (known, Err(error)) => {
                *known = lookup
                    .retry(&error, times)
                    .map_or(TopicState::Failed(error), TopicState::LookingUp);
            }
        }
    }
}

impl TopicPartitions {
    fn of(count: i32) -> Self {
        let (lookup, looked_up_at, missing) = (None, Instant::now(), HashMap::new());
        let mut partitions = Self { open: Vec::new(), count: 0, lookup, looked_up_at, missing };
        partitions.grow(count);
        partitions
    }

    fn grow(&mut self, count: i32) {
        self.count = count;
        let least = usize::try_from(count).unwrap_or(0);
        self.open.resize_with(self.open.len().max(least), OpenBatch::default);
    }

    /// The open batch of a partition; `None`: the topic does not have it.
    pub(super) fn open_batch(&mut self, partition: i32) -> Option<&mut OpenBatch> {
        let at = usize::try_from(partition).ok().filter(|_| partition < self.count)?;
        self.open.get_mut(at)
    }

    /// Has the topic looked up again for a partition it does not have; a second call returns the
    /// error.
    pub(super) fn await_partition(&mut self, topic: &str, partition: i32) -> Result<()> {
        match self.missing.remove(&partition) {
            Some(Some(error)) => return Err(error),
            Some(None) => {}
            None if partition < 0 => return Err(no_such_partition(topic, partition)),
            None => self.lookup = self.lookup.or_else(|| Some(TopicLookup::now())),
        }
        self.missing.insert(partition, None);
        Ok(())
    }

    /// Begins another look-up if the last one is older than `most`; returns whether it did.
    pub(super) fn begin_refresh_if_stale(&mut self, now: Instant, most: Duration) -> bool {
        let is_due = self.lookup.is_none() && now.duration_since(self.looked_up_at) >= most;
        if is_due {
            self.lookup = Some(TopicLookup { since: now, at: now });
        }
        is_due
    }

    /// Ends a look-up. A partition that is still missing gets `error`.
    fn finish_lookup(&mut self, error: impl Fn(i32) -> Error) {
        (self.lookup, self.looked_up_at) = (None, Instant::now());
        let count = self.count;
        self.missing.retain(|partition, _| *partition >= count);
        for (partition, failure) in &mut self.missing {
            failure.get_or_insert_with(|| error(*partition));
        }
    }
}

fn no_such_partition(topic: &str, partition: i32) -> Error {
    Error::refused(3, format!("topic {topic:?} has no partition {partition}"))
}
