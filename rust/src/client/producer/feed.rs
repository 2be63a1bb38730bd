//! Batches into a producer's queues; and what a thread of its own needs besides: a sleep that ends
//! when there is something to do.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Closed, Delivered, Key, Producer};
use crate::client::{Error, Result};
use crate::record::batch::{Builder, Fields};

/// The longest sleep while something is not acknowledged: what is late is looked for so often.
const NAP: Duration = Duration::from_millis(50);

/// Records that became a batch elsewhere.
pub struct Filled {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// At least one record.
    pub builder: Builder,
    /// When its first record came; the delivery time counts from here.
    pub opened: Instant,
    /// What [`Delivered`] says of it.
    pub ticket: u64,
}

impl Producer {
    /// Takes a batch into its queue, and gives the builder back, empty. What cannot be is reported
    /// as delivered with an error.
    pub fn enqueue(&mut self, filled: Filled) -> Builder {
        let Filled { topic, partition, mut builder, opened, ticket } = filled;
        let count = builder.count();
        let key = (topic, partition);
        if let Err(error) = self.seal(&key, &mut builder, (opened, ticket)) {
            let ((topic, partition), error) = (key, Some(error));
            let base_offset = -1;
            self.delivered.push(Delivered { topic, partition, ticket, base_offset, count, error });
        }
        builder.clear();
        builder
    }

    /// Makes a batch of what a builder holds and puts it at the end of its queue.
    pub(super) fn seal(
        &mut self,
        key: &Key,
        builder: &mut Builder,
        (opened, ticket): (Instant, u64),
    ) -> Result<()> {
        let identity = self.identity(opened)?;
        let lane = self.lanes.entry(key.clone()).or_default();
        let count = builder.count();
        let base_sequence = if identity.0 >= 0 { lane.next_sequence } else { -1 };
        let fields = Fields {
            codec: self.config.codec,
            level: self.config.level,
            producer_id: identity.0,
            producer_epoch: identity.1,
            base_sequence,
            ..Fields::default()
        };
        let bytes = builder.to_bytes(&fields);
        builder.clear();
        let bytes = bytes.map_err(|error| Error::Invalid(error.to_string()))?;
        self.held_bytes += bytes.len();
        // Sequences wrap from 2^31 - 1 to 0.
        lane.next_sequence = lane.next_sequence.wrapping_add(count) & i32::MAX;
        let expires = opened + self.config.delivery_timeout;
        lane.queue.push_back(Closed { bytes, count, base_sequence, expires, ticket });
        Ok(())
    }

    /// How many partitions a topic has by now, asked within `time`.
    pub fn partitions(&mut self, topic: &str, time: Duration) -> Result<i32> {
        let wait = self.cluster.options().wait(time);
        self.cluster.forget(topic);
        let known = self.cluster.topic(topic, self.config.create_topics, &wait)?;
        Ok(i32::try_from(known.partitions.len()).unwrap_or(i32::MAX))
    }

    /// Reports all that is queued as failed.
    pub fn fail(&mut self, error: &Error) {
        let keys: Vec<_> = self.lanes.keys().cloned().collect();
        for key in keys {
            let queue: Vec<Closed> = match self.lanes.get_mut(&key) {
                Some(lane) => lane.queue.drain(..).collect(),
                None => continue,
            };
            for closed in queue {
                self.report(&key, &closed, (-1, Some(error.clone())));
                self.abandon(&key, error);
            }
        }
    }

    /// Sleeps until an answer comes, `wake` can be read, `until` has come or something is late.
    pub fn sleep(&self, wake: BorrowedFd<'_>, until: Option<Instant>) {
        let now = Instant::now();
        let mut time = until.map(|at| at.saturating_duration_since(now));
        if self.held_bytes > 0 {
            time = Some(time.map_or(NAP, |time| time.min(NAP)));
        }
        let busy = self.flights.iter().filter(|(_, flights)| !flights.is_empty());
        let mut fds: Vec<_> = busy
            .filter_map(|(node, _)| self.cluster.peek(*node))
            .map(|connection| PollFd::new(connection.socket(), PollFlags::IN))
            .collect();
        fds.push(PollFd::from_borrowed_fd(wake, PollFlags::IN));
        let time = time.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        if poll(&mut fds, time.as_ref()).is_err() {
            // A signal: whoever sleeps looks around and sleeps again.
        }
    }
}
