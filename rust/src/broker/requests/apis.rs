//! The API table: for each API that this broker serves, its versions, who may send it, which
//! thread handles it, and what the client must be allowed. ApiVersions is derived from it. A
//! request for an API that is not listed closes the connection. So does a request between brokers
//! on any other listener than the brokers' own.
//!
//! Invariant: each range of versions lies within the schema's (a test checks it).
//! The rows are sorted by key, as ApiVersions lists them (a test checks it).

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use crate::broker::state::acls::{Operation, ResourceType};
use crate::protocol::*;

use HandlerKind::{Network, Policy, Staged};
use Needs::{Each, Nothing, Whole};
use Operation::{
    Alter, AlterConfigs, ClusterAction, Create, CreateTokens, Delete, Describe, DescribeConfigs,
    DescribeTokens, IdempotentWrite, Read, Write,
};
use Requester::{Administrator, Broker, Client, Controller};
use ResourceType::{Cluster, DelegationToken, Group, Topic, TransactionalId, User};

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
    /// What the client must be allowed, if there is an authorizer.
    pub needs: Needs,
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

/// What the client of an API must be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: the API comes before a login, tells what any client may know, or asks for a secret
    /// of its own.
    Nothing,
    /// An operation on the cluster; else the whole request is refused.
    Whole(Operation),
    /// Operations on what the request or the answer names, each of which is checked by itself.
    Each(&'static [(Operation, ResourceType)]),
}

type ApiRow = (i16, RangeInclusive<i16>, Requester, HandlerKind, Needs);

/// The API table.
const SERVED: &[ApiRow] = &[
    (produce::KEY, 0..=13, Client, Staged, Each(&[(Write, Topic), (Write, TransactionalId)])),
    (fetch::KEY, 0..=18, Client, Network, Each(&[(Read, Topic), (ClusterAction, Cluster)])),
    (list_offsets::KEY, 0..=11, Client, Network, Each(&[(Describe, Topic)])),
    (
        metadata::KEY,
        0..=13,
        Client,
        Network,
        Each(&[(Describe, Topic), (Create, Topic), (Create, Cluster)]),
    ),
    (leader_and_isr::KEY, 0..=7, Controller, Policy, Whole(ClusterAction)),
    (stop_replica::KEY, 0..=4, Controller, Policy, Whole(ClusterAction)),
    (update_metadata::KEY, 0..=8, Controller, Policy, Whole(ClusterAction)),
    (controlled_shutdown::KEY, 0..=3, Broker, Policy, Whole(ClusterAction)),
    (offset_commit::KEY, 0..=10, Client, Network, Each(&[(Read, Group), (Read, Topic)])),
    (offset_fetch::KEY, 0..=10, Client, Network, Each(&[(Describe, Group), (Describe, Topic)])),
    (
        find_coordinator::KEY,
        0..=6,
        Client,
        Network,
        Each(&[(Describe, Group), (Describe, TransactionalId)]),
    ),
    (join_group::KEY, 0..=9, Client, Policy, Each(&[(Read, Group)])),
    (heartbeat::KEY, 0..=4, Client, Network, Each(&[(Read, Group)])),
    (leave_group::KEY, 0..=5, Client, Policy, Each(&[(Read, Group)])),
    (sync_group::KEY, 0..=5, Client, Policy, Each(&[(Read, Group)])),
    (describe_groups::KEY, 0..=6, Client, Policy, Each(&[(Describe, Group)])),
    (list_groups::KEY, 0..=5, Client, Policy, Each(&[(Describe, Cluster), (Describe, Group)])),
    (sasl_handshake::KEY, 0..=1, Client, Network, Nothing),
    (api_versions::KEY, 0..=4, Client, Network, Nothing),
    (
        create_topics::KEY,
        0..=7,
        Client,
        Policy,
        Each(&[(Create, Cluster), (Create, Topic), (DescribeConfigs, Topic)]),
    ),
    (delete_topics::KEY, 0..=6, Client, Policy, Each(&[(Delete, Topic), (Describe, Topic)])),
    (delete_records::KEY, 0..=2, Client, Network, Each(&[(Delete, Topic)])),
    (
        init_producer_id::KEY,
        0..=5,
        Client,
        Network,
        Each(&[(Write, TransactionalId), (IdempotentWrite, Cluster), (Write, Topic)]),
    ),
    (
        offset_for_leader_epoch::KEY,
        0..=4,
        Client,
        Network,
        Each(&[(ClusterAction, Cluster), (Describe, Topic)]),
    ),
    (
        add_partitions_to_txn::KEY,
        0..=5,
        Client,
        Network,
        Each(&[(Write, TransactionalId), (Write, Topic), (ClusterAction, Cluster)]),
    ),
    (
        add_offsets_to_txn::KEY,
        0..=4,
        Client,
        Network,
        Each(&[(Write, TransactionalId), (Read, Group)]),
    ),
    (end_txn::KEY, 0..=5, Client, Network, Each(&[(Write, TransactionalId)])),
    (
        write_txn_markers::KEY,
        0..=2,
        Administrator,
        Network,
        Each(&[(Alter, Cluster), (ClusterAction, Cluster)]),
    ),
    (
        txn_offset_commit::KEY,
        0..=5,
        Client,
        Network,
        Each(&[(Write, TransactionalId), (Read, Group), (Read, Topic)]),
    ),
    (describe_acls::KEY, 0..=3, Client, Policy, Whole(Describe)),
    (create_acls::KEY, 0..=3, Client, Policy, Whole(Alter)),
    (delete_acls::KEY, 0..=3, Client, Policy, Whole(Alter)),
    (
        describe_configs::KEY,
        0..=4,
        Client,
        Policy,
        Each(&[(DescribeConfigs, Topic), (DescribeConfigs, Group), (DescribeConfigs, Cluster)]),
    ),
    (
        alter_configs::KEY,
        0..=2,
        Client,
        Policy,
        Each(&[(AlterConfigs, Topic), (AlterConfigs, Group), (AlterConfigs, Cluster)]),
    ),
    (alter_replica_log_dirs::KEY, 0..=2, Client, Policy, Whole(Alter)),
    (describe_log_dirs::KEY, 0..=5, Client, Network, Whole(Describe)),
    (sasl_authenticate::KEY, 0..=2, Client, Network, Nothing),
    (create_partitions::KEY, 0..=3, Client, Policy, Each(&[(Alter, Topic)])),
    (create_delegation_token::KEY, 0..=3, Client, Policy, Each(&[(CreateTokens, User)])),
    // Who has the HMAC of a token, and is its owner or a renewer, may change it.
    (renew_delegation_token::KEY, 0..=2, Client, Policy, Nothing),
    (expire_delegation_token::KEY, 0..=2, Client, Policy, Nothing),
    (
        describe_delegation_token::KEY,
        0..=3,
        Client,
        Policy,
        Each(&[(Describe, DelegationToken), (DescribeTokens, User)]),
    ),
    (delete_groups::KEY, 0..=2, Client, Policy, Each(&[(Delete, Group)])),
    (elect_leaders::KEY, 0..=2, Client, Policy, Whole(Alter)),
    (
        incremental_alter_configs::KEY,
        0..=1,
        Client,
        Policy,
        Each(&[(AlterConfigs, Topic), (AlterConfigs, Group), (AlterConfigs, Cluster)]),
    ),
    (alter_partition_reassignments::KEY, 0..=1, Client, Policy, Whole(Alter)),
    (list_partition_reassignments::KEY, 0..=0, Client, Policy, Whole(Describe)),
    (offset_delete::KEY, 0..=0, Client, Network, Each(&[(Delete, Group), (Read, Topic)])),
    (describe_client_quotas::KEY, 0..=1, Client, Policy, Whole(DescribeConfigs)),
    (alter_client_quotas::KEY, 0..=1, Client, Policy, Whole(AlterConfigs)),
    (describe_user_scram_credentials::KEY, 0..=0, Client, Policy, Whole(Describe)),
    (alter_user_scram_credentials::KEY, 0..=0, Client, Policy, Whole(Alter)),
    (alter_partition::KEY, 0..=3, Broker, Policy, Whole(ClusterAction)),
    (update_features::KEY, 0..=2, Client, Policy, Whole(Alter)),
    (describe_cluster::KEY, 0..=2, Client, Network, Nothing),
    (describe_producers::KEY, 0..=0, Client, Network, Each(&[(Read, Topic)])),
    (
        describe_transactions::KEY,
        0..=0,
        Client,
        Network,
        Each(&[(Describe, TransactionalId), (Describe, Topic)]),
    ),
    (list_transactions::KEY, 0..=2, Client, Network, Each(&[(Describe, TransactionalId)])),
    (allocate_producer_ids::KEY, 0..=0, Broker, Policy, Whole(ClusterAction)),
    (
        consumer_group_heartbeat::KEY,
        0..=1,
        Client,
        Network,
        Each(&[(Read, Group), (Describe, Topic)]),
    ),
    (
        consumer_group_describe::KEY,
        0..=1,
        Client,
        Policy,
        Each(&[(Describe, Group), (Describe, Topic)]),
    ),
    (list_config_resources::KEY, 0..=1, Client, Policy, Whole(DescribeConfigs)),
    (describe_topic_partitions::KEY, 0..=0, Client, Network, Each(&[(Describe, Topic)])),
];

static TABLE: LazyLock<Vec<Api>> = LazyLock::new(|| {
    let rows = SERVED.iter().filter_map(|(key, versions, requester, run, needs)| {
        let (key, requester, run, needs) = (*key, *requester, *run, *needs);
        let (first, last) = (*versions.start(), *versions.end());
        let ApiSchema { name, flexible, throttle, .. } = *crate::protocol::api(key)?;
        Some(Api { key, name, first, last, requester, run, needs, flexible, throttle })
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

    /// Whether the table says that an operation may be asked for.
    pub fn asks(&self, operation: Operation, resource_type: ResourceType) -> bool {
        match self.needs {
            Nothing => false,
            Whole(only) => (operation, resource_type) == (only, Cluster),
            Each(pairs) => pairs.contains(&(operation, resource_type)),
        }
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
    fn cve_2023_50976_every_api_but_these_needs_an_acl() {
        let free = served().iter().filter(|api| matches!(api.needs, Nothing | Each([])));
        let names: Vec<_> = free.map(|api| api.name).collect();
        let all = [
            "SaslHandshake",
            "ApiVersions",
            "SaslAuthenticate",
            "RenewDelegationToken",
            "ExpireDelegationToken",
            "DescribeCluster",
        ];
        assert_eq!(names, all);
        let transactional = |api: &&Api| api.asks(Write, TransactionalId);
        let names: Vec<_> = served().iter().filter(transactional).map(|api| api.name).collect();
        let all = [
            "Produce",
            "InitProducerId",
            "AddPartitionsToTxn",
            "AddOffsetsToTxn",
            "EndTxn",
            "TxnOffsetCommit",
        ];
        assert_eq!(names, all);
        for api in served().iter().filter(|api| api.is_between_brokers()) {
            assert!(api.asks(ClusterAction, Cluster), "{}", api.name);
        }
    }

    #[test]
    fn every_throttle_time_has_a_known_place_or_a_handler_that_writes_it() {
        let reply = Value::Map(vec![("throttle_time_ms".into(), Value::Int(0x0102_0304))]);
        for api in served() {
            for version in api.first..=api.last {
                let sent = encode_any(api.key, version, Direction::Response, &reply);
                let sent = sent.map(|sent| sent.buf).unwrap_or_default();
                let mut found = sent.windows(4).position(|bytes| bytes == [1, 2, 3, 4]);
                let written = ["Produce", "ApiVersions"].contains(&api.name);
                if written
                    || ["CreateDelegationToken", "DescribeDelegationToken"].contains(&api.name)
                {
                    found = None;
                }
                assert_eq!(api.throttle_at(version), found, "{} {version}", api.name);
            }
        }
    }
}
