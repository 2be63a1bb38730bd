//! Buffers that come back: what a reader of batches lets go of is filled again, so that a stream
//! of batches touches the same few pages.
//! Threads: a buffer comes back on whatever thread lets go of it.
//! Memory: [`SPARE`] buffers a shelf, none above [`LARGEST`]; a shelf goes with its column.

use std::sync::{Arc, Weak};

use arrow_buffer::{Buffer, MutableBuffer};
use parking_lot::Mutex;

/// Buffers kept for the next batches.
const SPARE: usize = 3;
/// The largest buffer kept, in bytes.
const LARGEST: usize = 64 << 20;

type Shelf = Mutex<Vec<MutableBuffer>>;

/// One buffer of a batch that is being filled, and where the next ones come from.
#[derive(Debug, Default)]
pub(super) struct Pooled {
    /// What is being filled.
    pub buffer: MutableBuffer,
    shelf: Arc<Shelf>,
}

impl Pooled {
    /// Lends what was filled, and begins anew.
    pub(super) fn lend(&mut self) -> Buffer {
        let next = self.shelf.lock().pop();
        let next = next.unwrap_or_else(|| MutableBuffer::with_capacity(self.buffer.len()));
        let buffer = std::mem::replace(&mut self.buffer, next);
        let lent = Lent { buffer, shelf: Arc::downgrade(&self.shelf) };
        Buffer::from(bytes::Bytes::from_owner(lent))
    }
}

/// A buffer in the hands of a reader.
struct Lent {
    buffer: MutableBuffer,
    shelf: Weak<Shelf>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(shelf) = self.shelf.upgrade() else { return };
        // A child made by fork may find the lock taken for ever.
        let Some(mut shelf) = shelf.try_lock() else { return };
        if shelf.len() < SPARE && self.buffer.capacity() <= LARGEST {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            shelf.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_reader_lets_go() {
        let mut pooled = Pooled::default();
        pooled.buffer.extend_from_slice(&[1i32, 2, 3]);
        let lent = pooled.lend();
        let place = lent.as_ptr();
        assert_eq!(lent.typed_data::<i32>(), [1, 2, 3]);
        assert!(pooled.shelf.lock().is_empty());
        drop(lent);
        assert_eq!(pooled.shelf.lock().len(), 1);
        pooled.lend();
        assert_eq!(pooled.buffer.as_ptr(), place);
        assert!(pooled.buffer.is_empty());
    }

    #[test]
    fn readers_outlive_the_pool() {
        let mut pooled = Pooled::default();
        pooled.buffer.extend_from_slice(b"abc");
        let lent = pooled.lend();
        drop(pooled);
        assert_eq!(lent.as_slice(), b"abc");
    }
}
