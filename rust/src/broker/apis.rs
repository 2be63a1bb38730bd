//! THE table of what this broker serves: API, versions, handler. ApiVersions is derived from it; an
//! API that is not here is not advertised, and a request for it closes the connection. So are those
//! between brokers on every listener but the brokers' own.
//!
//! Invariant: each range lies within what the schema has (a test holds it).
//! Not promised: the order of rows means nothing.

use std::sync::LazyLock;

use super::call::Call;
use super::handlers::*;
use super::service::Flow;
use crate::protocol::{self, ApiFacts};
use crate::wire::DecodeError;

/// What a handler says: how the connection goes on, or that the bytes are not a request.
pub(crate) type Outcome = Result<Flow, DecodeError>;

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
    pub(crate) run: Run,
    flexible: i16,
    throttle: Option<(i16, usize)>,
}

/// How an API's requests are handled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// Produce: all requests of one readable event are staged, then committed together.
    Staged,
    /// One by one, here.
    Here(fn(&mut Call<'_, '_>) -> Outcome),
    /// Decided by the policy.
    Policy,
}

/// The table.
const SERVED: &[(i16, i16, i16, Run)] = &[
    (0, 0, 13, Run::Staged),
    (1, 0, 18, Run::Here(fetch::handle)),
    (2, 0, 11, Run::Here(list_offsets::handle)),
    (3, 0, 13, Run::Here(metadata::handle)),
    (4, 0, 7, Run::Policy),
    (5, 0, 4, Run::Policy),
    (6, 0, 8, Run::Policy),
    (7, 0, 3, Run::Policy),
    (8, 0, 10, Run::Here(offset_commit::handle)),
    (9, 0, 10, Run::Here(offset_fetch::handle)),
    (10, 0, 6, Run::Here(find_coordinator::handle)),
    (11, 0, 9, Run::Policy),
    (12, 0, 4, Run::Here(heartbeat::handle)),
    (13, 0, 5, Run::Policy),
    (14, 0, 5, Run::Policy),
    (15, 0, 6, Run::Policy),
    (16, 0, 5, Run::Policy),
    (17, 0, 1, Run::Here(sasl_handshake::handle)),
    (18, 0, 4, Run::Here(api_versions::handle)),
    (19, 0, 7, Run::Policy),
    (20, 0, 6, Run::Policy),
    (21, 0, 2, Run::Here(delete_records::handle)),
    (22, 0, 5, Run::Here(init_producer_id::handle)),
    (23, 0, 4, Run::Here(offset_for_leader_epoch::handle)),
    (29, 0, 3, Run::Here(describe_acls::handle)),
    (32, 0, 4, Run::Policy),
    (33, 0, 2, Run::Policy),
    (34, 0, 2, Run::Policy),
    (35, 0, 5, Run::Here(describe_log_dirs::handle)),
    (37, 0, 3, Run::Policy),
    (42, 0, 2, Run::Policy),
    (43, 0, 2, Run::Policy),
    (44, 0, 1, Run::Policy),
    (45, 0, 1, Run::Policy),
    (46, 0, 0, Run::Policy),
    (47, 0, 0, Run::Here(offset_delete::handle)),
    (48, 0, 1, Run::Policy),
    (49, 0, 1, Run::Policy),
    (50, 0, 0, Run::Policy),
    (56, 0, 3, Run::Policy),
    (60, 0, 2, Run::Here(describe_cluster::handle)),
    (61, 0, 0, Run::Here(describe_producers::handle)),
    (67, 0, 0, Run::Policy),
    (68, 0, 1, Run::Here(consumer_group_heartbeat::handle)),
    (69, 0, 1, Run::Policy),
    (74, 0, 1, Run::Policy),
    (75, 0, 0, Run::Here(describe_topic_partitions::handle)),
];

/// LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, AlterPartition and
/// AllocateProducerIds: what only brokers ask each other.
const BETWEEN_BROKERS: [i16; 6] = [4, 5, 6, 7, 56, 67];

static TABLE: LazyLock<Vec<Api>> = LazyLock::new(|| {
    let rows = SERVED.iter().filter_map(|&(key, first, last, run)| {
        let ApiFacts { name, flexible, throttle, .. } = *protocol::api(key)?;
        Some(Api { key, name, first, last, run, flexible, throttle })
    });
    rows.collect()
});

/// From key to row, for keys below 128.
static BY_KEY: LazyLock<[Option<&'static Api>; 128]> = LazyLock::new(|| {
    std::array::from_fn(|key| TABLE.iter().find(|api| usize::try_from(api.key) == Ok(key)))
});

/// All that is served, by rising key.
pub fn served() -> &'static [Api] {
    &TABLE
}

/// The row of a key.
#[inline]
pub(crate) fn find(key: i16) -> Option<&'static Api> {
    BY_KEY.get(usize::try_from(key).ok()?).copied().flatten()
}

impl Api {
    /// Whether it is served on the brokers' own listener alone.
    #[inline]
    pub fn is_between_brokers(&self) -> bool {
        BETWEEN_BROKERS.contains(&self.key)
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

    /// How many bytes of a response lie before its throttle time, where that is the same in all.
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
            let facts = protocol::api(api.key).unwrap();
            assert!(facts.has(api.first) && facts.has(api.last), "{}", api.name);
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
