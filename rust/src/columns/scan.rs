//! A scan: it reads ranges of offsets to their ends, as batches of columns.
//!
//! [`Scan::pull`] fills one batch from chunks of a [`ChunkSource`]. The position of a range
//! advances when its batch is returned.
//! Invariant: a batch holds records of any number of ranges, those of one range in order.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::builder::ColumnsBuilder;
use crate::client::chunk::Chunk;
use crate::client::{Error, Interrupt, Result};

/// A range of offsets of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The first offset to read.
    pub start: i64,
    /// The first offset that is no longer read.
    pub end: i64,
}

impl OffsetRange {
    /// Whether the range is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    fn is_of(&self, topic: &str, partition: i32) -> bool {
        self.partition == partition && *self.topic == *topic
    }
}

/// What to do about offsets of a range that no longer exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingOffsets {
    /// Fail.
    #[default]
    Fail,
    /// Continue after them, and list them in [`Scan::skipped`].
    Skip,
}

/// One item from a source.
pub(super) enum SourceItem {
    /// Records of one partition.
    Chunk(Chunk),
    /// A range of offsets that no longer exist.
    Missing(OffsetRange),
    /// All ranges are at their ends.
    End,
}

/// A source of chunks: brokers or segment files.
pub(super) trait ChunkSource: Send {
    /// The next chunk of a range that is not at its end.
    fn next(&mut self) -> Result<SourceItem>;
    /// Reuses the memory of a chunk that was read.
    fn recycle(&mut self, chunk: Chunk);
}

/// A scan over ranges, and the batch that it fills (see the module).
pub struct Scan {
    source: Box<dyn ChunkSource>,
    builder: ColumnsBuilder,
    interrupt: Arc<dyn Interrupt>,
    open: Option<Chunk>,
    ranges: Vec<OffsetRange>,
    /// By range: the end of the batches that were returned, and of the one that is being filled.
    delivered: Vec<i64>,
    filled: Vec<i64>,
    skipped: Vec<OffsetRange>,
    is_done: bool,
    /// An error that followed the records of the returned batch.
    deferred_error: Option<Error>,
}

impl Scan {
    pub(super) fn of(
        source: Box<dyn ChunkSource>,
        builder: ColumnsBuilder,
        ranges: Vec<OffsetRange>,
        interrupt: Arc<dyn Interrupt>,
    ) -> Result<Self> {
        for (number, range) in ranges.iter().enumerate() {
            let same = |other: &&OffsetRange| other.is_of(&range.topic, range.partition);
            if range.start < 0 || ranges.iter().take(number).any(|other| same(&other)) {
                let (OffsetRange { topic, partition, start, end }, twice) =
                    (range, range.start >= 0);
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

    /// Adds the next records to the batch.
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

    /// The next offset of each range: (topic, partition, offset).
    pub fn positions(&self) -> impl Iterator<Item = (&str, i32, i64)> {
        let ranges = self.ranges.iter().zip(&self.delivered);
        ranges.map(|(range, next)| (&*range.topic, range.partition, *next))
    }

    /// The ranges of offsets that no longer exist, in the order in which the scan met them.
    pub fn skipped(&self) -> &[OffsetRange] {
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
