//! The configuration of a consumer, and the Fetch request that it makes of what is to be fetched.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::fetch_session::FetchRequestData;
use crate::ids::TopicId;
use crate::protocol::fetch::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};

/// The configuration of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The broker answers when it has this many bytes (`fetch.min.bytes`).
    pub min_bytes: i32,
    /// The broker answers after this time at the latest (`fetch.max.wait.ms`).
    pub max_wait: Duration,
    /// The most bytes of one response (`fetch.max.bytes`).
    pub max_bytes: i32,
    /// The most bytes of one partition in it (`max.partition.fetch.bytes`).
    pub partition_max_bytes: i32,
    /// Hide records that are not committed (`isolation.level`).
    pub read_committed: bool,
    /// A partition whose offset is out of range waits, and `Consumer::out_of_range` lists it.
    /// Without this it is an error.
    pub report_out_of_range: bool,
    /// The consumer's rack (`client.rack`); empty: unknown.
    pub rack: String,
    /// How long a replica that is not the leader is read (`metadata.max.age.ms`).
    pub metadata_max_age: Duration,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            min_bytes: 1,
            max_wait: Duration::from_millis(500),
            max_bytes: 50 << 20,
            partition_max_bytes: 1 << 20,
            read_committed: false,
            report_out_of_range: false,
            rack: String::new(),
            metadata_max_age: Duration::from_secs(300),
        }
    }
}

impl ConsumerConfig {
    /// A Fetch request with this configuration.
    pub(super) fn request<'a>(&'a self, data: &'a FetchRequestData) -> FetchRequest<'a> {
        FetchRequest {
            max_wait_ms: i32::try_from(self.max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            isolation_level: i8::from(self.read_committed),
            session_id: data.session_id,
            session_epoch: data.session_epoch,
            topics: topics(data),
            forgotten_topics_data: forgotten(data),
            rack_id: &self.rack,
            ..Default::default()
        }
    }
}

/// The partitions to send, by topic.
fn topics(data: &FetchRequestData) -> Vec<FetchTopic<'_>> {
    let mut topics: BTreeMap<(&str, TopicId), Vec<FetchPartition>> = BTreeMap::new();
    for ((topic, partition), requested) in &data.to_send {
        topics.entry((topic, requested.topic_id)).or_default().push(FetchPartition {
            partition: *partition,
            current_leader_epoch: requested.leader_epoch,
            fetch_offset: requested.offset,
            partition_max_bytes: requested.max_bytes,
            ..Default::default()
        });
    }
    let topic = |((topic, topic_id), partitions)| FetchTopic { topic, topic_id, partitions };
    topics.into_iter().map(topic).collect()
}

/// The partitions to forget, by topic.
fn forgotten(data: &FetchRequestData) -> Vec<ForgottenTopic<'_>> {
    let mut topics: BTreeMap<(&str, TopicId), Vec<i32>> = BTreeMap::new();
    for ((topic, partition), topic_id) in &data.to_forget {
        topics.entry((topic, *topic_id)).or_default().push(*partition);
    }
    let topic = |((topic, topic_id), partitions)| ForgottenTopic { topic, topic_id, partitions };
    topics.into_iter().map(topic).collect()
}
