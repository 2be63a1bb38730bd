//! Receive buffers that are reused. A reader that fetches megabytes again and again touches the
//! same pages, and no frame is copied on its way to the records.
//! Threads: a buffer returns on the thread that drops its frame.
//! Memory: one spare buffer per connection, none above [`KEPT_BYTES_MAX`].

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// The largest buffer that is kept.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// The spare buffer of one connection.
#[derive(Debug, Default)]
pub(super) struct FrameBuffers {
    spare: Arc<Mutex<Option<Vec<u8>>>>,
}

impl FrameBuffers {
    /// A buffer to receive into. It still has bytes of older frames.
    pub(super) fn take(&self) -> Vec<u8> {
        self.spare.lock().take().unwrap_or_default()
    }

    /// The first `length` bytes of a buffer. The buffer returns when the last part of them is
    /// dropped.
    pub(super) fn lend(&self, buffer: Vec<u8>, length: usize) -> Bytes {
        assert!(length <= buffer.len(), "a frame lies in its buffer");
        Bytes::from_owner(LentFrame { buffer, length, buffers: Arc::downgrade(&self.spare) })
    }
}

/// A buffer that a reader holds.
struct LentFrame {
    buffer: Vec<u8>,
    length: usize,
    buffers: Weak<Mutex<Option<Vec<u8>>>>,
}

impl AsRef<[u8]> for LentFrame {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

impl Drop for LentFrame {
    fn drop(&mut self) {
        let Some(buffers) = self.buffers.upgrade() else { return };
        // In a forked child the lock may stay locked for ever.
        let Some(mut spare) = buffers.try_lock() else { return };
        if self.buffer.capacity() <= KEPT_BYTES_MAX {
            *spare = Some(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_when_the_last_part_of_its_frame_is_dropped() {
        let buffers = FrameBuffers::default();
        let frame = buffers.lend(b"abcdef".to_vec(), 4);
        let (part, place) = (frame.slice(1..3), frame.as_ptr());
        assert_eq!((&frame[..], &part[..]), (&b"abcd"[..], &b"bc"[..]));
        drop(frame);
        assert!(buffers.take().is_empty());
        drop(part);
        let back = buffers.take();
        assert_eq!(back.as_ptr(), place);
        assert!(buffers.take().is_empty());
    }

    #[test]
    fn a_frame_outlives_its_connection() {
        let buffers = FrameBuffers::default();
        let frame = buffers.lend(b"abc".to_vec(), 3);
        drop(buffers);
        assert_eq!(&frame[..], b"abc");
    }
}
