//! Single requests: offsets by time, and any API by its name with a body of plain values.

use std::collections::BTreeMap;

use super::cluster::{Cluster, ClusterRequest, Target, api_by_name};
use super::connection::ApiResponse;
use super::error::{Error, Result};
use super::options::Wait;
use crate::protocol::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use crate::protocol::value::Value;
use crate::protocol::{self, Direction};
use crate::wire::Writer;

const LIST_OFFSETS: i16 = 2;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const LEADER_NOT_AVAILABLE: i16 = 5;
const NOT_CONTROLLER: i64 = 41;
/// The APIs that only the controller of a ZooKeeper cluster answers.
const CONTROLLER_APIS: [i16; 9] = [19, 20, 37, 43, 45, 46, 51, 57, 60];

/// ListOffsets' special timestamp for the log end offset.
pub const LATEST: i64 = -1;
/// ListOffsets' special timestamp for the log start offset.
pub const EARLIEST: i64 = -2;

/// A point in time of one partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffsetQuery {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Milliseconds since 1970, or one of Kafka's negative special values.
    pub timestamp: i64,
}

/// A request by name.
#[derive(Clone, Copy, Debug)]
pub struct NamedRequest<'a> {
    /// The API's name, in any case and with or without `_`.
    pub api: &'a str,
    /// The version; `None`: the newest that both sides know.
    pub version: Option<i16>,
    /// The broker to ask; `None`: any broker, or the controller if the API needs it.
    pub target: Option<Target>,
    /// A map with Kafka's field names in snake_case.
    pub body: &'a Value,
}

/// The answer to an [`OffsetQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetResult {
    /// The query.
    pub query: OffsetQuery,
    /// The offset; -1: every record is older.
    pub offset: i64,
    /// The record's own timestamp; -1 if unknown.
    pub timestamp: i64,
    /// Why there is no offset.
    pub error: Option<Error>,
}

impl Cluster {
    /// Looks offsets up by time, each at its partition's leader. The results are grouped by leader.
    pub fn list_offsets(
        &mut self,
        queries: &[OffsetQuery],
        read_committed: bool,
        wait: &Wait,
    ) -> Result<Vec<OffsetResult>> {
        let mut left: Vec<OffsetQuery> = queries.to_vec();
        let mut found = Vec::new();
        while !left.is_empty() {
            let mut by_node: BTreeMap<i32, Vec<OffsetQuery>> = BTreeMap::new();
            for query in std::mem::take(&mut left) {
                let topic = self.topic_with(&query.topic, query.partition, wait)?;
                let code = match topic.partition(query.partition) {
                    Some(partition) if partition.leader >= 0 => {
                        by_node.entry(partition.leader).or_default().push(query);
                        continue;
                    }
                    Some(_) if !wait.left().is_zero() => {
                        left.push(query);
                        continue;
                    }
                    Some(_) => LEADER_NOT_AVAILABLE,
                    None => UNKNOWN_TOPIC_OR_PARTITION,
                };
                let subject = format!("{}:{}", query.topic, query.partition);
                let error = self.no_leader(&query).or(Some(Error::refused(code, subject)));
                found.push(OffsetResult { query, offset: -1, timestamp: -1, error });
            }
            for (node, queries) in by_node {
                let answers = self.list_offsets_of(node, &queries, (read_committed, wait));
                if answers.is_err() {
                    queries.iter().for_each(|query| self.forget(&query.topic)); // who leads now?
                }
                for answer in answers? {
                    let stale = answer.error.as_ref().is_some_and(Error::stale_metadata);
                    if stale && !wait.left().is_zero() {
                        self.forget(&answer.query.topic);
                        left.push(answer.query);
                    } else {
                        found.push(answer);
                    }
                }
            }
            if let Some(query) = left.first() {
                let late = self.no_leader(query);
                wait.pause(self.options().retry_backoff, &"ListOffsets").map_err(|error| {
                    match error {
                        Error::Timeout { .. } => late.unwrap_or(error),
                        other => other,
                    }
                })?;
            }
        }
        Ok(found)
    }

    /// The error of a partition without a leader, from the cached metadata.
    fn no_leader(&self, query: &OffsetQuery) -> Option<Error> {
        let topic = self.cached_topic(&query.topic)?;
        let partition = topic.partition(query.partition).filter(|one| one.leader < 0)?;
        let away: Vec<_> = partition
            .replicas
            .iter()
            .filter(|node| !self.knows(**node))
            .map(i32::to_string)
            .collect();
        let why = match away.as_slice() {
            [] => String::new(),
            [one] => format!("; broker {one} is away"),
            several => format!("; brokers {} are away", several.join(", ")),
        };
        Some(Error::Refused {
            code: LEADER_NOT_AVAILABLE,
            subject: format!("{}:{}", query.topic, query.partition),
            message: Some(format!("the partition has no leader{why}")),
        })
    }

    fn list_offsets_of(
        &mut self,
        node: i32,
        queries: &[OffsetQuery],
        (read_committed, wait): (bool, &Wait),
    ) -> Result<Vec<OffsetResult>> {
        let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
        for query in queries {
            topics.entry(&query.topic).or_default().push(ListOffsetsPartition {
                partition_index: query.partition,
                timestamp: query.timestamp,
                max_num_offsets: 1,
                ..Default::default()
            });
        }
        let encode = |writer: &mut Writer, version: i16| {
            let topics = topics.iter().map(|(name, partitions)| ListOffsetsTopic {
                name,
                partitions: partitions.clone(),
            });
            let body = ListOffsetsRequest {
                replica_id: -1,
                isolation_level: i8::from(read_committed),
                topics: topics.collect(),
                ..Default::default()
            };
            body.encode(writer, version);
        };
        let target = Target::Broker(node);
        let reply = self.call(&ClusterRequest::new(target, LIST_OFFSETS, &encode), wait)?;
        let response = ListOffsetsResponse::decode(&mut reply.body(), reply.version)
            .map_err(|error| self.bad(target, error))?;
        let mut answers = BTreeMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                answers.insert((topic.name, partition.partition_index), partition);
            }
        }
        let find = |query: &OffsetQuery| {
            let subject = || format!("{}:{}", query.topic, query.partition);
            let answer = answers.get(&(query.topic.as_str(), query.partition));
            let (code, offset, timestamp) = answer.map_or((-1, -1, -1), |p| {
                let oldest = p.old_style_offsets.first().copied();
                (
                    p.error_code,
                    oldest.filter(|_| reply.version == 0).unwrap_or(p.offset),
                    p.timestamp,
                )
            });
            let error = (code != 0).then(|| Error::refused(code, subject()));
            OffsetResult { query: query.clone(), offset, timestamp, error }
        };
        Ok(queries.iter().map(find).collect())
    }

    /// Sends a request of any API that krust has a schema of. A request that only the controller
    /// answers goes there, unless `request` names a target.
    pub fn request(&mut self, request: &NamedRequest<'_>, wait: &Wait) -> Result<Value> {
        let NamedRequest { api: name, version, target, body } = *request;
        let unknown = || Error::Invalid(format!("there is no API {name:?}"));
        let api = api_by_name(name).ok_or_else(unknown)?;
        let broken = std::cell::RefCell::new(None);
        let encode = |writer: &mut Writer, version: i16| match protocol::encode_any(
            api.key,
            version,
            Direction::Request,
            body,
        ) {
            Ok(encoded) => writer.buf.extend_from_slice(&encoded.buf),
            Err(error) => *broken.borrow_mut() = Some(error.to_string()),
        };
        if let Err(error) =
            protocol::encode_any(api.key, version.unwrap_or(api.last), Direction::Request, body)
        {
            return Err(Error::Invalid(format!("{name}: {error}")));
        }
        let last = version.unwrap_or(api.last);
        let ask = ClusterRequest {
            target: target.unwrap_or(Target::Any),
            key: api.key,
            last,
            encode: &encode,
        };
        let read = |reply: &ApiResponse| {
            let bytes = reply.body().rest();
            protocol::decode_any(api.key, reply.version, Direction::Response, bytes)
        };
        let reply = if target.is_none() && CONTROLLER_APIS.contains(&api.key) {
            let refused =
                |reply: &ApiResponse| read(reply).is_ok_and(|value| has_not_controller(&value));
            self.call_controller(&ask, &refused, wait)?
        } else {
            self.call(&ask, wait)?
        };
        if let Some(error) = broken.borrow_mut().take() {
            return Err(Error::Invalid(format!("{name}: {error}")));
        }
        read(&reply).map_err(|error| self.bad(ask.target, error))
    }
}

/// Whether NOT_CONTROLLER is among an answer's error codes.
fn has_not_controller(value: &Value) -> bool {
    match value {
        Value::List(items) => items.iter().any(has_not_controller),
        Value::Map(fields) => fields.iter().any(|(name, value)| {
            (&**name == "error_code" && matches!(value, Value::Int(NOT_CONTROLLER)))
                || has_not_controller(value)
        }),
        _ => false,
    }
}
