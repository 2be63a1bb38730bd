//! Panics in the threads of storage: each is logged, and none ends a thread in silence.
//!
//! ```text
//! thread    a panic in                         what follows
//! sync      a log's flush                      its directory goes offline; who waits is told
//! sync      a checkpoint, reserving disk       logged; the next one tries again
//! scheduler a log's retention                  logged; other logs go on, it is tried again
//! scheduler another task                       tried again; three times in a row: failed
//! cleaner   a cleaning                         that log is given up until the next start
//! future_replicas  a move                        the move ends, the log stays where it is
//! both      a swap of files                    the log directories concerned go offline
//! any       anything else                      failed
//! ```
//!
//! Failed: the broker learns it (`has_failed`) and stops, as after a panic on a reactor.
//! Threads: plain functions.
//! Not promised: that nothing is half-done in what panicked; that is why directories go offline.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `f` returns; `None`, and a line of the log, if it panicked in the course of `doing`.
pub(crate) fn caught<R>(doing: &dyn std::fmt::Display, f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(found) => Some(found),
        Err(panic) => {
            tracing::error!("a bug: {doing} panicked: {}", panic_message(&*panic));
            None
        }
    }
}

/// The words of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
