//! The places where the last reads of a log ended, so that the next read finds its batch at once.
//!
//! Limits: [`READ_POSITIONS`] places a log.
//! Threads: under a lock of the log; a reader never waits for it.
//! Not promised: a place may be old; `read` checks it before use.

use std::sync::Weak;

use super::super::segment::Segment;

pub(super) const READ_POSITIONS: usize = 4;

/// Where in which segment an offset begins. A segment that was replaced is another one.
#[derive(Clone, Debug)]
pub(super) struct ReadPosition {
    pub truncations: u32,
    pub offset: i64,
    pub segment: Weak<Segment>,
    pub base: i64,
    pub position: u64,
}

/// Places that recent reads ended at, the newest first.
#[derive(Debug, Default)]
pub(super) struct ReadPositions(pub [Option<ReadPosition>; READ_POSITIONS]);
