//! The logs of groups: decisions are appended and answered, partitions are replayed when this
//! broker becomes their leader, and offsets expire.
//!
//! Threads: the policy's, the loader's, the log scheduler's.

mod decisions;
mod expiry;
mod log;
pub(crate) mod replay;

pub use decisions::{GroupOutcome, WrongReply};
