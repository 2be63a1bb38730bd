//! Reads ranges of offsets from brokers, through the client's consumer.
//!
//! While a batch is filled from one response, the next one is in flight. Temporary errors (a broker
//! that restarts, a leader that moves) are retried until no record has arrived for `idle_timeout`.
//! Missing offsets: fail with OFFSET_OUT_OF_RANGE or the code of the missing topic, or continue at
//! the log start offset. Offsets above the log end offset are missing as well.
//! Memory: two responses per leader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::builder::ColumnsBuilder;
use super::scan::{ChunkSource, MissingOffsets, OffsetRange, Scan, SourceItem};
use crate::client::admin::{EARLIEST, LATEST, OffsetQuery};
use crate::client::chunk::Chunk;
use crate::client::consumer::{Assignment, Consumer, ConsumerConfig};
use crate::client::{Cluster, Error, Result};

const UNKNOWN_TOPIC: i16 = 3;
const UNKNOWN_TOPIC_ID: i16 = 100;
const OFFSET_OUT_OF_RANGE: i16 = 1;
/// The longest time of one wait for the sockets.
const POLL_MAX: Duration = Duration::from_secs(1);

/// The options for reading ranges.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// The consumer's configuration.
    pub config: ConsumerConfig,
    /// What to do about missing offsets.
    pub missing: MissingOffsets,
    /// How long to wait without any record (`default.api.timeout.ms`).
    pub idle_timeout: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        let large = ConsumerConfig {
            partition_max_bytes: 4 << 20,
            max_bytes: 16 << 20,
            ..ConsumerConfig::default()
        };
        Self { config: large, missing: MissingOffsets::Fail, idle_timeout: Duration::from_secs(60) }
    }
}

/// A scan of ranges that brokers have.
pub fn scan(
    cluster: Cluster,
    options: RemoteOptions,
    ranges: Vec<OffsetRange>,
    builder: ColumnsBuilder,
) -> Result<Scan> {
    let interrupt = Arc::clone(&cluster.options().interrupt);
    let config = ConsumerConfig { report_out_of_range: true, ..options.config };
    let mut consumer = Consumer::new(cluster, config);
    let wanted = ranges.iter().filter(|range| !range.is_empty());
    let assignments: Vec<_> = wanted
        .map(|range| Assignment {
            topic: range.topic.to_string(),
            partition: range.partition,
            offset: range.start,
            end: Some(range.end),
        })
        .collect();
    consumer.assign(&assignments);
    let remote = RemoteSource {
        consumer,
        missing: options.missing,
        idle_timeout: options.idle_timeout,
        last_record_at: Instant::now(),
        chunks: VecDeque::new(),
        missing_ranges: VecDeque::new(),
        ranges: ranges.clone(),
    };
    Scan::of(Box::new(remote), builder, ranges, interrupt)
}

struct RemoteSource {
    consumer: Consumer,
    missing: MissingOffsets,
    idle_timeout: Duration,
    /// When the last record arrived.
    last_record_at: Instant,
    chunks: VecDeque<Chunk>,
    missing_ranges: VecDeque<OffsetRange>,
    ranges: Vec<OffsetRange>,
}

impl ChunkSource for RemoteSource {
    fn next(&mut self) -> Result<SourceItem> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                return Ok(SourceItem::Chunk(chunk));
            }
            if let Some(range) = self.missing_ranges.pop_front() {
                return Ok(SourceItem::Missing(range));
            }
            if self.consumer.is_done() {
                self.consumer.close();
                return Ok(SourceItem::End);
            }
            self.poll()?;
        }
    }

    fn recycle(&mut self, _: Chunk) {}
}

impl RemoteSource {
    fn poll(&mut self) -> Result<()> {
        let polled = self.consumer.poll(POLL_MAX.min(self.idle_timeout));
        match polled {
            Ok(chunks) => {
                if !chunks.is_empty() {
                    self.last_record_at = Instant::now();
                }
                self.chunks.extend(chunks);
                self.resolve_out_of_range()?;
            }
            Err(Error::Refused { code: UNKNOWN_TOPIC | UNKNOWN_TOPIC_ID, .. })
                if self.missing == MissingOffsets::Skip =>
            {
                self.drop_missing_partitions()?;
            }
            Err(error @ Error::Refused { code: UNKNOWN_TOPIC, .. }) => return Err(error),
            Err(error)
                if error.retriable() && self.last_record_at.elapsed() < self.idle_timeout =>
            {
                let wait = self.consumer.cluster().wait();
                wait.pause(self.consumer.cluster().options().retry_backoff, &error)?;
            }
            Err(error) => return Err(error),
        }
        if self.chunks.is_empty()
            && self.missing_ranges.is_empty()
            && self.last_record_at.elapsed() > self.idle_timeout
        {
            return Err(Error::Timeout { subject: self.awaited() });
        }
        Ok(())
    }

    /// Continues partitions whose offset is out of range at their log start offset, or fails.
    fn resolve_out_of_range(&mut self) -> Result<()> {
        let out_of_range =
            self.consumer.out_of_range().map(|(topic, p, offset)| (topic.to_owned(), p, offset));
        let out_of_range: Vec<_> = out_of_range.collect();
        for (topic, partition, offset) in out_of_range {
            let first = self.offset(&topic, partition, EARLIEST)?;
            let last = self.offset(&topic, partition, LATEST)?;
            let subject = format!("{topic}:{partition}");
            if self.missing == MissingOffsets::Fail && !(first..=last).contains(&offset) {
                let message = format!("offset {offset} is gone; there are {first} to {last}");
                let (code, message) = (OFFSET_OUT_OF_RANGE, Some(message));
                return Err(Error::Refused { code, subject, message });
            }
            let end = self.end_of(&topic, partition);
            let next = if offset < first { first.min(end) } else { end };
            if (first..=last).contains(&offset) {
                self.consumer.seek(&topic, partition, offset); // it is there now
                continue;
            }
            self.consumer.seek(&topic, partition, next);
            let topic = Arc::from(topic);
            self.missing_ranges.push_back(OffsetRange {
                topic,
                partition,
                start: offset,
                end: next,
            });
        }
        Ok(())
    }

    /// Drops partitions that do not exist any more.
    fn drop_missing_partitions(&mut self) -> Result<()> {
        let positions = self.consumer.positions();
        let open: Vec<_> = positions.map(|(topic, p, at, _)| (topic.to_owned(), p, at)).collect();
        for (topic, partition, offset) in open {
            let wait = self.consumer.cluster().wait();
            self.consumer.cluster().forget(&topic);
            let there = match self.consumer.cluster().topic(&topic, false, &wait) {
                Ok(found) => found.partition(partition).is_some(),
                Err(Error::Refused { code: UNKNOWN_TOPIC, .. }) => false,
                Err(error) => return Err(error),
            };
            let end = self.end_of(&topic, partition);
            if !there && offset < end {
                self.consumer.remove(&topic, partition);
                let topic = Arc::from(topic);
                self.missing_ranges.push_back(OffsetRange { topic, partition, start: offset, end });
            }
        }
        Ok(())
    }

    fn offset(&mut self, topic: &str, partition: i32, timestamp: i64) -> Result<i64> {
        let query = OffsetQuery { topic: topic.to_owned(), partition, timestamp };
        let committed = false; // the log's own ends, whatever is committed
        let wait = self.consumer.cluster().wait();
        let found = self.consumer.cluster().list_offsets(&[query], committed, &wait)?;
        match found.into_iter().next() {
            Some(found) => found.error.map_or(Ok(found.offset), Err),
            None => Err(Error::refused(-1, format!("{topic}:{partition}"))),
        }
    }

    fn end_of(&self, topic: &str, partition: i32) -> i64 {
        let mut ranges = self.ranges.iter();
        let found = ranges.find(|range| range.partition == partition && *range.topic == *topic);
        found.map_or(0, |range| range.end)
    }

    /// The first position that the scan waits for.
    fn awaited(&self) -> String {
        let mut positions = self.consumer.positions();
        let open = positions.find(|(topic, p, at, _)| *at < self.end_of(topic, *p));
        open.map_or_else(String::new, |(topic, p, at, _)| format!("{topic}:{p} offset {at}"))
    }
}
