//! What a `Sender` knows of topics: how many partitions each has, and the open batch of each.
//!
//! A topic is looked up by the sender's thread when it is new; when it was looked up
//! `metadata.max.age.ms` ago and a batch is opened, which does not wait for that; and when a record
//! is for a partition that it has not, which does wait: the topic may have grown.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::client::{Error, Result};
use crate::record::batch::Builder;

/// The open batch of one partition.
#[derive(Default)]
pub(super) struct Open {
    pub(super) builder: Builder,
    pub(super) opened: Option<Instant>,
    pub(super) ticket: u64,
    pub(super) watched: bool,
}

/// What is known of a topic.
pub(super) enum Known {
    /// The thread looks it up.
    Asked(Look),
    /// It cannot be had; told once.
    Failed(Error),
    /// Its partitions.
    Lanes(Lanes),
}

/// A look-up that is still to be made.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// When it was first wanted.
    pub(super) since: Instant,
    /// When it is made, or made again.
    pub(super) at: Instant,
}

/// A topic's partitions.
pub(super) struct Lanes {
    /// At least `count`: a topic made anew may have fewer than it had.
    pub(super) open: Vec<Open>,
    pub(super) count: i32,
    look: Option<Look>,
    looked: Instant,
    /// Partitions that a record was for and that are not here: `None` while the thread looks.
    doubts: HashMap<i32, Option<Error>>,
}

impl Look {
    pub(super) fn now() -> Self {
        let now = Instant::now();
        Self { since: now, at: now }
    }

    /// The next attempt after one that failed, where that helps and the time is not over.
    pub(super) fn again(
        self,
        error: &Error,
        (backoff, most): (Duration, Duration),
    ) -> Option<Self> {
        let goes_on = error.retriable() && self.since.elapsed() < most;
        goes_on.then(|| Self { at: Instant::now() + backoff, ..self })
    }
}

impl Known {
    /// The look-up that is to be made.
    pub(super) fn look(&self) -> Option<Look> {
        match self {
            Known::Asked(look) => Some(*look),
            Known::Failed(_) => None,
            Known::Lanes(lanes) => lanes.look,
        }
    }

    /// Whether a record may have to wait for that look-up.
    pub(super) fn is_waited_for(&self) -> bool {
        match self {
            Known::Asked(_) => true,
            Known::Failed(_) => false,
            Known::Lanes(lanes) => lanes.doubts.values().any(Option::is_none),
        }
    }

    /// What a look-up found; `times`: from one to the next, and for how long.
    pub(super) fn found(&mut self, topic: &str, count: Result<i32>, times: (Duration, Duration)) {
        let look = self.look().unwrap_or_else(Look::now);
        match (self, count) {
            (Known::Lanes(lanes), Err(error)) => {
                lanes.look = look.again(&error, times);
                if lanes.look.is_none() {
                    lanes.looked(|_| error.clone());
                }
            }
            (Known::Lanes(lanes), Ok(count)) => {
                lanes.grow(count);
                lanes.looked(|partition| missing(topic, partition));
            }
            (known, Ok(count)) => *known = Known::Lanes(Lanes::of(count)),
            (known, Err(error)) => {
                *known = look.again(&error, times).map_or(Known::Failed(error), Known::Asked);
            }
        }
    }
}

impl Lanes {
    fn of(count: i32) -> Self {
        let (look, looked, doubts) = (None, Instant::now(), HashMap::new());
        let mut lanes = Self { open: Vec::new(), count: 0, look, looked, doubts };
        lanes.grow(count);
        lanes
    }

    fn grow(&mut self, count: i32) {
        self.count = count;
        let least = usize::try_from(count).unwrap_or(0);
        self.open.resize_with(self.open.len().max(least), Open::default);
    }

    /// The open batch of a partition that is there.
    pub(super) fn lane(&mut self, partition: i32) -> Option<&mut Open> {
        let at = usize::try_from(partition).ok().filter(|_| partition < self.count)?;
        self.open.get_mut(at)
    }

    /// Has a partition that is not there looked for, once; then says why it is refused.
    pub(super) fn doubt(&mut self, topic: &str, partition: i32) -> Result<()> {
        match self.doubts.remove(&partition) {
            Some(Some(error)) => return Err(error),
            Some(None) => {}
            None if partition < 0 => return Err(missing(topic, partition)),
            None => self.look = self.look.or_else(|| Some(Look::now())),
        }
        self.doubts.insert(partition, None);
        Ok(())
    }

    /// Whether it is time to look the topic up again, which this begins.
    pub(super) fn ages(&mut self, now: Instant, most: Duration) -> bool {
        let is_due = self.look.is_none() && now.duration_since(self.looked) >= most;
        if is_due {
            self.look = Some(Look { since: now, at: now });
        }
        is_due
    }

    /// The look-up is over: who doubted is told, by `error` where the partition is not there.
    fn looked(&mut self, error: impl Fn(i32) -> Error) {
        (self.look, self.looked) = (None, Instant::now());
        let count = self.count;
        self.doubts.retain(|partition, _| *partition >= count);
        for (partition, told) in &mut self.doubts {
            told.get_or_insert_with(|| error(*partition));
        }
    }
}

fn missing(topic: &str, partition: i32) -> Error {
    Error::refused(3, format!("topic {topic:?} has no partition {partition}"))
}
