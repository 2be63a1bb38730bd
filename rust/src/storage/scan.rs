//! Walks the headers of a segment file, of any magic.
//!
//! [`Walker`] reads headers; it reads small batches completely if the caller looks at every batch.
//! [`check_crc`] reads a whole batch with bounded memory.
//! Invariant: a [`BatchAt`] lies inside the bounds it was read with, and
//! base_offset <= last_offset. An older message has one offset, used as both; that of a compressed
//! wrapper is its last inner offset.
//! Threads: positioned reads only, so any number at once.
//! Not promised: that a valid header belongs to a good batch. Only the checksum shows that.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::cold;
use crate::record::batch::{HEADER_SIZE, Header};
use crate::record::crc::Crc32c;

/// Offset and size, in front of every batch and message.
const PREFIX: u64 = 12;
/// Bytes that hold the magic and, before magic 2, everything else.
const MIN_HEAD: usize = 26;
/// Bytes that hold everything of a batch but its records.
pub(crate) const HEAD: usize = HEADER_SIZE;
/// How much is read at once if the caller gives no size.
pub(crate) const WINDOW: usize = 4 << 10;
/// The largest window that a thread keeps.
const SPARED: usize = 16 << 10;
/// The window for reading a whole file: without it, a batch per commit takes two reads each.
const READING: usize = 128 << 10;
const CHUNK: usize = 256 << 10;

/// A batch (or older message) and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchAt {
    pub position: u64,
    pub size: u64,
    pub base_offset: i64,
    pub last_offset: i64,
    pub max_timestamp: i64,
    pub leader_epoch: i32,
    pub magic: i8,
    /// The whole header, of magic 2.
    pub header: Option<Header>,
}

/// The result of one step of the walk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WalkStep {
    Batch(BatchAt),
    End,
    /// No batch begins here, for this reason.
    Bad(&'static str),
}

impl BatchAt {
    /// One past its last byte.
    pub(crate) const fn end(&self) -> u64 {
        self.position + self.size
    }
}

/// A walk over the headers of a file.
pub(crate) struct Walker<'f> {
    file: &'f File,
    end: u64,
    position: u64,
    /// Its first `filled` bytes are those of the file from `window_at` on.
    window: Vec<u8>,
    window_at: u64,
    filled: usize,
    ahead: usize,
}

thread_local! {
    /// The window of the last walk of this thread, for the next one.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<'f> Walker<'f> {
    /// Walks from `position`, where a batch begins, up to `end`.
    pub(crate) fn new(file: &'f File, position: u64, end: u64) -> Self {
        Self::aiming(file, position, end, WINDOW)
    }

    /// A walk for a caller that reads every batch.
    pub(crate) fn reading(file: &'f File, position: u64, end: u64) -> Self {
        Self::aiming(file, position, end, READING)
    }

    /// A walk for a caller that knows the distance to the header that it seeks.
    pub(crate) fn aiming(file: &'f File, position: u64, end: u64, ahead: usize) -> Self {
        let window = SPARE.take();
        Self { file, end, position, window, window_at: 0, filled: 0, ahead }
    }

    /// The position of the next step.
    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// The next batch. After `Bad` and `End` the walk stays where it is.
    pub(crate) fn step(&mut self) -> io::Result<WalkStep> {
        if self.position >= self.end {
            return Ok(WalkStep::End);
        }
        let left = self.end - self.position;
        let (at, end) = (self.position, self.end);
        let head = self.head(left)?;
        let step = read_head(head, at, end);
        if let WalkStep::Batch(batch) = &step {
            self.position = batch.end();
        }
        Ok(step)
    }

    /// Whether the checksum of the last batch of a step is right. `scratch` is reused between
    /// calls.
    pub(crate) fn check_crc(&mut self, batch: &BatchAt, scratch: &mut Vec<u8>) -> io::Result<bool> {
        match usize::try_from(batch.size) {
            Ok(size) if size <= self.ahead => {
                let bytes = self.bytes(batch.position, size)?.get(..size);
                Ok(bytes.is_some_and(|bytes| has_crc(batch.magic, bytes)))
            }
            _ => check_crc(self.file, batch, scratch),
        }
    }

    fn head(&mut self, left: u64) -> io::Result<&[u8]> {
        let wanted = usize::try_from(left).unwrap_or(HEADER_SIZE).min(HEADER_SIZE);
        self.bytes(self.position, wanted)
    }

    /// At least `wanted` bytes from `at` on; the file must have them.
    fn bytes(&mut self, at: u64, wanted: usize) -> io::Result<&[u8]> {
        let has = at >= self.window_at && at + wanted as u64 <= self.window_at + self.filled as u64;
        if !has {
            let left = self.end.saturating_sub(at);
            let len = usize::try_from(left).unwrap_or(self.ahead).min(self.ahead);
            if self.window.len() < len {
                self.window.resize(len, 0);
            }
            (self.window_at, self.filled) = (at, 0);
            let window = self.window.get_mut(..len).unwrap_or_default();
            cold::read_exact_at(self.file, window, at)?;
            self.filled = len;
            self.ahead = self.ahead.max(WINDOW);
        }
        let from = usize::try_from(at - self.window_at).unwrap_or(usize::MAX);
        Ok(self.window.get(from..self.filled).unwrap_or_default())
    }
}

impl Drop for Walker<'_> {
    fn drop(&mut self) {
        if self.window.len() <= SPARED {
            SPARE.set(std::mem::take(&mut self.window));
        }
    }
}

/// Whether the checksum in a whole batch is that of its bytes.
fn has_crc(magic: i8, batch: &[u8]) -> bool {
    let (crc_at, covered_at) = if magic == 2 { (17, 21) } else { (12, 16) };
    let stored = batch.get(crc_at..).and_then(|bytes| bytes.first_chunk());
    let covered = batch.get(covered_at..).unwrap_or_default();
    let found = if magic == 2 {
        let mut crc = Crc32c::new();
        crc.update(covered);
        crc.value()
    } else {
        crc32fast::hash(covered)
    };
    stored.is_some_and(|stored| u32::from_be_bytes(*stored) == found)
}

/// Reads the header at the start of `head`, of a batch at `position` in a file that ends at `end`.
pub(crate) fn read_head(head: &[u8], position: u64, end: u64) -> WalkStep {
    let int64 =
        |at: usize| head.get(at..).and_then(|b| b.first_chunk()).map(|b| i64::from_be_bytes(*b));
    let (Some(offset), Some(magic)) = (int64(0), head.get(16).copied()) else {
        return WalkStep::Bad("the file ends in the middle of a header");
    };
    let length = head.get(8..).and_then(|b| b.first_chunk()).map_or(-1, |b| i32::from_be_bytes(*b));
    let Ok(size) = u64::try_from(length).map(|length| length + PREFIX) else {
        return WalkStep::Bad("negative size");
    };
    if size > end - position {
        return WalkStep::Bad("the file ends in the middle of a batch");
    }
    if offset < 0 || size < MIN_HEAD as u64 || head.len() < MIN_HEAD {
        return WalkStep::Bad("not a batch");
    }
    let magic = magic.cast_signed();
    let mut batch = BatchAt {
        position,
        size,
        base_offset: offset,
        last_offset: offset,
        max_timestamp: -1,
        leader_epoch: -1,
        magic,
        header: None,
    };
    match magic {
        0 => WalkStep::Batch(batch),
        1 => {
            batch.max_timestamp = int64(18).unwrap_or(-1);
            WalkStep::Batch(batch)
        }
        2 => match Header::read(head) {
            Some(header) if size >= HEADER_SIZE as u64 && header.last_offset_delta >= 0 => {
                batch.last_offset = offset.saturating_add(i64::from(header.last_offset_delta));
                batch.max_timestamp = header.max_timestamp;
                batch.leader_epoch = header.leader_epoch;
                batch.header = Some(header);
                WalkStep::Batch(batch)
            }
            _ => WalkStep::Bad("not a batch"),
        },
        _ => WalkStep::Bad("unknown magic"),
    }
}

/// Whether the batch's checksum is right. `scratch` is reused between calls.
pub(crate) fn check_crc(file: &File, batch: &BatchAt, scratch: &mut Vec<u8>) -> io::Result<bool> {
    let (crc_at, covered_at) = if batch.magic == 2 { (17, 21) } else { (12, 16) };
    let mut v2 = Crc32c::new();
    let mut older = crc32fast::Hasher::new();
    let mut stored = [0; 4];
    file.read_exact_at(&mut stored, batch.position + crc_at)?;
    let mut at = batch.position + covered_at;
    while at < batch.end() {
        let len = usize::try_from(batch.end() - at).unwrap_or(CHUNK).min(CHUNK);
        scratch.resize(len, 0);
        file.read_exact_at(scratch, at)?;
        if batch.magic == 2 {
            v2.update(scratch);
        } else {
            older.update(scratch);
        }
        at += len as u64;
    }
    let found = if batch.magic == 2 { v2.value() } else { older.finalize() };
    Ok(found == u32::from_be_bytes(stored))
}

/// Reads a whole batch into `scratch`.
pub(crate) fn read_batch<'s>(
    file: &File,
    batch: &BatchAt,
    scratch: &'s mut Vec<u8>,
) -> io::Result<&'s [u8]> {
    let len = usize::try_from(batch.size).map_err(io::Error::other)?;
    scratch.resize(len, 0);
    file.read_exact_at(scratch, batch.position)?;
    Ok(scratch)
}
