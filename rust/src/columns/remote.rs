//! Ranges from brokers, through the client's consumer.
//!
//! While a batch is filled from one answer, the next one is on its way. What passes (a broker that
//! restarts, a leader that moves) is tried again until nothing has come for `patience`.
//! Behaviour where offsets are gone: fail with OFFSET_OUT_OF_RANGE or the code of the missing
//! topic, or go on where the log begins; what lies above a log's end is gone as well.
//! Memory: two answers a leader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::builder::Builder;
use super::scan::{Brought, Lost, Range, Scan, Source};
use crate::client::admin::{EARLIEST, LATEST, Moment};
use crate::client::chunk::Chunk;
use crate::client::consumer::{Assignment, Config, Consumer};
use crate::client::{Cluster, Error, Result};

const UNKNOWN_TOPIC: i16 = 3;
const UNKNOWN_TOPIC_ID: i16 = 100;
const OFFSET_OUT_OF_RANGE: i16 = 1;
/// How long one look at the sockets takes at most.
const LOOK: Duration = Duration::from_secs(1);

/// How ranges are read.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The consumer's way of fetching.
    pub config: Config,
    /// What to do where offsets are gone.
    pub lost: Lost,
    /// How long to wait where nothing comes (`default.api.timeout.ms`).
    pub patience: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        let large =
            Config { partition_max_bytes: 4 << 20, max_bytes: 16 << 20, ..Config::default() };
        Self { config: large, lost: Lost::Fail, patience: Duration::from_secs(60) }
    }
}

/// A scan of ranges that brokers have.
pub fn scan(cluster: Cluster, terms: Terms, ranges: Vec<Range>, builder: Builder) -> Result<Scan> {
    let interrupt = Arc::clone(&cluster.options().interrupt);
    let config = Config { tell_strayed: true, ..terms.config };
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
    let remote = Remote {
        consumer,
        lost: terms.lost,
        patience: terms.patience,
        news: Instant::now(),
        chunks: VecDeque::new(),
        gone: VecDeque::new(),
        ranges: ranges.clone(),
    };
    Scan::of(Box::new(remote), builder, ranges, interrupt)
}

struct Remote {
    consumer: Consumer,
    lost: Lost,
    patience: Duration,
    /// When something came last.
    news: Instant,
    chunks: VecDeque<Chunk>,
    gone: VecDeque<Range>,
    ranges: Vec<Range>,
}

impl Source for Remote {
    fn next(&mut self) -> Result<Brought> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                return Ok(Brought::Chunk(chunk));
            }
            if let Some(range) = self.gone.pop_front() {
                return Ok(Brought::Lost(range));
            }
            if self.consumer.done() {
                self.consumer.close();
                return Ok(Brought::End);
            }
            self.poll()?;
        }
    }

    fn take_back(&mut self, _: Chunk) {}
}

impl Remote {
    fn poll(&mut self) -> Result<()> {
        let polled = self.consumer.poll(LOOK.min(self.patience));
        match polled {
            Ok(chunks) => {
                if !chunks.is_empty() {
                    self.news = Instant::now();
                }
                self.chunks.extend(chunks);
                self.look_after_strayed()?;
            }
            Err(Error::Refused { code: UNKNOWN_TOPIC | UNKNOWN_TOPIC_ID, .. })
                if self.lost == Lost::Skip =>
            {
                self.let_go_of_missing()?;
            }
            Err(error @ Error::Refused { code: UNKNOWN_TOPIC, .. }) => return Err(error),
            Err(error) if error.retriable() && self.news.elapsed() < self.patience => {
                let wait = self.consumer.cluster().wait();
                wait.pause(self.consumer.cluster().options().retry_backoff, &error)?;
            }
            Err(error) => return Err(error),
        }
        if self.chunks.is_empty() && self.gone.is_empty() && self.news.elapsed() > self.patience {
            return Err(Error::Timeout { subject: self.awaited() });
        }
        Ok(())
    }

    /// Partitions whose offset is not there: each goes on where its log begins, or is an error.
    fn look_after_strayed(&mut self) -> Result<()> {
        let strayed =
            self.consumer.strayed().map(|(topic, p, offset)| (topic.to_owned(), p, offset));
        let strayed: Vec<_> = strayed.collect();
        for (topic, partition, offset) in strayed {
            let first = self.offset(&topic, partition, EARLIEST)?;
            let last = self.offset(&topic, partition, LATEST)?;
            let subject = format!("{topic}:{partition}");
            if self.lost == Lost::Fail && !(first..=last).contains(&offset) {
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
            self.gone.push_back(Range { topic, partition, start: offset, end: next });
        }
        Ok(())
    }

    /// Lets go of partitions that are not there any more.
    fn let_go_of_missing(&mut self) -> Result<()> {
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
                self.gone.push_back(Range { topic, partition, start: offset, end });
            }
        }
        Ok(())
    }

    fn offset(&mut self, topic: &str, partition: i32, timestamp: i64) -> Result<i64> {
        let moment = Moment { topic: topic.to_owned(), partition, timestamp };
        let committed = false; // the log's own ends, whatever is committed
        let wait = self.consumer.cluster().wait();
        let found = self.consumer.cluster().list_offsets(&[moment], committed, &wait)?;
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

    /// The first place that is waited for.
    fn awaited(&self) -> String {
        let mut positions = self.consumer.positions();
        let open = positions.find(|(topic, p, at, _)| *at < self.end_of(topic, *p));
        open.map_or_else(String::new, |(topic, p, at, _)| format!("{topic}:{p} offset {at}"))
    }
}
