//! Cuts a stream of writes into blocks of one size, for the frames of Xerial and LZ4. Input of at
//! least one block is not copied.
//! Invariant: between two writes less than one block is buffered.

use std::io;

/// Cuts writes into blocks; holds the bytes of the incomplete block.
pub(crate) struct BlockCutter {
    size: usize,
    held: Vec<u8>,
}

impl BlockCutter {
    /// An empty cutter for blocks of `size` bytes; the last block may be smaller.
    pub(crate) const fn new(size: usize) -> Self {
        Self { size, held: Vec::new() }
    }

    /// Adds `input` and passes each full block to `sink`.
    pub(crate) fn write(
        &mut self,
        mut input: &[u8],
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        while !input.is_empty() {
            let whole = self.held.is_empty() && input.len() >= self.size;
            let (piece, rest) = input.split_at(input.len().min(self.size - self.held.len()));
            input = rest;
            if whole {
                sink(piece)?;
                continue;
            }
            self.held.extend_from_slice(piece);
            if self.held.len() == self.size {
                sink(&self.held)?;
                self.held.clear();
            }
        }
        Ok(())
    }

    /// Passes the remaining bytes to `sink` as the last block.
    pub(crate) fn finish(self, sink: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if self.held.is_empty() { Ok(()) } else { sink(&self.held) }
    }
}
