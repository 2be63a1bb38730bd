//! The bytes of one connection that were read and not yet handled, and the pool of their buffers.
//!
//! A connection borrows a buffer from its thread's pool when bytes arrive and returns it when all
//! of them are handled, so an idle connection holds none. It reads up to [`READ_AHEAD`] bytes at
//! once, which brings many small requests in one call. When it knows the length of a larger frame,
//! it reads exactly to the end of that frame, so that no byte after the frame has to be moved. A
//! buffer grows with the bytes that have arrived (at most twofold), never with an announced length:
//! `buf.len() <= max(READ_AHEAD, 2 * filled, size of a pooled buffer)`.
//! Invariant: handled frames are removed from the front; filled <= buf.len().
//! Threads: one network thread owns it.

use std::io::{self, Read};
use std::ops::Range;

use crate::transport::frame::{self, FrameError, NextFrame};

/// How much is read before the size of a frame is known.
pub(super) const READ_AHEAD: usize = 64 << 10;
/// Buffers above this are freed, not kept for the next frame.
const KEPT_BUFFER_MAX: usize = 4 << 20;
/// How many buffers one thread keeps.
const KEPT_BUFFERS: usize = 4;
/// How many connections may keep a buffer that is mostly empty.
pub(super) const SPARSE_BUFFERS: usize = 8;

/// The free read buffers of one thread, and the sum of those in use.
pub(super) struct ReadBufferPool {
    free: Vec<Vec<u8>>,
    /// Bytes of buffers lent to connections.
    lent: usize,
    /// The most bytes in use before connections with large frames have to wait.
    limit: usize,
    /// How many connections keep a buffer that is mostly empty after their turn.
    sparse: usize,
    /// Whether one connection may exceed the limit. Otherwise many incomplete frames could wait for
    /// each other for ever.
    exempt: bool,
    /// Whether a buffer was asked for since the last trim.
    used: bool,
}

/// The unhandled bytes of one connection.
#[derive(Default)]
pub(super) struct ReadBuffer {
    buf: Vec<u8>,
    filled: usize,
    sparse: bool,
    exempt: bool,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// It filled the buffer: there may be more bytes.
    Full,
    /// It returned fewer bytes than asked for: the socket is empty now.
    Drained,
    /// The socket was empty.
    Empty,
    /// The peer has disconnected.
    Ended,
    /// Nothing was read, because the thread's buffers are used up.
    Starved,
}

impl ReadBufferPool {
    pub(super) fn new(limit: usize) -> Self {
        Self { free: Vec::new(), lent: 0, limit, sparse: 0, exempt: false, used: false }
    }

    /// Whether there are buffers that could be freed.
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The bytes of all buffers that connections hold.
    pub(super) fn lent(&self) -> usize {
        self.lent
    }

    /// Frees the pooled buffers if none was used since the last call.
    pub(super) fn trim(&mut self) {
        if !std::mem::take(&mut self.used) {
            self.free = Vec::new();
        }
    }

    fn borrow(&mut self) -> Vec<u8> {
        self.used = true;
        let buf = self.free.pop().unwrap_or_else(|| vec![0; READ_AHEAD]);
        self.lent += buf.len();
        buf
    }

    fn give_back(&mut self, buf: Vec<u8>) {
        self.lent -= buf.len();
        if self.free.len() < KEPT_BUFFERS && (READ_AHEAD..=KEPT_BUFFER_MAX).contains(&buf.len()) {
            self.free.push(buf);
        }
    }

    /// Grows `buf` to `size` bytes; its first `filled` bytes are used.
    fn grow(&mut self, buf: &mut Vec<u8>, filled: usize, size: usize) {
        if let Some(at) = self.free.iter().position(|free| free.len() >= size) {
            let mut larger = self.free.swap_remove(at);
            self.lent += larger.len();
            if let (Some(to), Some(from)) = (larger.get_mut(..filled), buf.get(..filled)) {
                to.copy_from_slice(from);
            }
            self.give_back(std::mem::replace(buf, larger));
            return;
        }
        let more = size.saturating_sub(buf.len());
        buf.resize(size.max(buf.len()), 0);
        self.lent += more;
    }
}

impl ReadBuffer {
    /// Reads once from `stream`. `limit` is the largest frame taken; its content is checked before.
    pub(super) fn fill(
        &mut self,
        stream: &mut impl Read,
        pool: &mut ReadBufferPool,
        limit: usize,
    ) -> io::Result<ReadOutcome> {
        if self.buf.is_empty() {
            self.buf = pool.borrow();
        }
        let size = match frame::next(self.bytes(), 0, limit).map_err(io::Error::other)? {
            NextFrame::Part(size) => size,
            NextFrame::Unknown | NextFrame::Whole(_) => 0,
        };
        let end = if size <= READ_AHEAD {
            READ_AHEAD
        } else {
            size.min(self.buf.len().max(2 * self.filled).max(READ_AHEAD))
        };
        if end > self.buf.len() && !self.grow(pool, end) {
            return Ok(ReadOutcome::Starved);
        }
        let Some(room) = self.buf.get_mut(self.filled..end) else { return Ok(ReadOutcome::Full) };
        let wanted = room.len();
        match stream.read(room) {
            Ok(0) => Ok(ReadOutcome::Ended),
            Ok(count) => {
                self.filled += count;
                Ok(if count < wanted { ReadOutcome::Drained } else { ReadOutcome::Full })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::Empty),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(ReadOutcome::Full),
            Err(error) => Err(error),
        }
    }

    /// Makes room for `size` bytes; false if the thread's limit forbids it.
    fn grow(&mut self, pool: &mut ReadBufferPool, size: usize) -> bool {
        if size > READ_AHEAD && pool.lent + size > pool.limit && !self.exempt {
            if pool.exempt {
                return false;
            }
            (self.exempt, pool.exempt) = (true, true);
        }
        pool.grow(&mut self.buf, self.filled, size);
        true
    }

    /// The bytes that were read and not handled.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buf.get(..self.filled).unwrap_or_default()
    }

    /// Whether bytes of a frame wait here.
    pub(super) fn is_pending(&self) -> bool {
        self.filled > 0
    }

    /// Whether the buffer counts towards the limit that makes others wait.
    pub(super) fn is_large(&self) -> bool {
        self.buf.len() > READ_AHEAD
    }

    /// How many bytes wait here.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// The memory of the buffer.
    pub(super) fn memory(&self) -> usize {
        self.buf.len()
    }

    /// Lists the whole frames, as ranges of [`ReadBuffer::bytes`].
    pub(super) fn frames(
        &self,
        limit: usize,
        frames: &mut Vec<Range<usize>>,
    ) -> Result<(), FrameError> {
        frames.clear();
        let mut at = 0;
        loop {
            match frame::next(self.bytes(), at, limit) {
                Ok(NextFrame::Whole(range)) => {
                    at = range.end;
                    frames.push(range);
                }
                // Valid frames before an invalid one are handled first.
                Err(error) if frames.is_empty() => return Err(error),
                _ => return Ok(()),
            }
        }
    }

    /// Removes the first `count` bytes, which were handled.
    pub(super) fn consume(&mut self, count: usize) {
        self.buf.copy_within(count.min(self.filled)..self.filled, 0);
        self.filled = self.filled.saturating_sub(count);
    }

    /// At the end of a turn: returns an empty buffer and keeps one with bytes. A mostly empty
    /// buffer is replaced by a small one if `most` of those are kept already.
    pub(super) fn end_turn(&mut self, pool: &mut ReadBufferPool, most: usize) {
        if self.buf.is_empty() {
            return;
        }
        let sparse = self.filled < self.buf.len() / 2;
        if self.filled == 0 {
            self.release(pool);
        } else if sparse && !self.sparse && pool.sparse >= most {
            let exact = self.bytes().to_vec();
            let filled = self.filled;
            self.release(pool);
            pool.lent += exact.len();
            self.buf = exact;
            self.filled = filled;
        } else if sparse != self.sparse {
            pool.sparse = if sparse { pool.sparse + 1 } else { pool.sparse - 1 };
            self.sparse = sparse;
        }
    }

    /// Returns the buffer and drops its bytes.
    pub(super) fn release(&mut self, pool: &mut ReadBufferPool) {
        if std::mem::take(&mut self.sparse) {
            pool.sparse -= 1;
        }
        if std::mem::take(&mut self.exempt) {
            pool.exempt = false;
        }
        if !self.buf.is_empty() {
            pool.give_back(std::mem::take(&mut self.buf));
        }
        self.filled = 0;
    }
}
