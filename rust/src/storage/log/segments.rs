//! The segments of a log, as a list that readers share.
//!
//! Base offsets lie beside each other: a search among a thousand segments would otherwise touch the
//! memory of ten of them before it comes to its own.
//! Invariant: base offsets rise, and `bases[i] == list[i].base_offset`.
//! Threads: a list never changes; another one takes its place.

use std::ops::Deref;
use std::sync::Arc;

use super::super::segment::Segment;

/// See the file's head.
#[derive(Default)]
pub(super) struct Segments {
    bases: Box<[i64]>,
    list: Vec<Arc<Segment>>,
}

impl Segments {
    /// The last one that begins below `offset`.
    pub(super) fn below(&self, offset: i64) -> Option<usize> {
        self.bases.partition_point(|base| *base < offset).checked_sub(1)
    }

    /// The last one that begins at `offset` or below; the first, where none does.
    pub(super) fn holding(&self, offset: i64) -> usize {
        self.bases.partition_point(|base| *base <= offset).saturating_sub(1)
    }

    /// The one that begins at `base`.
    pub(super) fn beginning_at(&self, base: i64) -> Option<usize> {
        self.bases.binary_search(&base).ok()
    }
}

impl From<Vec<Arc<Segment>>> for Segments {
    fn from(list: Vec<Arc<Segment>>) -> Self {
        Self { bases: list.iter().map(|segment| segment.base_offset).collect(), list }
    }
}

impl Deref for Segments {
    type Target = [Arc<Segment>];

    fn deref(&self) -> &[Arc<Segment>] {
        &self.list
    }
}
