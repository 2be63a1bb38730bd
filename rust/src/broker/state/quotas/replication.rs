//! Replication quotas (KIP-73): bytes a second that throttled replicas may send and fetch.
//!
//! A topic names its throttled replicas; the rates are the broker's. A follower that has everything
//! its leader committed is not throttled.
//! Threads: any; one short lock for each answer with throttled records.
//! Not promised: an exact rate. A reply may exceed it, and the next one waits.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::broker::state::quotas::bucket::{Bucket, QuotaWindows};

/// The rate of one direction and its recent use.
#[derive(Debug)]
pub struct ReplicationQuota {
    bytes_per_second: AtomicI64,
    windows: QuotaWindows,
    bucket: Bucket,
}

/// The replicas of a topic that are throttled in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThrottledReplicas {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// These: partition and broker.
    Some(Vec<(i32, i32)>),
}

/// The throttled replicas of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaThrottles {
    /// `leader.replication.throttled.replicas`.
    pub leader: ThrottledReplicas,
    /// `follower.replication.throttled.replicas`.
    pub follower: ThrottledReplicas,
}

impl ReplicationQuota {
    pub(crate) fn new(bytes_per_second: i64, windows: QuotaWindows) -> Self {
        let bytes_per_second = AtomicI64::new(bytes_per_second);
        Self { bytes_per_second, windows, bucket: Bucket::default() }
    }

    pub(crate) fn set_rate(&self, bytes_per_second: i64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Release);
    }

    /// Throttled replicas moved this many bytes.
    pub fn add(&self, bytes: usize, now_ms: i64) {
        if self.rate() < i64::MAX {
            self.bucket.add(bytes as f64, (self.windows, now_ms));
        }
    }

    /// Milliseconds until throttled replicas may move bytes again; 0: now.
    pub fn wait_ms(&self, now_ms: i64) -> i64 {
        match self.rate() {
            i64::MAX => 0,
            rate => self.bucket.wait_ms(rate.max(1) as f64, (self.windows, now_ms)),
        }
    }

    fn rate(&self) -> i64 {
        self.bytes_per_second.load(Ordering::Acquire)
    }
}

impl ReplicaThrottles {
    /// Whether the replica of a partition on a broker is throttled as a leader, and as a follower.
    pub(crate) fn of(&self, partition: i32, broker: i32) -> (bool, bool) {
        (self.leader.has(partition, broker), self.follower.has(partition, broker))
    }
}

impl ThrottledReplicas {
    /// Reads Kafka's list: `*`, or `partition:broker` pairs separated by commas. A malformed pair
    /// is ignored.
    pub fn of<'t>(list: impl IntoIterator<Item = &'t str>) -> Self {
        let mut replicas = Vec::new();
        for each in list.into_iter().map(str::trim) {
            if each == "*" {
                return Self::All;
            }
            let parsed = each.split_once(':').and_then(|(partition, broker)| {
                Some((partition.trim().parse().ok()?, broker.trim().parse().ok()?))
            });
            replicas.extend(parsed);
        }
        if replicas.is_empty() { Self::None } else { Self::Some(replicas) }
    }

    /// Whether the replica of a partition on a broker is throttled.
    pub fn has(&self, partition: i32, broker: i32) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(replicas) => replicas.contains(&(partition, broker)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_named_by_partition_and_broker_or_all_at_once() {
        let some = ThrottledReplicas::of(["0:1", " 2:101"]);
        assert!(some.has(0, 1) && some.has(2, 101) && !some.has(1, 0) && !some.has(2, 1));
        assert!(ThrottledReplicas::of(["*"]).has(7, 7));
        assert_eq!(ThrottledReplicas::of([""]), ThrottledReplicas::None);
    }

    #[test]
    fn bytes_over_the_rate_are_waited_for() {
        let quota = ReplicationQuota::new(i64::MAX, QuotaWindows::default());
        quota.add(1 << 30, 0);
        assert_eq!(quota.wait_ms(0), 0, "there is no limit");
        quota.set_rate(1000);
        assert_eq!(quota.wait_ms(0), 0);
        quota.add(20_000, 0);
        assert_eq!(quota.wait_ms(0), 10_000);
        assert_eq!(quota.wait_ms(30_000), 0);
    }
}
