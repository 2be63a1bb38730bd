//! Reads compressed records as a stream through a small buffer. Callers read varints, skip long
//! values, or borrow one record at a time.
//! Invariant: the buffer holds 32 KiB of output. It grows only for a record that is borrowed, as
//!     the record's bytes arrive, up to [`MAX_RECORD_BYTES`].

use std::io::Read;

use super::RecordError;
use super::compression::{Codec, Inflate, failed};
use super::cursor::{Cursor, zigzag32, zigzag64};
use super::legacy;

const BUFFER_SIZE: usize = 32 * 1024;
/// A window with fewer bytes than this is refilled.
const LOW: usize = 4 * 1024;
/// The largest record that is held in one piece, in bytes.
pub(crate) const MAX_RECORD_BYTES: usize = 32 * 1024 * 1024;

/// A position in an inflated stream of records.
pub(crate) struct RecordStream<'a> {
    source: Inflate<'a>,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    /// Bytes read or skipped so far.
    pub consumed: u64,
}

impl<'a> RecordStream<'a> {
    pub(crate) fn new(codec: Codec, input: &'a [u8]) -> Result<Self, RecordError> {
        let source = Inflate::new(codec, input).map_err(failed)?;
        let buffer = vec![0; BUFFER_SIZE];
        Ok(Self { source, buffer, at: 0, filled: 0, consumed: 0 })
    }

    /// Sets the most bytes that the rest of the stream may inflate to, instead of the budget.
    pub(crate) fn allow(&mut self, most: u64) {
        self.source.allow(most);
    }

    /// The bytes in the buffer, refilled if few are left; empty at the end.
    pub(crate) fn window(&mut self) -> Result<&[u8], RecordError> {
        if self.filled - self.at < LOW {
            self.buffer.copy_within(self.at..self.filled, 0);
            self.filled -= self.at;
            self.at = 0;
            while let Some(room) =
                self.buffer.get_mut(self.filled..).filter(|room| !room.is_empty())
            {
                match self.source.read(room).map_err(failed)? {
                    0 => break,
                    read => self.filled += read,
                }
            }
        }
        Ok(self.buffer.get(self.at..self.filled).unwrap_or_default())
    }

    /// Passes over `count` bytes of the window.
    pub(crate) fn advance(&mut self, count: usize) {
        self.at += count;
        self.consumed = self.consumed.saturating_add(count as u64);
    }

    /// Whether nothing is left.
    pub(crate) fn at_end(&mut self) -> Result<bool, RecordError> {
        if self.at == self.filled {
            self.at = 0;
            self.filled = self.source.read(&mut self.buffer).map_err(failed)?;
        }
        Ok(self.filled == 0)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, RecordError> {
        if self.at_end()? {
            return Err(RecordError::batch("records end early"));
        }
        let byte = self.buffer.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        self.consumed += 1;
        Ok(byte)
    }

    /// Takes the next `count` bytes as one slice.
    pub(crate) fn take(&mut self, count: usize) -> Result<&[u8], RecordError> {
        self.peek(count)?;
        let start = self.at;
        self.at += count;
        self.consumed = self.consumed.saturating_add(count as u64);
        Ok(self.buffer.get(start..self.at).unwrap_or_default())
    }

    /// The next `count` bytes as one slice, without consuming them.
    fn peek(&mut self, count: usize) -> Result<&[u8], RecordError> {
        if count > MAX_RECORD_BYTES {
            return Err(RecordError::TooLarge { size: count, limit: MAX_RECORD_BYTES });
        }
        while self.filled - self.at < count {
            self.buffer.copy_within(self.at..self.filled, 0);
            self.filled -= self.at;
            self.at = 0;
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.filled * 2, 0);
            }
            let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
            match self.source.read(room).map_err(failed)? {
                0 => return Err(RecordError::batch("records end early")),
                read => self.filled += read,
            }
        }
        Ok(self.buffer.get(self.at..self.at + count).unwrap_or_default())
    }

    /// Takes the next message of magic 0 or 1, including offset and size.
    pub(crate) fn take_message(&mut self) -> Result<&[u8], RecordError> {
        let mut prefix = Cursor::new(self.peek(legacy::PREFIX_SIZE)?);
        let size = prefix.int64().and_then(|_| prefix.int32()).unwrap_or(-1);
        let size =
            usize::try_from(size).map_err(|_| RecordError::batch("bad size inside a wrapper"))?;
        self.take(legacy::PREFIX_SIZE + size)
    }

    /// Reads the next record's length and takes its fields.
    pub(crate) fn take_record(&mut self) -> Result<&[u8], RecordError> {
        let length = self.varint()?;
        self.take(usize::try_from(length).map_err(|_| RecordError::batch("bad record length"))?)
    }

    pub(crate) fn skip(&mut self, mut count: u64) -> Result<(), RecordError> {
        self.consumed = self.consumed.saturating_add(count);
        while count > 0 {
            if self.at_end()? {
                return Err(RecordError::batch("records end early"));
            }
            let step = usize::try_from(count).unwrap_or(usize::MAX).min(self.filled - self.at);
            self.at += step;
            count -= step as u64;
        }
        Ok(())
    }

    pub(crate) fn varint(&mut self) -> Result<i32, RecordError> {
        let raw = self.unsigned(5)?;
        u32::try_from(raw).map(zigzag32).map_err(|_| RecordError::batch("bad varint"))
    }

    pub(crate) fn varlong(&mut self) -> Result<i64, RecordError> {
        self.unsigned(10).map(zigzag64)
    }

    /// Skips a varint length and that many bytes. Returns false for null (length -1).
    pub(crate) fn skip_nullable(&mut self) -> Result<bool, RecordError> {
        match self.varint()? {
            -1 => Ok(false),
            len => {
                let len = u64::try_from(len).map_err(|_| RecordError::batch("negative length"))?;
                self.skip(len).map(|()| true)
            }
        }
    }

    fn unsigned(&mut self, max_bytes: u32) -> Result<u64, RecordError> {
        let mut raw = 0u64;
        for index in 0..max_bytes {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * index);
            if shifted >> (7 * index) != bits {
                break;
            }
            raw |= shifted;
            if byte < 0x80 {
                return Ok(raw);
            }
        }
        Err(RecordError::batch("bad varint"))
    }
}
