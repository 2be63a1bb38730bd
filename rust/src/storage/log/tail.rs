//! The end of a log as readers see it: offset, segment and position that belong together.
//! A seqlock: one writer at a time (the partition's mutex), any number of readers, none waits.
//! Invariant: what [`Tail::load`] returns was stored by one [`Tail::store`].

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// A log's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TailPosition {
    /// One past the last offset.
    pub end: i64,
    /// Base offset of the active segment.
    pub base: i64,
    /// Bytes of the active segment.
    pub position: u64,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Tail {
    version: AtomicU64,
    end: AtomicI64,
    base: AtomicI64,
    position: AtomicU64,
}

impl Tail {
    pub(super) fn load(&self) -> TailPosition {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let found = TailPosition {
                end: self.end.load(Ordering::Relaxed),
                base: self.base.load(Ordering::Relaxed),
                position: self.position.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.version.load(Ordering::Relaxed) == before {
                return found;
            }
            std::hint::spin_loop();
        }
    }

    /// Only under the partition's mutex.
    pub(super) fn store(&self, new: TailPosition) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.end.store(new.end, Ordering::Relaxed);
        self.base.store(new.base, Ordering::Relaxed);
        self.position.store(new.position, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn readers_never_see_halves_of_two_ends() {
        let tail = Arc::new(Tail::default());
        let writer = Arc::clone(&tail);
        let thread = std::thread::spawn(move || {
            for n in 1..200_000 {
                writer.store(TailPosition { end: n, base: n, position: n.unsigned_abs() });
            }
        });
        while !thread.is_finished() {
            let seen = tail.load();
            assert_eq!((seen.end, seen.end.unsigned_abs()), (seen.base, seen.position));
        }
        thread.join().unwrap();
    }
}
