//! All buckets, by quota entity.
//!
//! Invariant: a bucket that a connection holds stays under its name, so that all clients of a quota
//!     share it. Other buckets are removed when their samples no longer count, and all of them when
//!     names and buckets exceed [`MOST_BYTES`]. So a client that invents millions of client ids
//!     cannot make the broker use more memory.
//! Threads: any, under one lock. A connection calls it once for each client id.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::broker::state::quotas::bucket::{Bucket, QuotaWindows};
use crate::broker::state::quotas::{ClientQuota, QuotaType};

/// Names and buckets that no connection holds take at most this.
const MOST_BYTES: usize = 4 << 20;
/// After this many bytes the buckets are searched for unused ones.
const LOOK_BYTES: usize = 64 << 10;
/// The memory of a bucket with one or two samples, without its name.
const COST: usize = 256;

/// The quota entity of a bucket.
#[derive(Debug, PartialEq, Eq, Hash)]
enum BucketOwner {
    Client { kind: QuotaType, user: Option<Box<str>>, client_id: Option<Box<str>> },
    Address(IpAddr),
}

/// The buckets of a broker.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    state: Mutex<BucketState>,
}

#[derive(Debug, Default)]
struct BucketState {
    all: HashMap<BucketOwner, Arc<Bucket>>,
    bytes: usize,
    /// The size at which unused buckets are searched for again.
    look_at: usize,
}

impl Buckets {
    /// The bucket of `user` and `client_id` under `allowance`.
    pub(crate) fn of_client(
        &self,
        (kind, allowance): (QuotaType, ClientQuota),
        (user, client_id): (&str, &str),
        now: (QuotaWindows, i64),
    ) -> Arc<Bucket> {
        let part = |is_shared_by: bool, name: &str| is_shared_by.then(|| name.into());
        let user = part(allowance.by_user, user);
        let client_id = part(allowance.by_client_id, client_id);
        self.of(BucketOwner::Client { kind, user, client_id }, now)
    }

    /// The bucket of connections from `ip`.
    pub(crate) fn of_address(&self, ip: IpAddr, now: (QuotaWindows, i64)) -> Arc<Bucket> {
        self.of(BucketOwner::Address(ip.to_canonical()), now)
    }

    fn of(&self, owner: BucketOwner, now: (QuotaWindows, i64)) -> Arc<Bucket> {
        let mut state = self.state.lock();
        if let Some(bucket) = state.all.get(&owner) {
            return Arc::clone(bucket);
        }
        if state.bytes >= state.look_at {
            state.remove_unused(now);
        }
        state.bytes += owner.cost();
        Arc::clone(state.all.entry(owner).or_default())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.state.lock().all.len()
    }
}

impl BucketState {
    fn remove_unused(&mut self, now: (QuotaWindows, i64)) {
        let is_held = |bucket: &Arc<Bucket>| Arc::strong_count(bucket) > 1;
        self.all.retain(|_, bucket| is_held(bucket) || !bucket.is_empty(now));
        self.count();
        if self.bytes >= MOST_BYTES {
            self.all.retain(|_, bucket| is_held(bucket));
            self.count();
        }
        let next = (2 * self.bytes).min(MOST_BYTES);
        self.look_at = next.max(self.bytes + LOOK_BYTES);
    }

    fn count(&mut self) {
        self.bytes = self.all.keys().map(BucketOwner::cost).sum();
    }
}

impl BucketOwner {
    fn cost(&self) -> usize {
        let names = match self {
            Self::Client { user, client_id, .. } => {
                [user, client_id].into_iter().flatten().map(|name| name.len()).sum()
            }
            Self::Address(_) => 0,
        };
        COST + names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: QuotaWindows = QuotaWindows { number: 11, size_ms: 1000 };

    fn allowance(by_user: bool, by_client_id: bool) -> (QuotaType, ClientQuota) {
        (QuotaType::Produce, ClientQuota { limit: 1.0, by_user, by_client_id })
    }

    #[test]
    fn a_bucket_is_shared_as_its_level_says() {
        let buckets = Buckets::default();
        let now = (WINDOWS, 0);
        let same = |kind: (QuotaType, ClientQuota), one, other| {
            let (one, other) =
                (buckets.of_client(kind, one, now), buckets.of_client(kind, other, now));
            Arc::ptr_eq(&one, &other)
        };
        assert!(same(allowance(true, false), ("ann", "app"), ("ann", "web")));
        assert!(!same(allowance(true, false), ("ann", "app"), ("bob", "app")));
        assert!(same(allowance(false, true), ("ann", "app"), ("bob", "app")));
        assert!(!same(allowance(false, true), ("ann", "app"), ("ann", "web")));
        assert!(!same(allowance(true, true), ("ann", "app"), ("ann", "web")));
        assert!(!same(allowance(true, true), ("ann", "app"), ("bob", "app")));
        let fetch = (QuotaType::Fetch, allowance(true, true).1);
        let produced = buckets.of_client(allowance(true, true), ("ann", "app"), now);
        assert!(!Arc::ptr_eq(&produced, &buckets.of_client(fetch, ("ann", "app"), now)));
    }

    #[test]
    fn a_million_client_ids_stay_bounded() {
        let buckets = Buckets::default();
        let held = buckets.of_client(allowance(false, true), ("ann", "held"), (WINDOWS, 0));
        held.add(5.0, (WINDOWS, 0));
        for number in 0..1_000_000 {
            let now = (WINDOWS, number / 100_000);
            let name = format!("client-{number}");
            buckets.of_client(allowance(false, true), ("ann", &name), now).add(1.0, now);
            assert!(number % 1000 != 0 || buckets.len() <= MOST_BYTES / COST);
        }
        let now = (WINDOWS, 10);
        let again = buckets.of_client(allowance(false, true), ("ann", "held"), now);
        assert!(Arc::ptr_eq(&held, &again), "what a connection holds stays");
        let long = "x".repeat(30_000);
        for number in 0..1000 {
            buckets.of_client(allowance(false, true), ("ann", &format!("{long}{number}")), now);
        }
        assert!(buckets.state.lock().bytes <= MOST_BYTES + COST + long.len());
    }

    #[test]
    fn clients_that_went_quiet_are_dropped() {
        let buckets = Buckets::default();
        for number in 0..1000 {
            let name = format!("client-{number}");
            let bucket = buckets.of_client(allowance(false, true), ("ann", &name), (WINDOWS, 0));
            bucket.add(1.0, (WINDOWS, 0));
        }
        assert_eq!(buckets.len(), 1000);
        let later = (WINDOWS, 11_000);
        for number in 0..1000 {
            buckets.of_client(allowance(false, true), ("ann", &format!("new-{number}")), later);
        }
        assert!(buckets.len() < 1500, "{}", buckets.len());
    }
}
