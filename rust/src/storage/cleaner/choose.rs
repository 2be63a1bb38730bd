//! Selects the log to clean, and the part of it: the rules of `cleanup.policy=compact`.
//!
//! A log is *clean* up to its checkpoint and *dirty* from there to the first offset that may not
//! be cleaned: the active segment, anything at or above the last stable offset, and segments with
//! a record younger than `min.compaction.lag.ms`. It is due when dirty bytes are more than
//! `min.cleanable.dirty.ratio` of both, or a dirty segment is older than `max.compaction.lag.ms`.
//! Invariant: first_dirty <= first_uncleanable, which is the base offset of a segment.
//! Threads: pure functions.

use super::super::config::LogConfig;
use super::super::errors::StorageError;

/// The properties of a segment that the rules use. Times are read only if a lag needs them.
pub(in super::super) trait SegmentInfo {
    fn base_offset(&self) -> i64;
    fn size(&self) -> u64;
    /// The largest timestamp of its records.
    fn largest_timestamp(&self) -> Result<i64, StorageError>;
    /// The largest timestamp of its first batch; 0 without any.
    fn first_timestamp(&self) -> Result<i64, StorageError>;
}

/// The bounds of a log for cleaning.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct CleanableRange {
    /// The cleaner's checkpoint.
    pub cleaned: Option<i64>,
    pub log_start: i64,
    pub log_end: i64,
    pub last_stable: i64,
}

/// A log that could be cleaned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirtyRange {
    /// The first dirty offset.
    pub first_dirty: i64,
    /// The first offset that may not be cleaned.
    pub first_uncleanable: i64,
    /// Bytes of segments that begin below the dirty part.
    pub clean_bytes: u64,
    /// Bytes of segments in the dirty part.
    pub dirty_bytes: u64,
    /// Whether it has waited for `max.compaction.lag.ms`.
    pub overdue: bool,
}

impl DirtyRange {
    /// The dirty bytes as a part of all bytes that a cleaning would read.
    pub fn ratio(&self) -> f64 {
        let all = self.clean_bytes + self.dirty_bytes;
        if all == 0 { 0.0 } else { self.dirty_bytes as f64 / all as f64 }
    }

    /// Whether the log is due to be cleaned by its settings.
    pub fn is_due(&self, config: &LogConfig) -> bool {
        let dirty = self.dirty_bytes > 0;
        dirty && (self.overdue || self.ratio() > config.min_cleanable_dirty_ratio)
    }
}

/// The dirty range of a log. `segments`: all, the active one last.
pub(in super::super) fn dirty<S: SegmentInfo>(
    segments: &[S],
    bounds: &CleanableRange,
    config: &LogConfig,
    now_ms: i64,
) -> Result<Option<DirtyRange>, StorageError> {
    let Some((active, sealed)) = segments.split_last() else { return Ok(None) };
    let range = bounds.log_start..=bounds.log_end;
    let known = bounds.cleaned.filter(|offset| range.contains(offset));
    let first_dirty = known.unwrap_or(bounds.log_start);
    let holder = |offset| {
        sealed.partition_point(|segment: &S| segment.base_offset() <= offset).saturating_sub(1)
    };
    let dirty = sealed.get(holder(first_dirty)..).unwrap_or_default();
    let mut limit = bounds.last_stable.min(active.base_offset());
    if config.min_compaction_lag_ms > 0 {
        let before = now_ms.saturating_sub(config.min_compaction_lag_ms);
        for segment in dirty {
            if segment.largest_timestamp()? > before {
                limit = limit.min(segment.base_offset());
                break;
            }
        }
    }
    let limit = limit.max(first_dirty);
    let uncleanable = if limit >= active.base_offset() { None } else { sealed.get(holder(limit)) };
    let first_uncleanable = uncleanable.unwrap_or(active).base_offset().max(first_dirty);
    let mut overdue = false;
    if config.max_compaction_lag_ms < i64::MAX {
        let before = now_ms.saturating_sub(config.max_compaction_lag_ms.max(0));
        for segment in dirty {
            let first = segment.first_timestamp()?;
            overdue |= first > 0 && first < before;
        }
    }
    let bytes = |segments: &[S], below: i64| -> u64 {
        segments.iter().take_while(|s| s.base_offset() < below).map(S::size).sum()
    };
    Ok(Some(DirtyRange {
        first_dirty,
        first_uncleanable,
        clean_bytes: bytes(sealed, first_dirty),
        dirty_bytes: if first_dirty < first_uncleanable {
            bytes(dirty, first_uncleanable)
        } else {
            0
        },
        overdue,
    }))
}

/// How many of the segments go into the next cleaned one: at least one, and not more than
/// `segment.bytes`, `segment.index.bytes` and 2^31 offsets allow. `sizes`: for each segment its
/// base offset, bytes, and bytes of its larger index; `end`: what the last one ends before.
pub(super) fn group(sizes: &[(i64, u64, u64)], end: i64, config: &LogConfig) -> usize {
    let Some((&(base, mut bytes, mut index_bytes), rest)) = sizes.split_first() else { return 0 };
    let mut count = 1;
    for (at, &(_, size, index_size)) in rest.iter().enumerate() {
        let last = rest.get(at + 1).map_or(end, |next| next.0) - 1;
        let far = size > 0 && last - base > i64::from(i32::MAX);
        bytes += size;
        index_bytes += index_size;
        if bytes > config.segment_bytes || index_bytes > config.segment_index_bytes || far {
            break;
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct FakeSegment(i64, u64, i64);

    impl SegmentInfo for FakeSegment {
        fn base_offset(&self) -> i64 {
            self.0
        }
        fn size(&self) -> u64 {
            self.1
        }
        fn largest_timestamp(&self) -> Result<i64, StorageError> {
            Ok(self.2)
        }
        fn first_timestamp(&self) -> Result<i64, StorageError> {
            Ok(self.2 - 10)
        }
    }

    const LOG: [FakeSegment; 4] = [
        FakeSegment(0, 100, 1000),
        FakeSegment(10, 200, 2000),
        FakeSegment(20, 300, 3000),
        FakeSegment(30, 9, 0),
    ];

    fn look(cleaned: Option<i64>, last_stable: i64, change: impl Fn(&mut LogConfig)) -> DirtyRange {
        let mut config = LogConfig::default();
        change(&mut config);
        let bounds = CleanableRange { cleaned, log_start: 0, log_end: 40, last_stable };
        dirty(&LOG, &bounds, &config, 5000).unwrap().unwrap()
    }

    #[test]
    fn dirty_is_what_lies_between_the_checkpoint_and_the_active_segment() {
        let all = look(None, 40, |_| {});
        assert_eq!((all.first_dirty, all.first_uncleanable), (0, 30));
        assert_eq!((all.clean_bytes, all.dirty_bytes, all.ratio()), (0, 600, 1.0));
        let rest = look(Some(20), 40, |_| {});
        assert_eq!((rest.clean_bytes, rest.dirty_bytes, rest.ratio()), (300, 300, 0.5));
        assert!(!rest.is_due(&LogConfig::default()));
        assert!(
            rest.is_due(&LogConfig { min_cleanable_dirty_ratio: 0.49, ..LogConfig::default() })
        );
        assert_eq!(look(Some(41), 40, |_| {}), all);
        let none = look(Some(30), 40, |c| c.min_cleanable_dirty_ratio = 0.0);
        assert_eq!((none.first_uncleanable, none.dirty_bytes), (30, 0));
        assert!(!none.is_due(&LogConfig::default()));
    }

    #[test]
    fn nothing_from_the_first_unstable_offset_on_is_cleaned() {
        assert_eq!(look(None, 29, |_| {}).first_uncleanable, 20);
        assert_eq!(look(None, 30, |_| {}).first_uncleanable, 30);
        let stuck = look(Some(20), 12, |_| {});
        assert_eq!((stuck.first_dirty, stuck.first_uncleanable, stuck.dirty_bytes), (20, 20, 0));
    }

    #[test]
    fn lags_hold_back_and_hurry_on() {
        assert_eq!(look(None, 40, |c| c.min_compaction_lag_ms = 3500).first_uncleanable, 10);
        assert!(!look(None, 40, |c| c.max_compaction_lag_ms = 4500).overdue);
        assert!(look(None, 40, |c| c.max_compaction_lag_ms = 4000).overdue);
    }

    #[test]
    fn groups_are_no_larger_than_a_segment_may_be() {
        let config = LogConfig { segment_bytes: 250, ..LogConfig::default() };
        let sizes = [(0, 100, 8), (10, 150, 8), (20, 1, 8)];
        assert_eq!(group(&sizes, 30, &config), 2);
        assert_eq!(group(&sizes[1..], 30, &config), 2);
        assert_eq!(group(&[(0, 900, 8), (10, 1, 0)], 30, &config), 1);
        let indexed = LogConfig { segment_index_bytes: 16, ..LogConfig::default() };
        assert_eq!(group(&sizes, 30, &indexed), 2);
        let far = [(0, 10, 0), (1 << 31, 10, 0)];
        assert_eq!(group(&far, (1 << 31) + 5, &config), 1);
        assert_eq!(group(&[far[0], (1 << 31, 0, 0)], (1 << 31) + 5, &config), 2);
    }
}
