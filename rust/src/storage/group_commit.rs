//! Group commit: decides when to sync the appends of a log that wait for the disk.
//!
//! Producers that wait for acknowledgements send again about one round trip after a sync. If the
//! first of them started a sync at once, the others would wait for the next one. So a sync waits
//! until as many appends have arrived as in the last round (those that its sync served, or that
//! came during it), but no longer than the measured round trip suggests, and at most half the
//! duration of a sync. If too few arrive in time, the wait shrinks; every [`PROBE`]th round tries
//! the longest wait.
//! Threads: guarded by a short lock of the log; the caller passes the time.
//! Not promised: a benefit for producers that do not wait for acknowledgements. The wait then
//! shrinks to zero.

use std::time::{Duration, Instant};

/// After this many syncs the longest wait is tried again.
const PROBE: u32 = 16;

/// The appends of one log that wait for the disk, and what the last rounds showed.
#[derive(Debug)]
pub(super) struct GroupCommit {
    /// Appends since the last sync began.
    waiting: u32,
    /// Appends that the running or last sync serves.
    served: u32,
    /// The number of appends expected before the next sync.
    expected: u32,
    /// When the running sync began.
    began: Option<Instant>,
    /// When the last sync ended.
    ended: Option<Instant>,
    /// The duration of a sync.
    sync: Duration,
    /// How long to wait for the expected appends.
    wait: Duration,
    syncs: u32,
}

impl GroupCommit {
    pub(super) const fn new() -> Self {
        Self {
            waiting: 0,
            served: 0,
            expected: 0,
            began: None,
            ended: None,
            sync: Duration::ZERO,
            wait: Duration::ZERO,
            syncs: 0,
        }
    }

    /// Notes `count` more waiting appends. Returns the time within which to sync, if a sync must be
    /// requested.
    pub(super) fn arrived(&mut self, count: u32, now: Instant) -> Option<Duration> {
        let first = self.waiting == 0;
        self.waiting = self.waiting.saturating_add(count);
        if self.began.is_some() {
            return None;
        }
        if self.waiting >= self.expected {
            self.learn(now);
            return Some(Duration::ZERO);
        }
        first.then(|| self.patience())
    }

    /// Notes that a sync begins; it serves all waiting appends.
    pub(super) fn begins(&mut self, now: Instant) {
        if self.waiting > 0 && self.waiting < self.expected - self.expected / 8 {
            self.wait -= self.wait / 4;
        }
        self.served = std::mem::take(&mut self.waiting);
        self.began = Some(now);
    }

    /// Call when the sync has ended. Returns the time within which to sync again, if a log waits.
    pub(super) fn ends(&mut self, now: Instant) -> Option<Duration> {
        let began = self.began.take()?;
        self.sync = now.saturating_duration_since(began);
        self.ended = Some(now);
        self.syncs = self.syncs.wrapping_add(1);
        self.expected = self.served.saturating_add(self.waiting);
        if self.syncs % PROBE == 1 {
            self.wait = self.sync / 2;
        }
        (self.waiting > 0).then(|| self.patience())
    }

    fn patience(&self) -> Duration {
        self.wait.min(self.sync / 2)
    }

    /// Learns the round trip after all expected appends have arrived.
    fn learn(&mut self, now: Instant) {
        if self.expected > 1
            && let Some(ended) = self.ended
        {
            let took = now.saturating_duration_since(ended);
            if took <= self.sync / 2 {
                self.wait = took * 2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(4);
    const ROUND_TRIP: Duration = Duration::from_micros(200);

    /// Closed-loop producers against a disk: how many syncs a thousand answers each cost.
    fn rounds(producers: u32, group: &mut GroupCommit) -> (u32, Duration) {
        let start = Instant::now();
        let mut now = start;
        let (mut syncs, mut answered) = (0, 0);
        let mut asked = group.arrived(1, now);
        let mut others = producers - 1;
        while answered < producers * 1000 {
            now += asked.take().expect("somebody waits");
            group.begins(now);
            let served = group.served;
            if others > 0 {
                assert_eq!(group.arrived(others, now + SYNC / 2), None);
            }
            now += SYNC;
            asked = group.ends(now);
            syncs += 1;
            answered += served;
            let due = asked.map(|within| now + within);
            let mut came = 0;
            for one in 0..served {
                let at = now + ROUND_TRIP * (one + 1) / served;
                if due.is_some_and(|due| due < at) && asked != Some(Duration::ZERO) {
                    break;
                }
                came += 1;
                if let Some(within) = group.arrived(1, at) {
                    asked = Some(if within.is_zero() { at - now } else { at + within - now });
                }
            }
            others = served - came;
        }
        (syncs, now - start)
    }

    #[test]
    fn one_producer_never_waits() {
        let mut group = GroupCommit::new();
        let (syncs, took) = rounds(1, &mut group);
        assert_eq!(syncs, 1000);
        assert_eq!(took, (SYNC + ROUND_TRIP) * 1000 - ROUND_TRIP);
    }

    #[test]
    fn those_that_wait_for_answers_share_each_sync() {
        for producers in [2, 8, 64] {
            let (syncs, took) = rounds(producers, &mut GroupCommit::new());
            assert!(syncs < 1020, "{syncs} syncs for 1000 rounds of {producers}");
            assert!(took < (SYNC + ROUND_TRIP) * 1050, "{took:?}");
        }
    }

    #[test]
    fn a_wait_in_vain_shrinks() {
        let (mut group, mut now) = (GroupCommit::new(), Instant::now());
        group.arrived(8, now);
        group.begins(now);
        for _ in 0..15 {
            now += SYNC;
            group.ends(now);
            now += group.arrived(1, now).unwrap();
            group.expected = 8;
            group.begins(now);
        }
        assert!(group.wait < Duration::from_micros(100), "{:?}", group.wait);
    }

    #[test]
    fn who_comes_while_a_sync_runs_asks_for_none() {
        let mut group = GroupCommit::new();
        let now = Instant::now();
        assert_eq!(group.arrived(1, now), Some(Duration::ZERO));
        group.begins(now);
        assert_eq!(group.arrived(5, now), None);
        assert!(group.ends(now + SYNC).is_some());
    }
}
