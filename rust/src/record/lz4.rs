//! LZ4 frames, by the block.
//! ```text
//! magic 0x184D2204 (little-endian, as all here), FLG, BD, content size uint64 if FLG bit 3,
//! header checksum byte; blocks: size uint32 (top bit: stored), bytes, checksum if FLG bit 4;
//! end mark 0, content checksum if FLG bit 2. Frames may follow each other; skippable ones are.
//! ```
//! Header checksum: the second byte of XXH32 over FLG .. content size. Kafka before 0.10 took it
//!     over the magic number too; messages of magic 0 still carry that one, and both are accepted.
//! Invariant: one block is held, at most 4 MiB, and 64 KiB before it where blocks are linked.
//! Not promised: block and content checksums are not checked, the batch's own covers them; a
//!     dictionary is refused.

use std::io::{self, Read};

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, decompress_into_with_dict,
    get_maximum_output_size,
};
use twox_hash::XxHash32;

use super::blocks::Blocks;
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
pub(crate) struct Deflate<'o> {
    blocks: Blocks,
    sink: Sink<'o>,
}

struct Sink<'o> {
    out: &'o mut Vec<u8>,
    block: Vec<u8>,
    table: CompressTable,
}

impl<'o> Deflate<'o> {
    pub(crate) fn new(framing: Framing, out: &'o mut Vec<u8>) -> Self {
        let [m0, m1, m2, m3] = MAGIC.to_le_bytes();
        let covered = [m0, m1, m2, m3, FLAGS, BLOCK_64_KIB];
        out.extend_from_slice(&covered);
        out.push(match framing {
            Framing::Standard => checksum(&[FLAGS, BLOCK_64_KIB]),
            Framing::Old => checksum(&covered),
        });
        let sink = Sink { out, block: Vec::new(), table: CompressTable::default() };
        Self { blocks: Blocks::new(BLOCK_SIZE), sink }
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

impl Sink<'_> {
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
pub(crate) struct Inflate<'a> {
    rest: Cursor<'a>,
    frame: Option<Frame>,
    /// History where blocks are linked, then the block, then room.
    held: Vec<u8>,
    taken: usize,
    filled: usize,
}

#[derive(Clone, Copy)]
struct Frame {
    linked: bool,
    block_checksums: bool,
    content_checksum: bool,
    block_size: usize,
}

impl Frame {
    /// Reads the frame's header, the magic number being read.
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

impl<'a> Inflate<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        let rest = Cursor::new(input);
        Self { rest, frame: None, held: Vec::new(), taken: 0, filled: 0 }
    }

    /// Inflates the next block: into `out` if that has room for any such block and none after it
    /// looks back at it, else to be held. How many bytes are in `out`; an inner `None` at the end
    /// of the last frame.
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
            let block = self.rest.bytes(usize::try_from(size & !STORED).ok()?)?;
            self.rest.bytes(if frame.block_checksums { 4 } else { 0 })?;
            let stored = size & STORED != 0;
            if block.len() > frame.block_size {
                return None;
            }
            // A block cannot grow more than 255-fold, so a small one needs little room.
            let room = frame.block_size.min(if stored { block.len() } else { block.len() * 255 });
            if !frame.linked
                && let Some(out) = out.get_mut(..room)
            {
                return inflate(block, stored, out, &[]).map(Some);
            }
            self.hold(frame, block, (stored, room))?;
            return Some(Some(0));
        }
    }

    /// Reads a magic number and the frame's header; an inner `None` where it skipped a frame.
    fn begin(&mut self) -> Option<Option<Frame>> {
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
        Frame::read(&mut self.rest).map(Some)
    }

    fn hold(&mut self, frame: Frame, block: &[u8], (stored, room): (bool, usize)) -> Option<()> {
        let history = if frame.linked { self.filled.min(HISTORY) } else { 0 };
        self.held.copy_within(self.filled - history..self.filled, 0);
        if self.held.len() < history + room {
            self.held.resize(history + room, 0);
        }
        let (before, after) = self.held.split_at_mut_checked(history)?;
        let size = inflate(block, stored, after.get_mut(..room)?, before)?;
        self.taken = history;
        self.filled = history + size;
        Some(())
    }
}

/// Inflates a block into the beginning of `room`, which is as long as the block if it is stored.
fn inflate(block: &[u8], stored: bool, room: &mut [u8], before: &[u8]) -> Option<usize> {
    if stored {
        room.copy_from_slice(block);
        return Some(block.len());
    }
    if before.is_empty() {
        return decompress_into(block, room).ok();
    }
    decompress_into_with_dict(block, room, before).ok()
}

impl Read for Inflate<'_> {
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
        let (mut inflate, mut out) = (Inflate::new(frame), vec![0xee; room]);
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
        let mut deflate = Deflate::new(Framing::Standard, &mut frame);
        deflate.write(&plain).unwrap();
        deflate.finish().unwrap();
        for room in [1, 1000, 65_535, 65_536, 100_000, 300_000] {
            assert!(read_by(&frame, room) == plain, "{room}");
        }
    }
}
