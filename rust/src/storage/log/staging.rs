//! Memory for staged batches. It belongs to the thread that appends, so that a log which is not
//! appended to holds none.
//!
//! Limits: a thread keeps [`BUFFERS`] buffers of at most [`BUFFER`] bytes.
//! Threads: a buffer may be taken by one thread and given back by another.

use std::cell::RefCell;

/// The most bytes of a buffer that is kept.
const BUFFER: usize = 64 << 10;
/// The most buffers that a thread keeps.
const BUFFERS: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer, of the thread's if it has one.
pub(super) fn take() -> Vec<u8> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Takes the memory of `buffer` back.
pub(super) fn give_back(buffer: &mut Vec<u8>) {
    let mut buffer = std::mem::take(buffer);
    if buffer.capacity() == 0 {
        return;
    }
    buffer.clear();
    buffer.shrink_to(BUFFER);
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < BUFFERS {
            spare.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_few_small_buffers() {
        let mut taken: Vec<_> = (0..40).map(|_| take()).collect();
        taken.iter_mut().for_each(|buffer| buffer.resize(200 << 10, 7));
        taken.iter_mut().for_each(give_back);
        assert!(taken.iter().all(|buffer| buffer.capacity() == 0));
        let kept: Vec<_> = (0..40).map(|_| take()).filter(|it| it.capacity() > 0).collect();
        assert_eq!(kept.len(), BUFFERS);
        assert!(kept.iter().all(|it| it.is_empty() && it.capacity() <= 2 * BUFFER));
    }
}
