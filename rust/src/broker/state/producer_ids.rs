//! The producer ids that this broker may assign, and the requests that wait for more.
//!
//! Threads: any; a short lock.

use std::ops::Range;

use parking_lot::Mutex;

use crate::broker::state::waking::DelayedId;

/// The ids left, and the requests that wait for more.
#[derive(Debug, Default)]
pub(crate) struct ProducerIds {
    pub(crate) state: Mutex<ProducerIdBlock>,
}

#[derive(Debug, Default)]
pub(crate) struct ProducerIdBlock {
    pub(crate) left: Range<i64>,
    /// The smallest id that is above all ids in the logs.
    pub(crate) floor: i64,
    /// Blocks since the last one that had an id above the floor.
    pub(crate) useless: u32,
    pub(crate) asked: bool,
    /// The error of the last answer, for the requests that waited for it.
    pub(crate) error_code: i16,
    pub(crate) waiting: Vec<(usize, DelayedId)>,
}

impl ProducerIds {
    /// Only ids above `highest` are assigned from now on.
    pub(crate) fn begin_above(&self, highest: i64) {
        let mut block = self.state.lock();
        block.floor = block.floor.max(highest.saturating_add(1));
        let first = block.left.start.max(block.floor).min(block.left.end);
        block.left.start = first;
    }

    /// The lowest id that may be assigned.
    pub(crate) fn floor(&self) -> i64 {
        self.state.lock().floor
    }
}
