//! Opens the quota account of a connection and counts the time that its requests take.
//!
//! Requests between brokers have no account. A new quota table replaces the accounts.
//! Threads: lives on the connection's reactor thread for one event.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::Call;
use crate::broker::requests::connection::ConnectionContext;
use crate::broker::requests::head::Request;
use crate::broker::state::quotas::Table;

/// Measures the time of requests while there are quotas.
pub(crate) struct Meter<'a> {
    limits: Option<(&'a Broker, &'a Arc<Table>)>,
    /// The time counted so far ends here.
    counted_nanos: i64,
}

impl<'a> Meter<'a> {
    #[inline]
    pub(crate) fn of(
        broker: &'a Broker,
        session: &mut ConnectionContext,
        table: Option<&'a Arc<Table>>,
    ) -> Self {
        match table {
            Some(table) => Self {
                limits: Some((broker, table)),
                counted_nanos: broker.clock.monotonic_nanos(),
            },
            None => {
                session.account = None;
                Self { limits: None, counted_nanos: 0 }
            }
        }
    }

    /// Makes the account of the request's client the session's.
    #[inline]
    pub(crate) fn open(&self, session: &mut ConnectionContext, request: &Request<'_>) {
        let Some((broker, table)) = self.limits else { return };
        let client_id = request.client_id.unwrap_or_default();
        if request.head.api.is_between_brokers() {
            session.account = None;
        } else if !session.account.as_ref().is_some_and(|it| it.is_of(table, client_id)) {
            let now_ms = broker.clock.monotonic_ms();
            session.account = Some(Arc::new(broker.quotas.account(table, client_id, now_ms)));
        }
    }

    /// Counts the time that has passed.
    #[inline]
    pub(crate) fn count(&mut self, session: &ConnectionContext) {
        let Some((broker, _)) = self.limits else { return };
        let Some(account) = session.account.as_ref().filter(|it| it.is_timed()) else { return };
        let now = broker.clock.monotonic_nanos();
        account.took(now - self.counted_nanos, broker.clock.monotonic_ms());
        self.counted_nanos = now;
    }
}

impl Call<'_, '_> {
    /// Throttles a client whose requests took more time than its quota.
    #[inline]
    pub(crate) fn throttle_for_time(&mut self) {
        if let Some(account) = &self.session.account {
            let wait_ms = account.requests_wait_ms(self.broker.clock.monotonic_ms());
            self.throttle(wait_ms);
        }
    }

    /// Counts the bytes of a Produce request, and tells its client to wait where they are too many.
    #[inline]
    pub(crate) fn throttle_for_bytes(&mut self) {
        if let Some(account) = &self.session.account {
            let bytes = self.request.size;
            let wait_ms = account.produced(bytes, self.broker.clock.monotonic_ms());
            self.throttle(wait_ms);
        }
    }
}
