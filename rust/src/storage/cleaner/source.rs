//! The batches of a segment file in order, read in large pieces.
//! Invariant: each batch is complete and lies below the given end.
//! Threads: positioned reads; a plain value of one cleaner.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::super::scan::{self, BatchAt, WalkStep};

/// The batches of a segment file (see the module).
pub(super) struct BatchSource<'f> {
    file: &'f File,
    end: u64,
    /// The position in the file where `buffer` begins.
    position: u64,
    /// Only its first `filled` bytes are from the file; it is not cleared between two reads.
    buffer: Vec<u8>,
    filled: usize,
    at: usize,
    piece: usize,
    read: u64,
}

/// The next batch, or the end.
pub(super) enum SourceStep<'s> {
    Batch(BatchAt, &'s [u8]),
    End,
    Bad(&'static str),
}

impl<'f> BatchSource<'f> {
    /// Reads these bytes of the file, which begin with a batch, `piece` bytes at a time.
    pub(super) fn new(file: &'f File, bytes: Range<u64>, piece: usize) -> Self {
        let Range { start: position, end } = bytes;
        let piece = piece.max(4096);
        Self { file, end, position, buffer: Vec::new(), filled: 0, at: 0, piece, read: 0 }
    }

    /// Bytes read since the last call.
    pub(super) const fn take_read(&mut self) -> u64 {
        std::mem::replace(&mut self.read, 0)
    }

    /// The next batch.
    pub(super) fn next(&mut self) -> io::Result<SourceStep<'_>> {
        loop {
            let position = self.position + self.at as u64;
            if position >= self.end {
                return Ok(SourceStep::End);
            }
            let head = self.buffer.get(self.at..self.filled).unwrap_or_default();
            let head_size = (self.end - position).min(scan::HEAD as u64) as usize;
            let mut needed = head_size;
            if head.len() >= head_size {
                let batch = match scan::read_head(head, position, self.end) {
                    WalkStep::Batch(batch) => batch,
                    WalkStep::End => return Ok(SourceStep::End),
                    WalkStep::Bad(reason) => return Ok(SourceStep::Bad(reason)),
                };
                needed = usize::try_from(batch.size).map_err(io::Error::other)?;
                let start = self.at;
                if self.filled - start >= needed {
                    self.at += needed;
                    let bytes = self.buffer.get(start..self.at).unwrap_or_default();
                    return Ok(SourceStep::Batch(batch, bytes));
                }
            }
            self.fill(needed)?;
        }
    }

    /// Reads until at least `needed` bytes follow the position.
    fn fill(&mut self, needed: usize) -> io::Result<()> {
        self.buffer.copy_within(self.at..self.filled, 0);
        let held = self.filled - self.at;
        self.position += self.at as u64;
        self.at = 0;
        let left = self.end - self.position;
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(needed.max(self.piece));
        self.filled = held;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let room = self.buffer.get_mut(held..wanted).unwrap_or_default();
        self.read += room.len() as u64;
        self.file.read_exact_at(room, self.position + held as u64)?;
        self.filled = wanted.max(held);
        Ok(())
    }
}
