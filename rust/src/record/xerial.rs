//! Snappy as Kafka has it: Xerial's framing (what Java writes), or one raw block (most others).
//! ```text
//! 0x82 "SNAPPY" 0x00, version int32, lowest compatible version int32,
//! then blocks: size int32, raw snappy block
//! ```
//! Invariant: a block inflates to at most [`WINDOW`] bytes, and the frame's blocks are inflated one
//!     at a time, so one block is what is held.

use std::io::{self, Read};

use super::compression::{WINDOW, bad_frame, copy_out};
use super::cursor::Cursor;

const MAGIC: [u8; 8] = *b"\x82SNAPPY\x00";
const VERSION: i32 = 1;
/// What Kafka's own clients put in a block.
const BLOCK_SIZE: usize = 32 * 1024;
/// A copy of 64 bytes takes 3, so no block can grow more than this.
const MAX_RATIO: usize = 32;

/// Appends `input` to `out` in Xerial's framing.
pub(crate) fn deflate(input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    let mut block = vec![0; snap::raw::max_compress_len(BLOCK_SIZE.min(input.len()))];
    for piece in input.chunks(BLOCK_SIZE) {
        let size = encoder.compress(piece, &mut block).map_err(io::Error::other)?;
        out.extend_from_slice(&i32::try_from(size).map_err(io::Error::other)?.to_be_bytes());
        out.extend_from_slice(block.get(..size).unwrap_or_default());
    }
    Ok(())
}

/// The inflated stream of either framing.
pub(crate) struct Inflate<'a> {
    rest: Cursor<'a>,
    framing: Framing,
    held: Vec<u8>,
    taken: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Unknown,
    Xerial,
    RawDone,
}

impl<'a> Inflate<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        let rest = Cursor::new(input);
        Self { rest, framing: Framing::Unknown, held: Vec::new(), taken: 0 }
    }

    /// Inflates the next block into `held`; false at the end.
    fn refill(&mut self) -> io::Result<bool> {
        if self.framing == Framing::Unknown {
            if self.rest.rest.starts_with(&MAGIC) {
                self.rest.bytes(MAGIC.len() + 8).ok_or_else(|| bad_frame("snappy header cut"))?;
                self.framing = Framing::Xerial;
            } else {
                self.framing = Framing::RawDone;
                let block = std::mem::take(&mut self.rest.rest);
                return self.inflate(block).map(|()| true);
            }
        }
        if self.framing == Framing::RawDone || self.rest.rest.is_empty() {
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

impl Read for Inflate<'_> {
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
