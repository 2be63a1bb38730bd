//! Shared parts of all codecs' frames: the largest window, the two variants of the LZ4 header, and
//! the copy from a decoder's buffer.
//!
//! Threads: constants and pure functions.
//! The frames themselves are read in `lz4`, `xerial` and `zstd_frame`.

use std::io::{self, BufRead, Read};

/// The largest window that a decoder accepts, in bytes.
pub const WINDOW: usize = 1 << WINDOW_LOG;
pub(super) const WINDOW_LOG: u32 = 23;

/// The variant of a codec's frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// As the codec's specification says.
    #[default]
    Standard,
    /// For magic 0: old Kafka versions included the magic number in LZ4's header checksum.
    Old,
}

/// The error of a frame that is damaged.
pub(crate) fn bad_frame(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Copies the start of `held` to `out`, as much as fits. Returns the number of bytes.
pub(crate) fn copy_out(mut held: &[u8], out: &mut [u8]) -> io::Result<usize> {
    let available = held.fill_buf()?.len().min(out.len());
    held.read_exact(out.split_at_mut(available).0)?;
    Ok(available)
}
