//! Requests of transactional producers for the tests.

use krust::broker::transactions::records::{TopicNames, TransactionRecord, read};
use krust::broker::transactions::transaction::{ProducerIdentity, Transaction, TransactionState};
use krust::protocol::add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use krust::protocol::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction, V3AndBelowTopic,
};
use krust::protocol::end_txn::{EndTxnRequest, EndTxnResponse};
use krust::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use krust::protocol::value::Value;
use krust::record::batch;
use krust::record::control::ControlRecord;
use krust::storage::LogConfig;
use krust::wire::Reader;

use crate::double::{Conn, Frame, Made, TestBroker, frame, map, until};
use crate::records::TOPIC;

/// The topic of transactional ids.
pub const TRANSACTIONS: &str = "__transaction_state";
/// A transactional id, and its partition of 50.
pub const ID: (&str, i32) = ("copier", 24);
/// The first producer id that the tests' policy gives.
pub const FIRST_ID: i64 = 5000;
const TIMEOUT_MS: i32 = 60_000;

/// A fixture with the topic of transactional ids (id 8), and [`TOPIC`] with 3 partitions (id 1).
pub fn fixture() -> TestBroker {
    let mut fixture = TestBroker::new();
    create_topics(&mut fixture);
    fixture
}

/// The same topics in a fixture that has none.
pub fn create_topics(fixture: &mut TestBroker) {
    fixture.topic(TOPIC, Made { partitions: 3, ..Made::default() });
    fixture.topic(TRANSACTIONS, transactions_topic());
}

pub fn transactions_topic() -> Made {
    let config = LogConfig { compact: true, delete: false, ..LogConfig::default() };
    Made { partitions: 50, id: 8, config }
}

/// An InitProducerId. It begins anew, or goes on from `expected`.
pub fn init(version: i16, id: &str, expected: Option<ProducerIdentity>) -> Frame {
    let expected = expected.unwrap_or(ProducerIdentity::NONE);
    let request = InitProducerIdRequest {
        transactional_id: Some(id),
        transaction_timeout_ms: TIMEOUT_MS,
        producer_id: expected.id,
        producer_epoch: expected.epoch,
    };
    frame(22, version, |writer, version| request.encode(writer, version))
}

/// Sends an InitProducerId; a block of ids is given if the broker asks for one. Returns the code
/// and the producer.
pub fn initialised(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    request: &Frame,
) -> (i16, ProducerIdentity) {
    fixture.event(conn, std::slice::from_ref(&request.bytes));
    give_ids(fixture, conn);
    let reply = conn.reply(request);
    let response = InitProducerIdResponse::decode(&mut Reader::new(&reply), request.version);
    let response = response.unwrap();
    let producer = ProducerIdentity { id: response.producer_id, epoch: response.producer_epoch };
    (response.error_code, producer)
}

/// Gives the broker a block of producer ids, if it asks.
pub fn give_ids(fixture: &mut TestBroker, conn: &mut Conn) {
    for event in fixture.events() {
        if event.api == "AllocateProducerIds" {
            let start = FIRST_ID.max(fixture.broker.first_free_producer_id());
            let block = map(vec![
                ("producer_id_start", Value::Int(start)),
                ("producer_id_len", Value::Int(1000)),
            ]);
            fixture.broker.answer(event.ticket, &block).unwrap();
            fixture.turn(&mut [conn]);
        }
    }
}

/// A producer of a new transactional id, or the next one of an old id. An open transaction is
/// aborted first.
pub fn producer(fixture: &mut TestBroker, conn: &mut Conn, id: &str) -> ProducerIdentity {
    let mut found = None;
    until("no producer", || {
        let (code, producer) = initialised(fixture, conn, &init(4, id, None));
        assert!([0, 14, 51].contains(&code), "{code}");
        found = (code == 0).then_some(producer);
        found.is_some()
    });
    found.unwrap()
}

/// An AddPartitionsToTxn for partitions of [`TOPIC`]: version, id, producer.
pub fn add(version: i16, id: &str, producer: ProducerIdentity, partitions: &[i32]) -> Frame {
    let partitions = partitions.to_vec();
    let request = match version {
        0..=3 => AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: id,
            v3_and_below_producer_id: producer.id,
            v3_and_below_producer_epoch: producer.epoch,
            v3_and_below_topics: vec![V3AndBelowTopic { name: TOPIC, partitions }],
            ..Default::default()
        },
        _ => AddPartitionsToTxnRequest {
            transactions: vec![AddPartitionsToTxnTransaction {
                transactional_id: id,
                producer_id: producer.id,
                producer_epoch: producer.epoch,
                verify_only: false,
                topics: vec![AddPartitionsToTxnTopic { name: TOPIC, partitions }],
            }],
            ..Default::default()
        },
    };
    frame(24, version, |writer, version| request.encode(writer, version))
}

/// The code of each partition.
pub fn added(fixture: &mut TestBroker, conn: &mut Conn, request: &Frame) -> Vec<i16> {
    let reply = fixture.ask(conn, request);
    let response = AddPartitionsToTxnResponse::decode(&mut Reader::new(&reply), request.version);
    let response = response.unwrap();
    let old = response.results_by_topic_v3_and_below.iter();
    let old = old.flat_map(|topic| topic.results_by_partition.iter());
    let many = response.results_by_transaction.iter().flat_map(|one| one.topic_results.iter());
    let many = many.flat_map(|topic| topic.results_by_partition.iter());
    old.map(|one| one.partition_error_code)
        .chain(many.map(|one| one.partition_error_code))
        .collect()
}

/// Sends an AddOffsetsToTxn. Returns its code.
pub fn offsets_added(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    (version, id, producer, group_id): (i16, &str, ProducerIdentity, &str),
) -> i16 {
    let request = AddOffsetsToTxnRequest {
        transactional_id: id,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        group_id,
    };
    let request = frame(25, version, |writer, version| request.encode(writer, version));
    let reply = fixture.ask(conn, &request);
    AddOffsetsToTxnResponse::decode(&mut Reader::new(&reply), version).unwrap().error_code
}

/// An EndTxn: version, id, producer, whether it commits.
pub fn end((version, id, producer, committed): (i16, &str, ProducerIdentity, bool)) -> Frame {
    let request = EndTxnRequest {
        transactional_id: id,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        committed,
    };
    frame(26, version, |writer, version| request.encode(writer, version))
}

/// Sends an EndTxn, and waits until its markers are written. Returns its code and the producer to
/// go on with.
pub fn ended(
    fixture: &mut TestBroker,
    conn: &mut Conn,
    request: (i16, &str, ProducerIdentity, bool),
) -> (i16, ProducerIdentity) {
    let request = end(request);
    fixture.event(conn, std::slice::from_ref(&request.bytes));
    give_ids(fixture, conn);
    fixture.turn_until_sent(conn);
    end_reply(conn, &request)
}

/// The code of an EndTxn, and the producer to go on with.
pub fn end_reply(conn: &mut Conn, request: &Frame) -> (i16, ProducerIdentity) {
    let reply = conn.reply(request);
    let response = EndTxnResponse::decode(&mut Reader::new(&reply), request.version).unwrap();
    let producer = ProducerIdentity { id: response.producer_id, epoch: response.producer_epoch };
    (response.error_code, producer)
}

/// The newest state of each record of a transactional id's partition of 50, in order.
pub fn states(fixture: &TestBroker, partition: i32) -> Vec<(String, Option<Transaction>)> {
    let mut found = Vec::new();
    let mut topics = TopicNames::default();
    let bytes = fixture.log(TRANSACTIONS, partition);
    for batch in batch::iter(&bytes) {
        for record in batch.unwrap().records() {
            let record = record.unwrap();
            match read(record.key, record.value, &mut topics).unwrap() {
                TransactionRecord::Updated(id, now) => found.push((id.to_owned(), Some(now))),
                TransactionRecord::Removed(id) => found.push((id.to_owned(), None)),
                TransactionRecord::Other => panic!("an unknown record"),
            }
        }
    }
    found
}

/// The last state of [`ID`] in the log.
pub fn last_state(fixture: &TestBroker) -> Option<TransactionState> {
    states(fixture, ID.1).pop()?.1.map(|transaction| transaction.state)
}

/// Waits until the log says that the transaction of [`ID`] is complete.
pub fn wait_until_complete(fixture: &TestBroker) {
    until("never complete", || {
        let complete = [TransactionState::CompleteCommit, TransactionState::CompleteAbort];
        last_state(fixture).is_some_and(|state| complete.contains(&state))
    });
}

/// The markers in a partition of [`TOPIC`]: producer, epoch, whether it commits.
pub fn markers(fixture: &TestBroker, partition: i32) -> Vec<(i64, i16, bool)> {
    let mut found = Vec::new();
    let bytes = fixture.log(TOPIC, partition);
    for batch in batch::iter(&bytes) {
        let batch = batch.unwrap();
        if !batch.is_control() {
            continue;
        }
        let record = batch.records().next().unwrap().unwrap();
        let ControlRecord::EndTransaction { commit, .. } = ControlRecord::parse(&record).unwrap()
        else {
            panic!("a control record of another type")
        };
        found.push((batch.header().producer_id, batch.header().producer_epoch, commit));
    }
    found
}
