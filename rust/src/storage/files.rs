//! Files as the log sees them.

use std::fs::File;
use std::sync::Arc;

/// Bytes that lie in a file and go from there to a socket. Invariant: they were written before the
/// range was made, and stay as they are while it lives; the open file keeps a deleted one readable.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<File>,
    /// Where in it the bytes start.
    pub position: u64,
    /// How many they are.
    pub len: usize,
}
