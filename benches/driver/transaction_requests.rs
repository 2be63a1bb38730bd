//! The frames of transactional producers, and readers of their replies.

use krust::protocol::RecordsField;
use krust::protocol::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, V3AndBelowTopic,
};
use krust::protocol::end_txn::{EndTxnRequest, EndTxnResponse};
use krust::protocol::find_coordinator::FindCoordinatorRequest;
use krust::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use krust::protocol::list_transactions::{ListTransactionsRequest, ListTransactionsResponse};
use krust::protocol::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use krust::record::batch::BatchFields;
use krust::record::crc::crc32c;

use crate::group_requests::FIND_COORDINATOR;
use crate::requests::{Dialect, PRODUCE, Shape, body, frame};

pub const INIT_PRODUCER_ID: i16 = 22;
pub const ADD_PARTITIONS_TO_TXN: i16 = 24;
pub const END_TXN: i16 = 26;
pub const LIST_TRANSACTIONS: i16 = 66;

/// Those of a client of before KIP-890, which both brokers serve.
pub const NEWEST: [(i16, i16); 4] =
    [(INIT_PRODUCER_ID, 4), (ADD_PARTITIONS_TO_TXN, 3), (END_TXN, 3), (LIST_TRANSACTIONS, 0)];

/// The markers of the last transaction are being written.
pub const CONCURRENT_TRANSACTIONS: i16 = 51;
const TRANSACTION: i8 = 1;
/// As long as brokers allow.
const TIMEOUT_MS: i32 = 900_000;
/// Where these fields lie in a batch.
const CRC_AT: usize = 17;
const BASE_SEQUENCE_AT: usize = 53;

/// The frames of one producer that writes to one partition.
pub struct ProducerFrames {
    pub add: Vec<u8>,
    pub commit: Vec<u8>,
    pub abort: Vec<u8>,
    produce: Vec<u8>,
    /// Where the batch begins and ends in `produce`.
    batch: std::ops::Range<usize>,
    /// Records of a batch.
    records: i32,
    sequence: i32,
}

/// What a producer is called, its id and its epoch.
pub type Producer<'a> = (&'a str, i64, i16);

impl ProducerFrames {
    /// `is_transactional`: else it is idempotent alone.
    pub fn new(
        dialect: &Dialect,
        (name, id, epoch): Producer<'_>,
        (topic, partition): (&str, i32),
        (shape, is_transactional): (&Shape, bool),
    ) -> Self {
        let fields = BatchFields {
            producer_id: id,
            producer_epoch: epoch,
            base_sequence: 0,
            transactional: is_transactional,
            ..BatchFields::default()
        };
        let (batch, records) = crate::requests::batch_with(shape, &fields);
        let version = dialect.version(PRODUCE);
        let records_field = RecordsField::Bytes(&batch);
        let data = PartitionProduceData { index: partition, records: records_field };
        let data =
            TopicProduceData { name: topic, partition_data: vec![data], ..Default::default() };
        let request = ProduceRequest {
            transactional_id: is_transactional.then_some(name),
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![data],
        };
        let produce = frame(PRODUCE, version, |w| request.encode(w, version));
        let at = produce.windows(batch.len()).position(|part| part == batch).expect("the batch");
        let version = dialect.version(ADD_PARTITIONS_TO_TXN);
        let topics = vec![V3AndBelowTopic { name: topic, partitions: vec![partition] }];
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: name,
            v3_and_below_producer_id: id,
            v3_and_below_producer_epoch: epoch,
            v3_and_below_topics: topics,
            ..Default::default()
        };
        let add = frame(ADD_PARTITIONS_TO_TXN, version, |w| request.encode(w, version));
        let end = |committed| {
            let version = dialect.version(END_TXN);
            let request = EndTxnRequest {
                transactional_id: name,
                producer_id: id,
                producer_epoch: epoch,
                committed,
            };
            frame(END_TXN, version, |w| request.encode(w, version))
        };
        Self {
            add,
            commit: end(true),
            abort: end(false),
            produce,
            batch: at..at + batch.len(),
            records: records as i32,
            sequence: 0,
        }
    }

    /// The next Produce, with the next sequence number and the checksum of that.
    pub fn next_produce(&mut self) -> &[u8] {
        let batch = &mut self.produce[self.batch.clone()];
        batch[BASE_SEQUENCE_AT..][..4].copy_from_slice(&self.sequence.to_be_bytes());
        let crc = crc32c(&batch[CRC_AT + 4..]);
        batch[CRC_AT..][..4].copy_from_slice(&crc.to_be_bytes());
        self.sequence = self.sequence.checked_add(self.records).expect("a short run");
        &self.produce
    }
}

pub fn find_coordinator(version: i16, transactional_id: &str) -> Vec<u8> {
    let request = FindCoordinatorRequest {
        key: transactional_id,
        key_type: TRANSACTION,
        ..Default::default()
    };
    frame(FIND_COORDINATOR, version, |w| request.encode(w, version))
}

/// InitProducerId; without a name it is idempotent alone.
pub fn init(version: i16, transactional_id: Option<&str>) -> Vec<u8> {
    let transaction_timeout_ms = TIMEOUT_MS;
    let request =
        InitProducerIdRequest { transactional_id, transaction_timeout_ms, ..Default::default() };
    frame(INIT_PRODUCER_ID, version, |w| request.encode(w, version))
}

/// The producer's id and epoch, or the error.
pub fn initialised(reply: &[u8], version: i16) -> Result<(i64, i16), i16> {
    let mut r = body(reply, INIT_PRODUCER_ID, version);
    let response = InitProducerIdResponse::decode(&mut r, version).expect("InitProducerId");
    match response.error_code {
        0 => Ok((response.producer_id, response.producer_epoch)),
        error => Err(error),
    }
}

/// The error of the only partition.
pub fn added(reply: &[u8], version: i16) -> i16 {
    let mut r = body(reply, ADD_PARTITIONS_TO_TXN, version);
    let response = AddPartitionsToTxnResponse::decode(&mut r, version).expect("AddPartitionsToTxn");
    let mut topics = response.results_by_topic_v3_and_below.iter();
    let first = topics.find_map(|topic| topic.results_by_partition.first());
    first.expect("a partition in the reply").partition_error_code
}

/// The error of an EndTxn.
pub fn ended(reply: &[u8], version: i16) -> i16 {
    let mut r = body(reply, END_TXN, version);
    EndTxnResponse::decode(&mut r, version).expect("EndTxn").error_code
}

pub fn list(version: i16) -> Vec<u8> {
    let request = ListTransactionsRequest::default();
    frame(LIST_TRANSACTIONS, version, |w| request.encode(w, version))
}

/// How many transactional ids the broker has, or its error.
pub fn listed(reply: &[u8], version: i16) -> Result<usize, i16> {
    let mut r = body(reply, LIST_TRANSACTIONS, version);
    let response = ListTransactionsResponse::decode(&mut r, version).expect("ListTransactions");
    match response.error_code {
        0 => Ok(response.transaction_states.len()),
        error => Err(error),
    }
}
