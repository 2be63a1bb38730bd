//! Bytes written by hand for the oldest versions, which other codecs no longer know, and for the
//! rules of the newest that broke other brokers.

use krust::protocol::RecordsField;
use krust::protocol::api_versions::{ApiVersion, ApiVersionsResponse};
use krust::protocol::fetch::{FetchPartition, FetchRequest, FetchTopic};
use krust::protocol::fetch::{FetchResponse, FetchableTopicResponse, PartitionData};
use krust::protocol::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use krust::protocol::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use krust::protocol::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use krust::protocol::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceData, TopicProduceResponse,
};
use krust::wire::{Reader, Writer};

/// The message encodes to `$bytes` at `$version` and back.
macro_rules! assert_golden {
    ($kind:ident, $message:expr, $version:expr, $bytes:expr) => {{
        let (message, bytes): ($kind<'_>, Vec<u8>) = ($message, $bytes);
        let mut writer = Writer::new();
        message.encode(&mut writer, $version);
        assert_eq!(writer.buf, bytes);
        assert_eq!($kind::decode(&mut Reader::new(&bytes), $version), Ok(message));
    }};
}

/// Joins pieces: integers spelled as big-endian bytes, texts as they are.
fn bytes(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

#[test]
fn produce_v0_has_kafkas_bytes() {
    let request = ProduceRequest {
        acks: 1,
        timeout_ms: 1500,
        topic_data: vec![TopicProduceData {
            name: "ab",
            partition_data: vec![PartitionProduceData {
                index: 3,
                records: RecordsField::Bytes(b"xyz"),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let head: &[u8] = &[0, 1, 0, 0, 0x05, 0xdc, 0, 0, 0, 1, 0, 2];
    let body: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 3];
    assert_golden!(ProduceRequest, request, 0, bytes(&[head, b"ab", body, b"xyz"]));
    let response = ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: "ab",
            partition_responses: vec![PartitionProduceResponse {
                index: 3,
                error_code: 6,
                base_offset: 258,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let body: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 3, 0, 6, 0, 0, 0, 0, 0, 0, 1, 2];
    assert_golden!(ProduceResponse, response, 0, bytes(&[&[0, 0, 0, 1, 0, 2], b"ab", body]));
}

#[test]
fn fetch_v0_has_kafkas_bytes() {
    let request = FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        topics: vec![FetchTopic {
            topic: "t",
            partitions: vec![FetchPartition {
                partition: 2,
                fetch_offset: 5,
                partition_max_bytes: 1024,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let head: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 100, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1];
    let body: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 4, 0];
    assert_golden!(FetchRequest, request, 0, bytes(&[head, b"t", body]));
    let response = FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: "t",
            partitions: vec![PartitionData {
                partition_index: 2,
                high_watermark: 9,
                records: RecordsField::Bytes(b"msg"),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let body: &[u8] =
        &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3, b'm', b's', b'g'];
    assert_golden!(FetchResponse, response, 0, bytes(&[&[0, 0, 0, 1, 0, 1], b"t", body]));
}

#[test]
fn list_offsets_v0_has_kafkas_bytes() {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: "t",
            partitions: vec![ListOffsetsPartition {
                partition_index: 1,
                timestamp: -2,
                max_num_offsets: 7,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let head: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1];
    let body: &[u8] = &[0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 254, 0, 0, 0, 7];
    assert_golden!(ListOffsetsRequest, request, 0, bytes(&[head, body]));
    let response = ListOffsetsResponse {
        topics: vec![ListOffsetsTopicResponse {
            name: "t",
            partitions: vec![ListOffsetsPartitionResponse {
                partition_index: 1,
                old_style_offsets: vec![256, 0],
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let head: &[u8] = &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2];
    let body: &[u8] = &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_golden!(ListOffsetsResponse, response, 0, bytes(&[head, body]));
}

#[test]
fn metadata_v0_has_kafkas_bytes() {
    let topic = MetadataRequestTopic { name: Some("t"), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
    assert_golden!(MetadataRequest, request, 0, vec![0, 0, 0, 1, 0, 1, b't']);
    let response = MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: "h",
            port: 9092,
            ..Default::default()
        }],
        topics: vec![MetadataResponseTopic {
            name: Some("t"),
            partitions: vec![MetadataResponsePartition {
                leader_id: 1,
                replica_nodes: vec![1],
                isr_nodes: vec![1],
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let brokers: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b'h', 0, 0, 0x23, 0x84];
    let topic: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 1, b't', 0, 0, 0, 1];
    let partition: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let nodes: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    assert_golden!(MetadataResponse, response, 0, bytes(&[brokers, topic, partition, nodes]));
}

#[test]
fn api_versions_v3_carries_no_tags_at_defaults() {
    let response = ApiVersionsResponse {
        api_keys: vec![ApiVersion { api_key: 18, min_version: 0, max_version: 4 }],
        ..Default::default()
    };
    let expected = vec![0, 0, 2, 0, 18, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0];
    assert_golden!(ApiVersionsResponse, response, 3, expected);
}
