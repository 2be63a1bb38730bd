//! Panics in the threads of storage: each one is logged, and no thread ends silently.
//!
//! ```text
//! thread    a panic in                         what follows
//! sync      a log's flush                      its directory goes offline; waiting appends fail
//! sync      a checkpoint, reserving disk       logged; the next one tries again
//! scheduler a log's retention                  logged; other logs continue, it is tried again
//! scheduler another task                       tried again; three times in a row: failed
//! cleaner   a cleaning                         the log is not cleaned until the next start
//! future_replicas  a move                      the move ends, the log stays where it is
//! both      a swap of files                    the log directories concerned go offline
//! any       anything else                      failed
//! ```
//!
//! Failed: the broker sees it (`has_failed`) and stops, as after a panic on a network thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f` and returns its result; `None`, and a log line that names `doing`, if it panicked.
pub(crate) fn caught<R>(doing: &dyn std::fmt::Display, f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(found) => Some(found),
        Err(panic) => {
            tracing::error!("a bug: {doing} panicked: {}", panic_message(&*panic));
            None
        }
    }
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
