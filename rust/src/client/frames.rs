//! Buffers of large frames that come back: a reader that fetches megabytes again and again touches
//! the same pages, and none is copied on its way to the records.
//! Threads: a buffer comes back on whatever thread lets go of its frame.
//! Memory: one spare buffer a connection, none above [`LARGEST`].

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// The largest buffer that is kept, in bytes.
const LARGEST: usize = 32 << 20;

/// Where the buffers of one connection come back to.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    spare: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Shelf {
    /// A buffer to receive into; its bytes are of older frames.
    pub(super) fn take(&self) -> Vec<u8> {
        self.spare.lock().take().unwrap_or_default()
    }

    /// The first `length` bytes of a buffer, which comes back when nobody holds a part of them.
    pub(super) fn lend(&self, buffer: Vec<u8>, length: usize) -> Bytes {
        assert!(length <= buffer.len(), "a frame lies in its buffer");
        Bytes::from_owner(Lent { buffer, length, shelf: Arc::downgrade(&self.spare) })
    }
}

/// A buffer in the hands of a reader.
struct Lent {
    buffer: Vec<u8>,
    length: usize,
    shelf: Weak<Mutex<Option<Vec<u8>>>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(shelf) = self.shelf.upgrade() else { return };
        // A child made by fork may find the lock taken for ever.
        let Some(mut spare) = shelf.try_lock() else { return };
        if self.buffer.capacity() <= LARGEST {
            *spare = Some(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_the_last_part_of_its_frame_goes() {
        let shelf = Shelf::default();
        let frame = shelf.lend(b"abcdef".to_vec(), 4);
        let (part, place) = (frame.slice(1..3), frame.as_ptr());
        assert_eq!((&frame[..], &part[..]), (&b"abcd"[..], &b"bc"[..]));
        drop(frame);
        assert!(shelf.take().is_empty());
        drop(part);
        let back = shelf.take();
        assert_eq!(back.as_ptr(), place);
        assert!(shelf.take().is_empty());
    }

    #[test]
    fn a_frame_outlives_its_connection() {
        let shelf = Shelf::default();
        let frame = shelf.lend(b"abc".to_vec(), 3);
        drop(shelf);
        assert_eq!(&frame[..], b"abc");
    }
}
