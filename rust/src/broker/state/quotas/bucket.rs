//! The recent use of one quota, as sums over time windows like Kafka's rates.
//!
//! Invariant: at most `windows` samples. Each begins at least `size_ms` after the one before. A
//!     sample counts until `windows * size_ms` after its beginning.
//! Rate: the sum divided by the time since the oldest sample began, but by at least `windows - 1`
//!     windows, so that a burst after a pause is averaged over them.
//! Threads: shared by the connections of all network threads; locked for one addition.
//! If two threads exceed the quota at the same moment, either one or both are throttled.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// The time windows of a rate: `quota.window.num`, `quota.window.size.seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaWindows {
    /// The number of samples that count.
    pub number: u32,
    /// The length of each.
    pub size_ms: i64,
}

impl Default for QuotaWindows {
    fn default() -> Self {
        Self { number: 11, size_ms: 1000 }
    }
}

impl QuotaWindows {
    /// After this long no use counts any more.
    pub(crate) fn whole_ms(self) -> i64 {
        self.size_ms.saturating_mul(i64::from(self.number))
    }

    /// The amount that a client without recent use may use at once.
    pub(crate) fn at_once(self, limit: f64) -> f64 {
        limit * f64::from(self.number.saturating_sub(1).max(1)) * self.size_ms as f64 / 1000.0
    }
}

/// The recent use of a quota.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    samples: Mutex<VecDeque<Sample>>,
}

#[derive(Debug)]
struct Sample {
    start_ms: i64,
    sum: f64,
}

impl Bucket {
    /// Adds a use of `amount`; a negative one takes an earlier use back.
    pub(crate) fn add(&self, amount: f64, (windows, now_ms): (QuotaWindows, i64)) {
        let mut samples = self.samples.lock();
        forget(&mut samples, windows, now_ms);
        match samples.back_mut().filter(|last| now_ms - last.start_ms < windows.size_ms) {
            Some(last) => last.sum += amount,
            None => samples.push_back(Sample { start_ms: now_ms, sum: amount }),
        }
        if samples.len() > windows.number.max(1) as usize {
            samples.pop_front();
        }
    }

    /// Milliseconds until the rate falls to `limit`; 0 if more may be used now.
    pub(crate) fn wait_ms(&self, limit: f64, (windows, now_ms): (QuotaWindows, i64)) -> i64 {
        let mut samples = self.samples.lock();
        forget(&mut samples, windows, now_ms);
        let Some(oldest) = samples.front() else { return 0 };
        let since_ms = now_ms - oldest.start_ms;
        let missing = i64::from(windows.number) - 1 - since_ms / windows.size_ms;
        let span_ms = (since_ms + missing.max(0).saturating_mul(windows.size_ms)).max(1) as f64;
        let sum: f64 = samples.iter().map(|sample| sample.sum).sum();
        // The time in which the sum is the limit's, less the time it was used in.
        let wait_ms = sum * 1000.0 / limit - span_ms;
        if wait_ms > 0.0 { wait_ms.round() as i64 } else { 0 }
    }

    /// Whether no sample counts any more.
    pub(crate) fn is_empty(&self, (windows, now_ms): (QuotaWindows, i64)) -> bool {
        let mut samples = self.samples.lock();
        forget(&mut samples, windows, now_ms);
        samples.iter().all(|sample| sample.sum <= 0.0)
    }
}

fn forget(samples: &mut VecDeque<Sample>, windows: QuotaWindows, now_ms: i64) {
    while samples.front().is_some_and(|oldest| now_ms - oldest.start_ms >= windows.whole_ms()) {
        samples.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: QuotaWindows = QuotaWindows { number: 11, size_ms: 1000 };

    #[test]
    fn a_burst_after_a_silence_is_averaged_over_ten_windows() {
        let bucket = Bucket::default();
        bucket.add(10_000.0, (WINDOWS, 5_000));
        assert_eq!(bucket.wait_ms(1000.0, (WINDOWS, 5_000)), 0);
        bucket.add(1.0, (WINDOWS, 5_000));
        assert_eq!(bucket.wait_ms(1000.0, (WINDOWS, 5_000)), 1);
        bucket.add(4_999.0, (WINDOWS, 5_000));
        assert_eq!(bucket.wait_ms(1000.0, (WINDOWS, 5_000)), 5_000);
    }

    #[test]
    fn who_waits_as_long_as_it_is_told_is_within_the_limit() {
        let bucket = Bucket::default();
        bucket.add(10_900.0, (WINDOWS, 0));
        let wait_ms = bucket.wait_ms(1000.0, (WINDOWS, 0));
        assert_eq!(wait_ms, 900);
        assert!(bucket.wait_ms(1000.0, (WINDOWS, wait_ms - 1)) > 0);
        // The span is ten windows and what is begun of the eleventh.
        assert_eq!(bucket.wait_ms(1000.0, (WINDOWS, wait_ms)), 0);
    }

    #[test]
    fn what_was_used_long_ago_does_not_count() {
        let bucket = Bucket::default();
        bucket.add(1e9, (WINDOWS, 0));
        bucket.add(100.0, (WINDOWS, 10_999));
        assert!(bucket.wait_ms(100.0, (WINDOWS, 10_999)) > 0);
        assert_eq!(bucket.wait_ms(100.0, (WINDOWS, 11_000)), 0);
        assert!(!bucket.is_empty((WINDOWS, 11_000)));
        assert!(bucket.is_empty((WINDOWS, 21_999)));
    }

    #[test]
    fn a_steady_rate_at_the_limit_never_waits() {
        let bucket = Bucket::default();
        for now_ms in (0..100_000).step_by(100) {
            bucket.add(99.0, (WINDOWS, now_ms));
            assert_eq!(bucket.wait_ms(1000.0, (WINDOWS, now_ms)), 0, "{now_ms}");
        }
        assert!(bucket.samples.lock().len() <= 11);
    }

    #[test]
    fn over_any_time_no_more_is_used_than_the_limit_and_one_burst() {
        let bucket = Bucket::default();
        let (mut now_ms, mut used) = (0, 0.0);
        while now_ms < 300_000 {
            bucket.add(700.0, (WINDOWS, now_ms));
            used += 700.0;
            now_ms += bucket.wait_ms(1000.0, (WINDOWS, now_ms)).max(1);
        }
        assert!(used <= 1000.0 * 300.0 + WINDOWS.at_once(1000.0) + 1000.0, "{used}");
        assert!(used >= 1000.0 * 300.0, "{used}");
    }

    #[test]
    fn what_is_taken_back_was_not_used() {
        let bucket = Bucket::default();
        bucket.add(20_000.0, (WINDOWS, 0));
        bucket.add(-20_000.0, (WINDOWS, 10));
        assert_eq!(bucket.wait_ms(1.0, (WINDOWS, 10)), 0);
    }

    #[test]
    fn nothing_is_allowed_by_a_limit_of_nothing() {
        let bucket = Bucket::default();
        assert_eq!(bucket.wait_ms(0.0, (WINDOWS, 0)), 0);
        bucket.add(1.0, (WINDOWS, 0));
        assert_eq!(bucket.wait_ms(0.0, (WINDOWS, 0)), i64::MAX);
    }
}
