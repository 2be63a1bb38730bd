//! LZ4 frames, read and written block by block.
//! ```text
//! magic 0x184D2204 (little-endian, as all here), FLG, BD, content size uint64 if FLG bit 3,
//! header checksum byte; blocks: size uint32 (top bit: stored), bytes, checksum if FLG bit 4;
//! end mark 0, content checksum if FLG bit 2. Frames may follow each other; skippable frames are
//! skipped.
//! ```
//! Header checksum: the second byte of XXH32 over FLG .. content size. Kafka before 0.10 included
//!     the magic number; messages of magic 0 still do. Both checksums are accepted.
//! Invariant: the decoder holds one block of at most 4 MiB, and 64 KiB of history if blocks are
//!     linked.
//! Not promised: a check of block and content checksums; the batch's checksum covers the same
//!     bytes. A frame with a dictionary is refused.

use std::io::{self, Read};

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, decompress_into_with_dict,
    get_maximum_output_size,
};
use twox_hash::XxHash32;

use super::blocks::BlockCutter;
use super::cursor::Cursor;
use super::frame::{Framing, bad_frame, copy_out};

const MAGIC: u32 = 0x184d_2204;
const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;
const STORED: u32 = 1 << 31;
const HISTORY: usize = 64 * 1024;
/// Version 1, independent blocks, no checksums: as Kafka's own clients write.
const FLAGS: u8 = 0x60;
const BLOCK_64_KIB: u8 = 0x40;
const BLOCK_SIZE: usize = 64 * 1024;

/// Writes one frame of independent blocks of 64 KiB.
pub(crate) struct Lz4Encoder<'o> {
    blocks: BlockCutter,
    sink: Lz4Sink<'o>,
}

struct Lz4Sink<'o> {
    out: &'o mut Vec<u8>,
    block: Vec<u8>,
    table: CompressTable,
}

impl<'o> Lz4Encoder<'o> {
    pub(crate) fn new(framing: Framing, out: &'o mut Vec<u8>) -> Self {
        let [m0, m1, m2, m3] = MAGIC.to_le_bytes();
        let covered = [m0, m1, m2, m3, FLAGS, BLOCK_64_KIB];
        out.extend_from_slice(&covered);
        out.push(match framing {
            Framing::Standard => checksum(&[FLAGS, BLOCK_64_KIB]),
            Framing::Old => checksum(&covered),
        });
        let sink = Lz4Sink { out, block: Vec::new(), table: CompressTable::default() };
        Self { blocks: BlockCutter::new(BLOCK_SIZE), sink }
    }

    pub(crate) fn write(&mut self, input: &[u8]) -> io::Result<()> {
        self.blocks.write(input, |block| self.sink.block(block))
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.blocks.finish(|block| self.sink.block(block))?;
        self.sink.out.extend_from_slice(&0u32.to_le_bytes());
        Ok(())
    }
}

impl Lz4Sink<'_> {
    fn block(&mut self, block: &[u8]) -> io::Result<()> {
        self.block.resize(get_maximum_output_size(block.len()), 0);
        let size = compress_into_with_table(block, &mut self.block, &mut self.table)
            .map_err(io::Error::other)?;
        let (size, stored, bytes) = match self.block.get(..size) {
            Some(smaller) if size < block.len() => (size, 0, smaller),
            _ => (block.len(), STORED, block),
        };
        let size = u32::try_from(size).map_err(io::Error::other)?;
        self.out.extend_from_slice(&(size | stored).to_le_bytes());
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

fn checksum(header: &[u8]) -> u8 {
    let [_, second, ..] = XxHash32::oneshot(0, header).to_le_bytes();
    second
}

/// The inflated stream of all frames.
pub(crate) struct Lz4Decoder<'a> {
    rest: Cursor<'a>,
    frame: Option<Lz4Frame>,
    /// The history if blocks are linked, then the current block, then unused bytes.
    held: Vec<u8>,
    taken: usize,
    filled: usize,
}

#[derive(Clone, Copy)]
struct Lz4Frame {
    linked: bool,
    block_checksums: bool,
    content_checksum: bool,
    block_size: usize,
}

impl Lz4Frame {
    /// Reads the frame's header after the magic number.
    fn read(at: &mut Cursor<'_>) -> Option<Self> {
        let descriptor = at.rest;
        let [flags, block] = at.array()?;
        if flags & 0xc0 != 0x40 || flags & 0x03 != 0 || block & 0x8f != 0 {
            return None;
        }
        let content_size = if flags & 0x08 != 0 { 8 } else { 0 };
        at.bytes(content_size)?;
        let descriptor = descriptor.get(..2 + content_size)?;
        let [found] = at.array()?;
        if found != checksum(descriptor) {
            let old: Vec<u8> = [&MAGIC.to_le_bytes(), descriptor].concat();
            if found != checksum(&old) {
                return None;
            }
        }
        Some(Self {
            linked: flags & 0x20 == 0,
            block_checksums: flags & 0x10 != 0,
            content_checksum: flags & 0x04 != 0,
            block_size: match block >> 4 {
                4 => 64 * 1024,
                5 => 256 * 1024,
                6 => 1024 * 1024,
                7 => 4 * 1024 * 1024,
                _ => return None,
            },
        })
    }
}

impl<'a> Lz4Decoder<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        let rest = Cursor::new(input);
        Self { rest, frame: None, held: Vec::new(), taken: 0, filled: 0 }
    }

    /// Inflates the next block: into `out` if the block fits and blocks are not linked, else into
    /// `held`. Returns the number of bytes in `out`; an inner `None` at the end of the last frame.
    fn refill(&mut self, out: &mut [u8]) -> Option<Option<usize>> {
        loop {
            let Some(frame) = self.frame else {
                if self.rest.rest.is_empty() {
                    return Some(None);
                }
                self.frame = self.begin()?;
                continue;
            };
            let size = self.rest.array().map(u32::from_le_bytes)?;
            if size == 0 {
                self.rest.bytes(if frame.content_checksum { 4 } else { 0 })?;
                self.frame = None;
                continue;
            }
            let bytes = self.rest.bytes(usize::try_from(size & !STORED).ok()?)?;
            self.rest.bytes(if frame.block_checksums { 4 } else { 0 })?;
            let is_stored = size & STORED != 0;
            if bytes.len() > frame.block_size {
                return None;
            }
            // Inflating multiplies a block's size by at most 255, so a small block stays small.
            let largest = if is_stored { bytes.len() } else { bytes.len() * 255 };
            let block = Lz4Block { bytes, is_stored, max_size: frame.block_size.min(largest) };
            if !frame.linked
                && let Some(out) = out.get_mut(..block.max_size)
            {
                return block.inflate(out, &[]).map(Some);
            }
            self.inflate_into_buffer(frame, &block)?;
            return Some(Some(0));
        }
    }

    /// Reads a magic number and the frame's header; an inner `None` if it skipped a frame.
    fn begin(&mut self) -> Option<Option<Lz4Frame>> {
        let magic = self.rest.array().map(u32::from_le_bytes)?;
        self.taken = 0;
        self.filled = 0;
        if SKIPPABLE.contains(&magic) {
            let size = self.rest.array().map(u32::from_le_bytes)?;
            self.rest.bytes(usize::try_from(size).ok()?)?;
            return Some(None);
        }
        if magic != MAGIC {
            return None;
        }
        Lz4Frame::read(&mut self.rest).map(Some)
    }

    /// Inflates `block` into `held`, behind the history that linked blocks refer to.
    fn inflate_into_buffer(&mut self, frame: Lz4Frame, block: &Lz4Block<'_>) -> Option<()> {
        let room = block.max_size;
        let history = if frame.linked { self.filled.min(HISTORY) } else { 0 };
        self.held.copy_within(self.filled - history..self.filled, 0);
        if self.held.len() < history + room {
            self.held.resize(history + room, 0);
        }
        let (before, after) = self.held.split_at_mut_checked(history)?;
        let size = block.inflate(after.get_mut(..room)?, before)?;
        self.taken = history;
        self.filled = history + size;
        Some(())
    }
}

/// One block of a frame.
struct Lz4Block<'a> {
    bytes: &'a [u8],
    /// The bytes are not compressed.
    is_stored: bool,
    /// Most bytes that the block inflates to.
    max_size: usize,
}

impl Lz4Block<'_> {
    /// Inflates the block into the beginning of `room`, which has `max_size` bytes. `history` are
    /// the inflated bytes before it that it may refer to. Returns the inflated size.
    fn inflate(&self, room: &mut [u8], history: &[u8]) -> Option<usize> {
        if self.is_stored {
            room.copy_from_slice(self.bytes);
            return Some(self.bytes.len());
        }
        if history.is_empty() {
            return decompress_into(self.bytes, room).ok();
        }
        decompress_into_with_dict(self.bytes, room, history).ok()
    }
}

impl Read for Lz4Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.filled {
            match self.refill(out).ok_or_else(|| bad_frame("lz4 frame"))? {
                None => return Ok(0),
                Some(0) => {}
                Some(direct) => return Ok(direct),
            }
        }
        let held = self.held.get(self.taken..self.filled).unwrap_or_default();
        let copied = copy_out(held, out)?;
        self.taken += copied;
        Ok(copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_by(frame: &[u8], room: usize) -> Vec<u8> {
        let (mut inflate, mut out) = (Lz4Decoder::new(frame), vec![0xee; room]);
        let mut all = Vec::new();
        loop {
            let read = inflate.read(&mut out).unwrap();
            if read == 0 {
                return all;
            }
            all.extend_from_slice(&out[..read]);
        }
    }

    #[test]
    fn a_frame_reads_the_same_into_rooms_of_any_size() {
        let words = (0..200_000u32).map(|n| (n / 7 % 251) as u8);
        let noise = (0..70_000u32).map(|n| (n.wrapping_mul(n ^ 0x9e37_79b1) >> 13) as u8);
        let plain: Vec<u8> = words.chain(noise).collect();
        let mut frame = Vec::new();
        let mut deflate = Lz4Encoder::new(Framing::Standard, &mut frame);
        deflate.write(&plain).unwrap();
        deflate.finish().unwrap();
        for room in [1, 1000, 65_535, 65_536, 100_000, 300_000] {
            assert!(read_by(&frame, room) == plain, "{room}");
        }
    }
}
