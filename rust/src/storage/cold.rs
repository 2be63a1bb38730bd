//! Reads that must not wait for the disk, for threads that serve many connections.
//!
//! Inside [`without_waiting`] a read of bytes outside the page cache fails with `WouldBlock` and
//! changes nothing; the caller repeats all of it on another thread. So does the opening of a
//! segment for which another one must be synced and closed first. Elsewhere both wait as usual.
//! If the system cannot tell (no `RWF_NOWAIT`), reads wait too.
//! Invariant: such a failure is not an error of the disk, and takes no directory offline.
//! Threads: the mode belongs to the thread.
//! Not promised: that another opening does not wait, or that cached bytes stay in the cache until
//!     they are sent.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::sys;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Resets the thread's mode, even after a panic.
struct WaitModeGuard(bool);

impl Drop for WaitModeGuard {
    fn drop(&mut self) {
        MAY_WAIT.set(self.0);
    }
}

/// Runs `f`. Its reads fail if they would wait for the disk.
pub fn without_waiting<R>(f: impl FnOnce() -> R) -> R {
    let _before = WaitModeGuard(MAY_WAIT.replace(false));
    f()
}

/// Whether this thread may wait for the disk now.
pub(crate) fn may_wait() -> bool {
    MAY_WAIT.get()
}

/// Reads into `buf` from `position` on. Returns the number of bytes; 0 at the file's end.
pub(crate) fn read_at(file: &File, buf: &mut [u8], position: u64) -> io::Result<usize> {
    if may_wait() {
        return file.read_at(buf, position);
    }
    match sys::read_cached(file, buf, position) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => file.read_at(buf, position),
        other => other,
    }
}

/// Reads all of `buf` from `position` on.
pub(crate) fn read_exact_at(file: &File, mut buf: &mut [u8], mut position: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match read_at(file, buf, position) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buf = buf.get_mut(count..).unwrap_or_default();
                position += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
