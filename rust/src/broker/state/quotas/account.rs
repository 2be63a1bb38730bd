//! The quota account of a connection: its quotas and the buckets that they use.
//!
//! While there are quotas, the first request of a client id opens an account; a new table opens it
//! again. The buckets keep the use. A throttled client receives its replies at once, with
//! `throttle_time_ms`, and its connection is not read for that time (KIP-219).
//! Threads: the connection's network thread. A delayed Fetch keeps the account that it arrived
//!     with.
//! The time for sending replies is not counted.

use std::net::IpAddr;
use std::sync::Arc;

use crate::broker::state::quotas::bucket::{Bucket, QuotaWindows};
use crate::broker::state::quotas::buckets::Buckets;
use crate::broker::state::quotas::{QuotaTable, QuotaType};

/// The quota state of a broker: all buckets.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    windows: QuotaWindows,
    buckets: Buckets,
}

/// The quotas of a client.
#[derive(Debug)]
pub(crate) struct QuotaAccount {
    table: Arc<QuotaTable>,
    client_id: Box<str>,
    windows: QuotaWindows,
    produce: Option<AccountQuota>,
    fetch: Option<AccountQuota>,
    request: Option<AccountQuota>,
}

/// A quota and its bucket.
#[derive(Debug)]
struct AccountQuota {
    limit: f64,
    bucket: Arc<Bucket>,
}

/// The effect of quotas on a reply to Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchThrottle {
    /// The throttle time.
    pub(crate) throttle_time_ms: i32,
    /// The reply is sent without records.
    pub(crate) is_empty: bool,
}

impl Quotas {
    pub(crate) fn new(windows: QuotaWindows) -> Self {
        Self { windows, buckets: Buckets::default() }
    }

    /// Opens the account of a user's client.
    pub(crate) fn account(
        &self,
        table: &Arc<QuotaTable>,
        (user, client_id): (&str, &str),
        now_ms: i64,
    ) -> QuotaAccount {
        let now = (self.windows, now_ms);
        let who = (user, client_id);
        let share = |kind| {
            let allowance = table.allowance(kind, who)?;
            let bucket = self.buckets.of_client((kind, allowance), who, now);
            Some(AccountQuota { limit: allowance.limit, bucket })
        };
        QuotaAccount {
            table: Arc::clone(table),
            client_id: client_id.into(),
            windows: self.windows,
            produce: share(QuotaType::Produce),
            fetch: share(QuotaType::Fetch),
            request: share(QuotaType::Request),
        }
    }

    /// Counts a new connection from `ip`. `Some`: it exceeds the quota, is not counted, and must be
    /// closed after this many milliseconds.
    pub(crate) fn refuses(&self, table: &QuotaTable, ip: IpAddr, now_ms: i64) -> Option<i64> {
        let limit = table.connection_rate(ip)?;
        let now = (self.windows, now_ms);
        let bucket = self.buckets.of_address(ip, now);
        bucket.add(1.0, now);
        let wait_ms = bucket.wait_ms(limit, now).min(self.windows.size_ms);
        (wait_ms > 0).then(|| {
            bucket.add(-1.0, now);
            wait_ms
        })
    }
}

impl QuotaAccount {
    /// Whether this is the account of `client_id` by `table`.
    #[inline]
    pub(crate) fn is_of(&self, table: &Arc<QuotaTable>, client_id: &str) -> bool {
        Arc::ptr_eq(&self.table, table) && *self.client_id == *client_id
    }

    /// Counts a Produce request of `bytes`. Returns the throttle time.
    pub(crate) fn produced(&self, bytes: usize, now_ms: i64) -> i32 {
        let Some(AccountQuota { limit, bucket }) = &self.produce else { return 0 };
        let now = (self.windows, now_ms);
        bucket.add(bytes as f64, now);
        millis(bucket.wait_ms(*limit, now))
    }

    /// The throttle time for the time that its requests took; at most one window.
    pub(crate) fn requests_wait_ms(&self, now_ms: i64) -> i32 {
        let Some(AccountQuota { limit, bucket }) = &self.request else { return 0 };
        millis(bucket.wait_ms(*limit, (self.windows, now_ms)).min(self.windows.size_ms))
    }

    /// Whether the time that its requests take is counted.
    pub(crate) fn is_timed(&self) -> bool {
        self.request.is_some()
    }

    /// Counts time that its requests took.
    pub(crate) fn took(&self, nanos: i64, now_ms: i64) {
        if let Some(AccountQuota { bucket, .. }) = &self.request {
            // In percent of a second.
            bucket.add(nanos as f64 * 100.0 / 1e9, (self.windows, now_ms));
        }
    }

    /// The largest reply to Fetch. A larger one could never be sent within the quota.
    pub(crate) fn fetch_max_bytes(&self) -> usize {
        let at_once = |share: &AccountQuota| self.windows.at_once(share.limit) as usize;
        self.fetch.as_ref().map_or(usize::MAX, at_once)
    }

    /// Whether bytes that it reads are counted.
    pub(crate) fn reads_are_counted(&self) -> bool {
        self.fetch.is_some()
    }

    /// Counts a reply to Fetch of `bytes`. A reply over the limit is sent empty and not counted. A
    /// client that has read nothing lately gets it all the same and waits afterwards, because a
    /// single batch may exceed the limit.
    pub(crate) fn fetched(&self, bytes: usize, now_ms: i64) -> FetchThrottle {
        let requests = self.requests_wait_ms(now_ms);
        let mut throttle_time_ms = requests;
        let mut is_empty = requests > 0;
        if let Some(AccountQuota { limit, bucket }) = &self.fetch {
            let now = (self.windows, now_ms);
            let is_first = bucket.is_empty(now);
            bucket.add(bytes as f64, now);
            let wait_ms = millis(bucket.wait_ms(*limit, now));
            throttle_time_ms = wait_ms.max(requests);
            is_empty |= wait_ms > 0 && !is_first;
            if is_empty {
                bucket.add(-(bytes as f64), now);
            }
        }
        FetchThrottle { throttle_time_ms, is_empty }
    }
}

fn millis(wait_ms: i64) -> i32 {
    i32::try_from(wait_ms).unwrap_or(i32::MAX)
}
