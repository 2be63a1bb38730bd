//! The API table: for each API that this broker serves, its versions, who may send it, and which
//! thread handles it. ApiVersions is derived from it. A request for an API that is not listed
//! closes the connection. So does a request between brokers on any other listener than the
//! brokers' own.
//!
//! Invariant: each range of versions lies within the schema's (a test checks it).
//! The order of rows has no meaning. There is no column for authorization, because there is no
//! authorizer.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use crate::protocol::*;

use HandlerKind::{Network, Policy, Staged};
use Requester::{Administrator, Broker, Client, Controller};

/// One API of the table.
#[derive(Debug)]
pub struct Api {
    /// The key in request headers.
    pub key: i16,
    /// Kafka's name.
    pub name: &'static str,
    /// The oldest version served.
    pub first: i16,
    /// The newest version served.
    pub last: i16,
    /// Who may send an API.
    pub requester: Requester,
    /// Which thread handles its requests.
    pub run: HandlerKind,
    flexible: i16,
    throttle: Option<(i16, usize)>,
}

/// Who may send an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// Any client, on every listener.
    Client,
    /// A broker sends it to the controller or another broker, on the brokers' own listener only.
    Broker,
    /// The controller sends it to a broker, on the brokers' own listener only.
    Controller,
    /// Brokers and administrators send it, on the brokers' own listener; a broker that is alone
    /// serves it on the listener that would be between brokers.
    Administrator,
}

/// Which thread handles the requests of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerKind {
    /// Produce: on the network thread; all requests of one readable event are staged, then
    /// committed together.
    Staged,
    /// On the network thread, one by one (see `handlers::handler`); a worker does the part that
    /// takes long.
    Network,
    /// On the policy's thread.
    Policy,
}

type ApiRow = (i16, RangeInclusive<i16>, Requester, HandlerKind);

/// The API table.
const SERVED: &[ApiRow] = &[
    (produce::KEY, 0..=13, Client, Staged),
    (fetch::KEY, 0..=18, Client, Network),
    (list_offsets::KEY, 0..=11, Client, Network),
    (metadata::KEY, 0..=13, Client, Network),
    (leader_and_isr::KEY, 0..=7, Controller, Policy),
    (stop_replica::KEY, 0..=4, Controller, Policy),
    (update_metadata::KEY, 0..=8, Controller, Policy),
    (controlled_shutdown::KEY, 0..=3, Broker, Policy),
    (offset_commit::KEY, 0..=10, Client, Network),
    (offset_fetch::KEY, 0..=10, Client, Network),
    (find_coordinator::KEY, 0..=6, Client, Network),
    (join_group::KEY, 0..=9, Client, Policy),
    (heartbeat::KEY, 0..=4, Client, Network),
    (leave_group::KEY, 0..=5, Client, Policy),
    (sync_group::KEY, 0..=5, Client, Policy),
    (describe_groups::KEY, 0..=6, Client, Policy),
    (list_groups::KEY, 0..=5, Client, Policy),
    (sasl_handshake::KEY, 0..=1, Client, Network),
    (api_versions::KEY, 0..=4, Client, Network),
    (create_topics::KEY, 0..=7, Client, Policy),
    (delete_topics::KEY, 0..=6, Client, Policy),
    (delete_records::KEY, 0..=2, Client, Network),
    (init_producer_id::KEY, 0..=5, Client, Network),
    (offset_for_leader_epoch::KEY, 0..=4, Client, Network),
    (add_partitions_to_txn::KEY, 0..=5, Client, Network),
    (add_offsets_to_txn::KEY, 0..=4, Client, Network),
    (end_txn::KEY, 0..=5, Client, Network),
    (write_txn_markers::KEY, 0..=2, Administrator, Network),
    (txn_offset_commit::KEY, 0..=5, Client, Network),
    (describe_acls::KEY, 0..=3, Client, Network),
    (describe_configs::KEY, 0..=4, Client, Policy),
    (alter_configs::KEY, 0..=2, Client, Policy),
    (alter_replica_log_dirs::KEY, 0..=2, Client, Policy),
    (describe_log_dirs::KEY, 0..=5, Client, Network),
    (sasl_authenticate::KEY, 0..=2, Client, Network),
    (create_partitions::KEY, 0..=3, Client, Policy),
    (delete_groups::KEY, 0..=2, Client, Policy),
    (elect_leaders::KEY, 0..=2, Client, Policy),
    (incremental_alter_configs::KEY, 0..=1, Client, Policy),
    (alter_partition_reassignments::KEY, 0..=1, Client, Policy),
    (list_partition_reassignments::KEY, 0..=0, Client, Policy),
    (offset_delete::KEY, 0..=0, Client, Network),
    (describe_client_quotas::KEY, 0..=1, Client, Policy),
    (alter_client_quotas::KEY, 0..=1, Client, Policy),
    (describe_user_scram_credentials::KEY, 0..=0, Client, Policy),
    (alter_user_scram_credentials::KEY, 0..=0, Client, Policy),
    (alter_partition::KEY, 0..=3, Broker, Policy),
    (update_features::KEY, 0..=2, Client, Policy),
    (describe_cluster::KEY, 0..=2, Client, Network),
    (describe_producers::KEY, 0..=0, Client, Network),
    (describe_transactions::KEY, 0..=0, Client, Network),
    (list_transactions::KEY, 0..=2, Client, Network),
    (allocate_producer_ids::KEY, 0..=0, Broker, Policy),
    (consumer_group_heartbeat::KEY, 0..=1, Client, Network),
    (consumer_group_describe::KEY, 0..=1, Client, Policy),
    (list_config_resources::KEY, 0..=1, Client, Policy),
    (describe_topic_partitions::KEY, 0..=0, Client, Network),
];

static TABLE: LazyLock<Vec<Api>> = LazyLock::new(|| {
    let rows = SERVED.iter().filter_map(|(key, versions, requester, run)| {
        let (key, requester, run) = (*key, *requester, *run);
        let (first, last) = (*versions.start(), *versions.end());
        let ApiSchema { name, flexible, throttle, .. } = *crate::protocol::api(key)?;
        Some(Api { key, name, first, last, requester, run, flexible, throttle })
    });
    rows.collect()
});

/// From key to row, for keys below 128.
static BY_KEY: LazyLock<[Option<&'static Api>; 128]> = LazyLock::new(|| {
    std::array::from_fn(|key| TABLE.iter().find(|api| usize::try_from(api.key) == Ok(key)))
});

/// All served APIs in the order of their keys.
pub fn served() -> &'static [Api] {
    &TABLE
}

/// The row of a key.
#[inline]
pub(crate) fn find(key: i16) -> Option<&'static Api> {
    BY_KEY.get(usize::try_from(key).ok()?).copied().flatten()
}

impl Api {
    /// Whether it is no API of clients.
    #[inline]
    pub fn is_between_brokers(&self) -> bool {
        self.requester != Client
    }

    /// Whether this version is served.
    #[inline]
    pub fn serves(&self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    /// Whether tagged fields follow the correlation id of a response.
    #[inline]
    pub(crate) fn response_is_tagged(&self, version: i16) -> bool {
        version >= self.flexible && self.key != api_versions::KEY
    }

    /// The position of the throttle time in a response; `None` if it varies, or there is none.
    #[inline]
    pub(crate) fn throttle_at(&self, version: i16) -> Option<usize> {
        self.throttle.filter(|(first, _)| version >= *first).map(|(_, before)| before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::value::Value;
    use crate::protocol::{Direction, encode_any};

    #[test]
    fn every_row_is_in_the_schema_and_keys_rise() {
        assert_eq!(served().len(), SERVED.len());
        for api in served() {
            let spec = crate::protocol::api(api.key).unwrap();
            assert!(spec.has(api.first) && spec.has(api.last), "{}", api.name);
        }
        assert!(served().is_sorted_by_key(|api| api.key));
    }

    #[test]
    fn every_throttle_time_has_a_known_place_or_a_handler_that_writes_it() {
        let reply = Value::Map(vec![("throttle_time_ms".into(), Value::Int(0x0102_0304))]);
        for api in served() {
            for version in api.first..=api.last {
                let sent = encode_any(api.key, version, Direction::Response, &reply);
                let sent = sent.map(|sent| sent.buf).unwrap_or_default();
                let mut found = sent.windows(4).position(|bytes| bytes == [1, 2, 3, 4]);
                if ["Produce", "ApiVersions"].contains(&api.name) {
                    found = None;
                }
                assert_eq!(api.throttle_at(version), found, "{} {version}", api.name);
            }
        }
    }
}
