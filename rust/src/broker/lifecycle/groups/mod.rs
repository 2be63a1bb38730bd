//! The group coordinator's work on its log: what was decided is appended and answered, a partition
//! is replayed where this broker becomes its leader, offsets expire.
//!
//! Threads: the policy's, the loader's, the log scheduler's.

mod decisions;
mod expiry;
mod log;
pub(crate) mod replay;

pub use decisions::{Decided, WrongReply};
