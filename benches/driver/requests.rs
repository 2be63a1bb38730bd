//! The frames the driver sends, built once before a run with the crate's own codec.

use krust::protocol::RecordsField;
use krust::protocol::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use krust::protocol::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use krust::protocol::delete_topics::DeleteTopicsRequest;
use krust::protocol::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use krust::protocol::header::{RequestHeader, ResponseHeader};
use krust::protocol::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use krust::protocol::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use krust::record::batch::{BatchBuilder, BatchFields, NewRecord};
use krust::record::compression::Codec;
use krust::wire::{Reader, Writer};

use crate::link::Link;
use crate::{group_requests, transaction_requests};

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;
pub const CREATE_TOPICS: i16 = 19;
const DELETE_TOPICS: i16 = 20;

/// The newest versions the driver speaks; what is used is the server's newest below that.
const NEWEST: [(i16, i16); 5] =
    [(PRODUCE, 9), (FETCH, 11), (METADATA, 4), (CREATE_TOPICS, 4), (DELETE_TOPICS, 3)];

/// The versions agreed on with one server.
pub struct Dialect(Vec<(i16, i16)>);

impl Dialect {
    pub fn ask(link: &mut Link) -> Self {
        let reply =
            link.call(&frame(API_VERSIONS, 0, |w| ApiVersionsRequest::default().encode(w, 0)));
        let mut r = body(&reply, API_VERSIONS, 0);
        let response = ApiVersionsResponse::decode(&mut r, 0).expect("ApiVersions v0");
        let served = |key| response.api_keys.iter().find(|api| api.api_key == key);
        Self(
            NEWEST
                .iter()
                .chain(&group_requests::NEWEST)
                .chain(&transaction_requests::NEWEST)
                .filter_map(|(key, newest)| {
                    served(*key).map(|api| (*key, api.max_version.min(*newest)))
                })
                .collect(),
        )
    }

    pub fn version(&self, key: i16) -> i16 {
        let found = self.0.iter().find(|(known, _)| *known == key);
        found.unwrap_or_else(|| panic!("the server has no API {key}")).1
    }
}

/// A request with its length and header.
pub fn frame(key: i16, version: i16, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new();
    w.buf.extend_from_slice(&[0; 4]);
    let client_id = Some("krust-bench");
    RequestHeader { api_key: key, api_version: version, correlation_id: 7, client_id }
        .encode(&mut w);
    write(&mut w);
    let length = (w.buf.len() - 4) as u32;
    w.buf[..4].copy_from_slice(&length.to_be_bytes());
    w.buf
}

/// A reader of the response behind its header.
pub fn body(reply: &[u8], key: i16, version: i16) -> Reader<'_> {
    let mut r = Reader::new(reply);
    ResponseHeader::decode(&mut r, key, version).expect("a response header");
    r
}

/// What batches are made of.
#[derive(Clone)]
pub struct Shape {
    pub batch_bytes: usize,
    pub record_bytes: usize,
    pub codec: Codec,
}

/// A batch of at most `batch_bytes` (at least one record), and how many records it holds.
pub fn batch(shape: &Shape) -> (Vec<u8>, i64) {
    batch_with(shape, &BatchFields::default())
}

/// The same, with other fields in its header; the codec is the shape's.
pub fn batch_with(shape: &Shape, fields: &BatchFields) -> (Vec<u8>, i64) {
    let fields = BatchFields { codec: shape.codec, ..*fields };
    let mut limit = shape.batch_bytes;
    loop {
        let (bytes, count) = fill(shape, limit, &fields);
        let size = bytes.len();
        if shape.codec == Codec::None
            || count == 1
            || (size <= shape.batch_bytes && size * 20 >= shape.batch_bytes * 19)
        {
            return (bytes, count);
        }
        limit = (limit as f64 * 0.975 * shape.batch_bytes as f64 / size as f64) as usize;
    }
}

fn fill(shape: &Shape, limit: usize, fields: &BatchFields) -> (Vec<u8>, i64) {
    let mut builder = BatchBuilder::new();
    let mut state = 88172645463325252_u64;
    let mut value = vec![0; shape.record_bytes];
    loop {
        for byte in &mut value {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = b'a' + (state % 16) as u8;
        }
        builder.add(&NewRecord {
            timestamp: now_ms(),
            value: Some(&value),
            ..NewRecord::default()
        });
        if builder.size() + shape.record_bytes + 16 > limit {
            let count = i64::from(builder.count());
            return (builder.to_bytes(fields).expect("a batch"), count);
        }
    }
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// One Produce of `batch` to each of `partitions`.
pub fn produce(version: i16, acks: i16, to: (&str, &[i32]), batch: &[u8]) -> Vec<u8> {
    let partition_data = to
        .1
        .iter()
        .map(|index| PartitionProduceData { index: *index, records: RecordsField::Bytes(batch) })
        .collect();
    let topic = TopicProduceData { name: to.0, partition_data, ..Default::default() };
    let request =
        ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() };
    frame(PRODUCE, version, |w| request.encode(w, version))
}

/// The offset of the first partition of a Produce reply; panics on any error code.
pub fn produced(reply: &[u8], version: i16) -> i64 {
    let mut r = body(reply, PRODUCE, version);
    let response = ProduceResponse::decode(&mut r, version).expect("a Produce response");
    let mut first = None;
    for partition in response.responses.iter().flat_map(|topic| &topic.partition_responses) {
        assert_eq!(partition.error_code, 0, "Produce to partition {}", partition.index);
        first.get_or_insert(partition.base_offset);
    }
    first.expect("a partition in the Produce response")
}

/// What a Fetch asks for.
#[derive(Clone, Copy)]
pub struct Ask {
    pub offset: i64,
    pub max_bytes: i32,
    pub min_bytes: i32,
    pub max_wait_ms: i32,
    pub session_id: i32,
    pub session_epoch: i32,
    pub read_committed: bool,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            offset: 0,
            max_bytes: 8 << 20,
            min_bytes: 1,
            max_wait_ms: 500,
            session_id: 0,
            session_epoch: -1,
            read_committed: false,
        }
    }
}

/// One Fetch from each of `partitions`.
pub fn fetch(version: i16, ask: Ask, topic: &str, partitions: &[i32]) -> Vec<u8> {
    let partitions: Vec<FetchPartition> = partitions
        .iter()
        .map(|partition| FetchPartition {
            partition: *partition,
            fetch_offset: ask.offset,
            partition_max_bytes: ask.max_bytes,
            ..Default::default()
        })
        .collect();
    let topics = match partitions.is_empty() {
        true => Vec::new(),
        false => vec![FetchTopic { topic, partitions, ..Default::default() }],
    };
    let request = FetchRequest {
        max_wait_ms: ask.max_wait_ms,
        min_bytes: ask.min_bytes,
        max_bytes: ask.max_bytes,
        isolation_level: i8::from(ask.read_committed),
        session_id: ask.session_id,
        session_epoch: ask.session_epoch,
        topics,
        ..Default::default()
    };
    frame(FETCH, version, |w| request.encode(w, version))
}

/// The session id and the bytes of records of a Fetch reply; panics on any error code.
pub fn fetched(reply: &[u8], version: i16) -> (i32, usize) {
    let mut r = body(reply, FETCH, version);
    let response = FetchResponse::decode(&mut r, version).expect("a Fetch response");
    assert_eq!(response.error_code, 0, "Fetch");
    let mut size = 0;
    for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
        assert_eq!(partition.error_code, 0, "Fetch from partition {}", partition.partition_index);
        if let RecordsField::Bytes(bytes) = &partition.records {
            size += bytes.len();
        }
    }
    (response.session_id, size)
}

/// Creates a topic and waits until each of its partitions has a leader.
pub fn create(link: &mut Link, dialect: &Dialect, topic: &str, partitions: i32) {
    let version = dialect.version(CREATE_TOPICS);
    let config = CreatableTopicConfig { name: "file.delete.delay.ms", value: Some("1") };
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic,
            num_partitions: partitions,
            replication_factor: 1,
            configs: vec![config],
            ..Default::default()
        }],
        ..Default::default()
    };
    let reply = link.call(&frame(CREATE_TOPICS, version, |w| request.encode(w, version)));
    let mut r = body(&reply, CREATE_TOPICS, version);
    let response = CreateTopicsResponse::decode(&mut r, version).expect("CreateTopics");
    let (name, code) = response.topics.first().map_or(("?", -1), |t| (t.name, t.error_code));
    assert!(code == 0 || code == 36, "creating topic {name}: error {code}");
    for _ in 0..1000 {
        if leaders(link, dialect, topic) == partitions as usize {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("topic {topic} did not get its leaders");
}

fn leaders(link: &mut Link, dialect: &Dialect, topic: &str) -> usize {
    let version = dialect.version(METADATA);
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some(topic), ..Default::default() }]),
        ..Default::default()
    };
    let reply = link.call(&frame(METADATA, version, |w| request.encode(w, version)));
    let mut r = body(&reply, METADATA, version);
    let response = MetadataResponse::decode(&mut r, version).expect("Metadata");
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.filter(|partition| partition.error_code == 0 && partition.leader_id >= 0).count()
}

/// Deletes a topic; a refusal is no error, the next round uses another name.
pub fn delete(link: &mut Link, dialect: &Dialect, topic: &str) {
    let version = dialect.version(DELETE_TOPICS);
    let request =
        DeleteTopicsRequest { topic_names: vec![topic], timeout_ms: 30_000, ..Default::default() };
    link.call(&frame(DELETE_TOPICS, version, |w| request.encode(w, version)));
}
