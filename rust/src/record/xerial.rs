//! Kafka's snappy: Xerial's framing (Java clients write it) or one raw block (most other clients).
//! ```text
//! 0x82 "SNAPPY" 0x00, version int32, lowest compatible version int32,
//! then blocks: size int32, raw snappy block
//! ```
//! Invariant: a block inflates to at most [`WINDOW`] bytes. Blocks are inflated one at a time, so
//!     at most one inflated block is in memory.

use std::io::{self, Read};

use super::blocks::BlockCutter;
use super::cursor::Cursor;
use super::frame::{WINDOW, bad_frame, copy_out};

const MAGIC: [u8; 8] = *b"\x82SNAPPY\x00";
const VERSION: i32 = 1;
/// The block size of Kafka's own clients, in bytes.
const BLOCK_SIZE: usize = 32 * 1024;
/// Snappy encodes a copy of 64 bytes in 3 bytes, so this bounds the ratio of a block.
const MAX_RATIO: usize = 32;

/// Writes Xerial's framing, a block for every 32 KiB.
pub(crate) struct SnappyEncoder<'o> {
    blocks: BlockCutter,
    sink: SnappySink<'o>,
}

struct SnappySink<'o> {
    out: &'o mut Vec<u8>,
    block: Vec<u8>,
    encoder: snap::raw::Encoder,
}

impl<'o> SnappyEncoder<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&VERSION.to_be_bytes());
        let sink = SnappySink { out, block: Vec::new(), encoder: snap::raw::Encoder::new() };
        Self { blocks: BlockCutter::new(BLOCK_SIZE), sink }
    }

    pub(crate) fn write(&mut self, input: &[u8]) -> io::Result<()> {
        self.blocks.write(input, |block| self.sink.block(block))
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.blocks.finish(|block| self.sink.block(block))
    }
}

impl SnappySink<'_> {
    fn block(&mut self, block: &[u8]) -> io::Result<()> {
        self.block.resize(snap::raw::max_compress_len(block.len()), 0);
        let size = self.encoder.compress(block, &mut self.block).map_err(io::Error::other)?;
        self.out.extend_from_slice(&i32::try_from(size).map_err(io::Error::other)?.to_be_bytes());
        self.out.extend_from_slice(self.block.get(..size).unwrap_or_default());
        Ok(())
    }
}

/// The inflated stream of either framing.
pub(crate) struct SnappyDecoder<'a> {
    rest: Cursor<'a>,
    framing: SnappyFraming,
    held: Vec<u8>,
    taken: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SnappyFraming {
    Unknown,
    Xerial,
    RawDone,
}

impl<'a> SnappyDecoder<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        let rest = Cursor::new(input);
        Self { rest, framing: SnappyFraming::Unknown, held: Vec::new(), taken: 0 }
    }

    /// Inflates the next block into `held`; false at the end.
    fn refill(&mut self) -> io::Result<bool> {
        if self.framing == SnappyFraming::Unknown {
            if self.rest.rest.starts_with(&MAGIC) {
                self.rest.bytes(MAGIC.len() + 8).ok_or_else(|| bad_frame("snappy header cut"))?;
                self.framing = SnappyFraming::Xerial;
            } else {
                self.framing = SnappyFraming::RawDone;
                let block = std::mem::take(&mut self.rest.rest);
                return self.inflate(block).map(|()| true);
            }
        }
        if self.framing == SnappyFraming::RawDone || self.rest.rest.is_empty() {
            return Ok(false);
        }
        let block =
            self.rest.nullable32().flatten().ok_or_else(|| bad_frame("snappy block cut"))?;
        self.inflate(block).map(|()| true)
    }

    fn inflate(&mut self, block: &[u8]) -> io::Result<()> {
        let size = snap::raw::decompress_len(block).map_err(|_| bad_frame("snappy length"))?;
        if size > WINDOW || size > block.len().saturating_mul(MAX_RATIO) {
            return Err(bad_frame("snappy block larger than the window, or than it can be"));
        }
        self.taken = 0;
        self.held.resize(size, 0);
        snap::raw::Decoder::new()
            .decompress(block, &mut self.held)
            .map(drop)
            .map_err(|_| bad_frame("snappy block"))
    }
}

impl Read for SnappyDecoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.held.len() {
            if !self.refill()? {
                return Ok(0);
            }
        }
        let copied = copy_out(self.held.get(self.taken..).unwrap_or_default(), out)?;
        self.taken += copied;
        Ok(copied)
    }
}
