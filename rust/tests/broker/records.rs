//! Produce and Fetch requests and batches for the tests.

use krust::ids::TopicId;
use krust::protocol::RecordsField;
use krust::protocol::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData,
};
use krust::protocol::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use krust::record::batch::{BatchBuilder, BatchFields, NewRecord};
use krust::record::compression::Codec;
use krust::record::control::EndTransactionMarker;
use krust::wire::Reader;

use crate::double::{Conn, Frame, TestBroker, frame};

/// The topic of most tests, made with id 1.
pub const TOPIC: &str = "orders";

/// A batch of records with these values and the key `k`.
pub fn batch(values: &[&str]) -> Vec<u8> {
    batch_with(values, Codec::None, |_| {})
}

/// The same, with other header fields.
pub fn batch_with(values: &[&str], codec: Codec, change: impl FnOnce(&mut BatchFields)) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.add(&NewRecord {
            timestamp: crate::double::NOW_MS,
            key: Some(b"k"),
            value: Some(value.as_bytes()),
            ..NewRecord::default()
        });
    }
    let mut fields = BatchFields { codec, ..BatchFields::default() };
    change(&mut fields);
    builder.to_bytes(&fields).unwrap()
}

/// The first batch of a transaction.
pub fn transactional(producer_id: i64, values: &[&str]) -> Vec<u8> {
    batch_with(values, Codec::None, |fields| {
        fields.transactional = true;
        (fields.producer_id, fields.producer_epoch, fields.base_sequence) = (producer_id, 0, 0);
    })
}

/// The control batch that aborts a producer's transaction.
pub fn abort_marker(producer_id: i64) -> Vec<u8> {
    let (producer_epoch, coordinator_epoch) = (0, 0);
    let marker =
        EndTransactionMarker { producer_id, producer_epoch, coordinator_epoch, commit: false };
    marker.to_batch(crate::double::NOW_MS).unwrap()
}

/// How long a Produce may wait for its acknowledgement.
const PRODUCE_TIMEOUT_MS: i32 = 30_000;

/// A Produce of `records` to partition 0 of [`TOPIC`].
pub fn produce(version: i16, acks: i16, records: &[u8]) -> Frame {
    produce_to(version, acks, &[(0, records)])
}

/// A Produce to some partitions of [`TOPIC`].
pub fn produce_to(version: i16, acks: i16, partitions: &[(i32, &[u8])]) -> Frame {
    let data = partitions.iter().map(|(index, records)| PartitionProduceData {
        index: *index,
        records: RecordsField::Bytes(records),
    });
    let request = ProduceRequest {
        acks,
        timeout_ms: PRODUCE_TIMEOUT_MS,
        topic_data: vec![TopicProduceData {
            name: TOPIC,
            topic_id: TopicId([1; 16]),
            partition_data: data.collect(),
        }],
        ..Default::default()
    };
    frame(0, version, |writer, version| request.encode(writer, version))
}

/// The answer to a Produce for its first partition: error and base offset.
pub fn produced(version: i16, reply: &[u8]) -> (i16, i64) {
    produced_to(version, reply)[0]
}

/// The answer for each partition.
pub fn produced_to(version: i16, reply: &[u8]) -> Vec<(i16, i64)> {
    let response = ProduceResponse::decode(&mut Reader::new(reply), version).unwrap();
    let partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    partitions.map(|partition| (partition.error_code, partition.base_offset)).collect()
}

/// Produces and gives error and base offset.
pub fn put(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    (version, acks, records): (i16, i16, &[u8]),
) -> (i16, i64) {
    let request = produce(version, acks, records);
    let reply = fixture.ask(conn, &request);
    produced(version, &reply)
}

/// What to fetch.
#[derive(Clone, Copy, Debug)]
pub struct Fetch {
    pub version: i16,
    pub offset: i64,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_max_bytes: i32,
    pub session: (i32, i32),
}

impl Default for Fetch {
    fn default() -> Self {
        Self {
            version: 12,
            offset: 0,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 1 << 20,
            partition_max_bytes: 1 << 20,
            session: (0, -1),
        }
    }
}

impl Fetch {
    /// The request for these partitions of [`TOPIC`].
    pub fn of(&self, partitions: &[i32]) -> Frame {
        let wanted = partitions.iter().map(|partition| FetchPartition {
            partition: *partition,
            fetch_offset: self.offset,
            partition_max_bytes: self.partition_max_bytes,
            ..Default::default()
        });
        let topic =
            FetchTopic { topic: TOPIC, topic_id: TopicId([1; 16]), partitions: wanted.collect() };
        let request = FetchRequest {
            max_wait_ms: self.max_wait_ms,
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            session_id: self.session.0,
            session_epoch: self.session.1,
            topics: if partitions.is_empty() { Vec::new() } else { vec![topic] },
            ..Default::default()
        };
        frame(1, self.version, |writer, version| request.encode(writer, version))
    }
}

/// A Fetch's answer: error, session id, and per partition (number, error, high watermark, records).
pub type Fetched = (i16, i32, Vec<(i32, i16, i64, Vec<u8>)>);

/// Reads a Fetch's answer.
pub fn fetched(version: i16, reply: &[u8]) -> Fetched {
    let response = FetchResponse::decode(&mut Reader::new(reply), version).unwrap();
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let one = |data: &PartitionData<'_>| {
        let records = data.records.bytes().unwrap_or_default().to_vec();
        (data.partition_index, data.error_code, data.high_watermark, records)
    };
    (response.error_code, response.session_id, partitions.map(one).collect())
}

/// Fetches partition 0 and gives its error, high watermark and records.
pub fn get(fixture: &mut TestBroker, conn: &mut Conn, fetch: Fetch) -> (i16, i64, Vec<u8>) {
    let reply = fixture.ask_a_worker(conn, &fetch.of(&[0]));
    let (error, _, mut partitions) = fetched(fetch.version, &reply);
    assert_eq!(error, 0);
    let (_, error, high_watermark, records) = partitions.remove(0);
    (error, high_watermark, records)
}

/// Offsets and values of batches of magic 2.
pub fn values(bytes: &[u8]) -> Vec<(i64, String)> {
    let batches = krust::record::batch::iter(bytes).map_while(Result::ok);
    batches
        .flat_map(|batch| {
            let mut records = Vec::new();
            krust::record::convert::each_record(&batch, |record| {
                let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
                records.push((record.offset, value));
                Ok(())
            })
            .unwrap();
            records
        })
        .collect()
}
