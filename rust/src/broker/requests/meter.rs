//! Opens the quota account of a connection and counts the time that its requests take.
//!
//! Requests between brokers have no account. A new quota table replaces the accounts.
//! Threads: it exists on the connection's network thread while one event is handled.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::Call;
use crate::broker::requests::connection::ConnectionContext;
use crate::broker::requests::head::Request;
use crate::broker::state::quotas::QuotaTable;

/// Measures the time of requests while there are quotas.
pub(crate) struct Meter<'a> {
    limits: Option<(&'a Broker, &'a Arc<QuotaTable>)>,
    /// The end of the time that was counted so far.
    counted_nanos: i64,
}

impl<'a> Meter<'a> {
    #[inline]
    pub(crate) fn of(
        broker: &'a Broker,
        connection: &mut ConnectionContext,
        table: Option<&'a Arc<QuotaTable>>,
    ) -> Self {
        match table {
            Some(table) => Self {
                limits: Some((broker, table)),
                counted_nanos: broker.clock.monotonic_nanos(),
            },
            None => {
                connection.account = None;
                Self { limits: None, counted_nanos: 0 }
            }
        }
    }

    /// Sets the connection's account to that of the request's client.
    #[inline]
    pub(crate) fn open(&self, connection: &mut ConnectionContext, request: &Request<'_>) {
        let Some((broker, table)) = self.limits else { return };
        let client_id = request.client_id.unwrap_or_default();
        if request.head.api.is_between_brokers() {
            connection.account = None;
        } else if !connection.account.as_ref().is_some_and(|it| it.is_of(table, client_id)) {
            let now_ms = broker.clock.monotonic_ms();
            let who = (&*connection.user, client_id);
            connection.account = Some(Arc::new(broker.quotas.account(table, who, now_ms)));
        }
    }

    /// Counts the time that has passed.
    #[inline]
    pub(crate) fn count(&mut self, connection: &ConnectionContext) {
        let Some((broker, _)) = self.limits else { return };
        let Some(account) = connection.account.as_ref().filter(|it| it.is_timed()) else { return };
        let now = broker.clock.monotonic_nanos();
        account.took(now - self.counted_nanos, broker.clock.monotonic_ms());
        self.counted_nanos = now;
    }
}

impl Call<'_, '_> {
    /// Throttles a client whose requests took more time than its quota.
    #[inline]
    pub(crate) fn throttle_for_time(&mut self) {
        if let Some(account) = &self.connection.account {
            let wait_ms = account.requests_wait_ms(self.broker.clock.monotonic_ms());
            self.throttle(wait_ms);
        }
    }

    /// Counts the bytes of a Produce request, and throttles its client if they exceed the quota.
    #[inline]
    pub(crate) fn throttle_for_bytes(&mut self) {
        if let Some(account) = &self.connection.account {
            let bytes = self.request.size;
            let wait_ms = account.produced(bytes, self.broker.clock.monotonic_ms());
            self.throttle(wait_ms);
        }
    }
}
