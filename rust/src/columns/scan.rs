//! A scan: it reads ranges of offsets to their ends, as batches of columns.
//!
//! [`Scan::pull`] fills one batch from chunks of a [`Source`]. The position of a range advances
//! when its batch is returned.
//! Invariant: a batch holds records of any number of ranges, those of one range in order.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::builder::ColumnsBuilder;
use crate::client::chunk::Chunk;
use crate::client::{Error, Interrupt, Result};

/// Offsets of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The first offset wanted.
    pub start: i64,
    /// The first offset not wanted any more.
    pub end: i64,
}

impl Range {
    /// Whether nothing is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    fn is_of(&self, topic: &str, partition: i32) -> bool {
        self.partition == partition && *self.topic == *topic
    }
}

/// What to do about offsets of a range that do not exist any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingOffsets {
    /// Fail.
    #[default]
    Fail,
    /// Continue behind them, and list them in [`Scan::skipped`].
    Skip,
}

/// One item from a source.
pub(super) enum SourceItem {
    /// Records of one partition.
    Chunk(Chunk),
    /// Offsets that are gone, as a range.
    Missing(Range),
    /// All ranges are at their ends.
    End,
}

/// Where chunks come from.
pub(super) trait Source: Send {
    /// The next chunk of a range that is not at its end.
    fn next(&mut self) -> Result<SourceItem>;
    /// Reuses the memory of a chunk that was read.
    fn recycle(&mut self, chunk: Chunk);
}

/// See the module.
pub struct Scan {
    source: Box<dyn Source>,
    builder: ColumnsBuilder,
    interrupt: Arc<dyn Interrupt>,
    open: Option<Chunk>,
    ranges: Vec<Range>,
    /// By range: how far batches that were handed out go, and the one that is being filled.
    delivered: Vec<i64>,
    filled: Vec<i64>,
    skipped: Vec<Range>,
    is_done: bool,
    /// An error that came after the records of the batch that was returned.
    deferred_error: Option<Error>,
}

impl Scan {
    pub(super) fn of(
        source: Box<dyn Source>,
        builder: ColumnsBuilder,
        ranges: Vec<Range>,
        interrupt: Arc<dyn Interrupt>,
    ) -> Result<Self> {
        for (number, range) in ranges.iter().enumerate() {
            let same = |other: &&Range| other.is_of(&range.topic, range.partition);
            if range.start < 0 || ranges.iter().take(number).any(|other| same(&other)) {
                let (Range { topic, partition, start, end }, twice) = (range, range.start >= 0);
                let what = if twice { "is asked for twice" } else { "cannot begin below 0" };
                return Err(Error::Invalid(format!("{topic}:{partition} {start}:{end} {what}")));
            }
        }
        let delivered: Vec<i64> = ranges.iter().map(|range| range.start).collect();
        let (filled, skipped, open) = (delivered.clone(), Vec::new(), None);
        let (is_done, deferred_error) = (false, None);
        Ok(Self {
            source,
            builder,
            interrupt,
            open,
            ranges,
            delivered,
            filled,
            skipped,
            is_done,
            deferred_error,
        })
    }

    /// The next batch; `None`: all ranges are at their ends. After an error there is no more.
    pub fn pull(&mut self) -> Result<Option<RecordBatch>> {
        if self.interrupt.interrupted() {
            return Err(Error::Interrupted);
        }
        if let Some(error) = self.deferred_error.take() {
            return Err(error);
        }
        while !self.is_done && !self.builder.is_full() {
            match self.fill() {
                Err(error) if self.builder.rows() > 0 => {
                    self.deferred_error = Some(error);
                    break;
                }
                other => other?,
            }
        }
        let batch = self.builder.finish()?;
        self.delivered.clone_from(&self.filled);
        Ok(batch)
    }

    /// Adds what comes next to the batch.
    fn fill(&mut self) -> Result<()> {
        let mut chunk = match self.open.take() {
            Some(chunk) => chunk,
            None => match self.source.next()? {
                SourceItem::Chunk(chunk) => chunk,
                SourceItem::Missing(range) => {
                    self.record_progress(&range.topic, range.partition, range.end);
                    self.skipped.push(range);
                    return Ok(());
                }
                SourceItem::End => {
                    self.is_done = true;
                    let ends = self.ranges.iter().map(|range| range.end.max(range.start));
                    self.filled = ends.collect();
                    return Ok(());
                }
            },
        };
        let taken = self.builder.take(&mut chunk);
        self.record_progress(&Arc::clone(&chunk.topic), chunk.partition, chunk.position());
        if taken? {
            self.source.recycle(chunk);
        } else {
            self.open = Some(chunk);
        }
        Ok(())
    }

    /// Where each range goes on: (topic, partition, next offset).
    pub fn positions(&self) -> impl Iterator<Item = (&str, i32, i64)> {
        let ranges = self.ranges.iter().zip(&self.delivered);
        ranges.map(|(range, next)| (&*range.topic, range.partition, *next))
    }

    /// Offsets that were gone, in the order they were met.
    pub fn skipped(&self) -> &[Range] {
        &self.skipped
    }

    /// Notes how far a partition has been read.
    fn record_progress(&mut self, topic: &str, partition: i32, next: i64) {
        for (range, filled) in self.ranges.iter().zip(&mut self.filled) {
            if range.is_of(topic, partition) {
                *filled = next.min(range.end).max(*filled);
            }
        }
    }
}
