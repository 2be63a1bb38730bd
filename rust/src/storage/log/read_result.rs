//! What a read of a log is asked, and what it answers.
//!
//! Threads: plain values; a result keeps its files open and its bytes in memory while it lives.
//! Not promised: the last batch may be cut where `max_bytes` ended.

use super::super::files::FileRange;
use super::recent_batches::RecentBytes;
use crate::ids::Offset;

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReadRequest {
    /// The first offset wanted.
    pub offset: Offset,
    /// At most so many bytes.
    pub max_bytes: usize,
    /// Only batches that end below this offset: high watermark, last stable offset, log end.
    pub upper: Offset,
    /// Deliver the first batch whole, even if it is larger than `max_bytes`.
    pub min_one: bool,
}

/// What a read found. Without bytes there is nothing between offset and upper.
#[derive(Clone, Debug, Default)]
pub struct LogSlice {
    /// The bytes, in order; none where they are in memory.
    pub ranges: Vec<FileRange>,
    /// The bytes where they are in memory.
    pub held: Option<RecentBytes>,
    /// How many bytes there are.
    pub size: usize,
    /// Base offset of the first batch, which may lie below the offset asked.
    pub base_offset: Option<Offset>,
    /// Bytes of the first batch; if above `size` it is cut.
    pub first_size: u64,
}

impl LogSlice {
    /// Reads all bytes into memory.
    pub fn to_vec(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.size);
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends all bytes to `out`.
    pub fn read_into(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        if let Some(held) = &self.held {
            out.extend_from_slice(held.bytes());
        }
        self.ranges.iter().try_for_each(|range| range.read_into(out))
    }
}
