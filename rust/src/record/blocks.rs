//! Cutting a stream of writes into blocks of one size, as Xerial's and LZ4's frames want it. What
//! comes in pieces of at least a block is not copied.
//! Invariant: fewer bytes than one block are held between two writes.

use std::io;

/// The bytes of a block that is not full yet.
pub(crate) struct Blocks {
    size: usize,
    held: Vec<u8>,
}

impl Blocks {
    /// Nothing held yet; blocks will be of `size` bytes, the last one smaller.
    pub(crate) const fn new(size: usize) -> Self {
        Self { size, held: Vec::new() }
    }

    /// Takes in `input` and hands each full block to `sink`.
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

    /// Hands what is held to `sink`, as the last block.
    pub(crate) fn finish(self, sink: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if self.held.is_empty() { Ok(()) } else { sink(&self.held) }
    }
}
