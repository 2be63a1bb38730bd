//! What the frames of all codecs have in common: the largest window, the two ways to write an LZ4
//! header, and how a reader hands out bytes.
//!
//! Threads: constants and pure functions.
//! Not promised: `frame` reads no frame; `lz4`, `xerial` and `zstd_frame` do.

use std::io::{self, BufRead, Read};

/// The largest window that inflating will hold, in bytes.
pub const WINDOW: usize = 1 << WINDOW_LOG;
pub(super) const WINDOW_LOG: u32 = 23;

/// Which of the two ways to write a codec's frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// As the codec's definition has it.
    #[default]
    Standard,
    /// For magic 0: LZ4's header checksum as Kafka once wrote it, over the magic number too.
    Old,
}

/// The error of a frame that is damaged.
pub(crate) fn bad_frame(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Copies what `held` has from `at` on to `out`.
pub(crate) fn copy_out(mut held: &[u8], out: &mut [u8]) -> io::Result<usize> {
    let available = held.fill_buf()?.len().min(out.len());
    held.read_exact(out.split_at_mut(available).0)?;
    Ok(available)
}
