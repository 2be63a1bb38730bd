//! Column buffers that are reused. A buffer returns when the reader drops its batch, so that a
//! stream of batches touches the same few pages.
//! Threads: a buffer returns on the thread that drops its batch.
//! Memory: [`SPARE_BUFFERS`] buffers per column, none above [`KEPT_BYTES_MAX`].

use std::sync::{Arc, Weak};

use arrow_buffer::{Buffer, MutableBuffer};
use parking_lot::Mutex;

/// How many buffers are kept for the next batches.
const SPARE_BUFFERS: usize = 3;
/// The largest buffer kept, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;

type SpareBuffers = Mutex<Vec<MutableBuffer>>;

/// One buffer of the batch that is being filled, and the spare ones.
#[derive(Debug, Default)]
pub(super) struct PooledBuffer {
    /// The buffer that is being filled.
    pub buffer: MutableBuffer,
    spares: Arc<SpareBuffers>,
}

impl PooledBuffer {
    /// Lends the filled buffer and starts another.
    pub(super) fn lend(&mut self) -> Buffer {
        let next = self.spares.lock().pop();
        let next = next.unwrap_or_else(|| MutableBuffer::with_capacity(self.buffer.len()));
        let buffer = std::mem::replace(&mut self.buffer, next);
        let lent = LentBuffer { buffer, spares: Arc::downgrade(&self.spares) };
        Buffer::from(bytes::Bytes::from_owner(lent))
    }
}

/// A buffer that a reader holds.
struct LentBuffer {
    buffer: MutableBuffer,
    spares: Weak<SpareBuffers>,
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        let Some(spares) = self.spares.upgrade() else { return };
        // In a forked child the lock may stay locked for ever.
        let Some(mut spares) = spares.try_lock() else { return };
        if spares.len() < SPARE_BUFFERS && self.buffer.capacity() <= KEPT_BYTES_MAX {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            spares.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_when_its_reader_drops_it() {
        let mut pooled = PooledBuffer::default();
        pooled.buffer.extend_from_slice(&[1i32, 2, 3]);
        let lent = pooled.lend();
        let place = lent.as_ptr();
        assert_eq!(lent.typed_data::<i32>(), [1, 2, 3]);
        assert!(pooled.spares.lock().is_empty());
        drop(lent);
        assert_eq!(pooled.spares.lock().len(), 1);
        pooled.lend();
        assert_eq!(pooled.buffer.as_ptr(), place);
        assert!(pooled.buffer.is_empty());
    }

    #[test]
    fn a_lent_buffer_outlives_its_pool() {
        let mut pooled = PooledBuffer::default();
        pooled.buffer.extend_from_slice(b"abc");
        let lent = pooled.lend();
        drop(pooled);
        assert_eq!(lent.as_slice(), b"abc");
    }
}
