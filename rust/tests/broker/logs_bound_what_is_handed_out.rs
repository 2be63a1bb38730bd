//! Producer ids and leader epochs that logs name are not assigned again, whatever the metadata
//! knows.

use krust::broker::Event;
use krust::ids::{Epoch, TopicPartition};
use krust::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use krust::protocol::value::Value;
use krust::record::batch::{self, Batch, BatchBuilder, BatchFields, NewRecord, ValidationRules};
use krust::record::compression::Codec;
use krust::storage::NewBatch;
use krust::wire::Reader;

use crate::double::{Frame, Made, NOW_MS, TestBroker, frame};
use crate::records::{TOPIC, batch_with, put};

fn write(fixture: &mut TestBroker, producer_id: i64) {
    let bytes = batch_with(&["a"], Codec::None, |fields| {
        (fields.producer_id, fields.producer_epoch, fields.base_sequence) = (producer_id, 0, 0);
    });
    let mut conn = fixture.connect();
    assert_eq!(put(fixture, &mut conn, (9, -1, &bytes)).0, 0);
}

fn append(fixture: &TestBroker, topic: &str, bytes: &[u8]) {
    let image = fixture.broker.image();
    let partition = image.topic(topic).unwrap().partition(0).unwrap();
    let log = &partition.local.as_ref().unwrap().log;
    let batch = Batch::parse(bytes).unwrap();
    let validated = batch::check(&batch, &ValidationRules::default()).unwrap();
    log.commit(log.stage(&NewBatch::new(&batch, &validated, NOW_MS)).unwrap().staged).unwrap();
}

fn question() -> Frame {
    frame(22, 4, |w, v| InitProducerIdRequest::default().encode(w, v))
}

fn answered(reply: &[u8]) -> (i16, i64) {
    let response = InitProducerIdResponse::decode(&mut Reader::new(reply), 4).unwrap();
    (response.error_code, response.producer_id)
}

fn allocate(fixture: &TestBroker, first: i64, len: i64) {
    let event: Event = fixture.events().remove(0);
    assert_eq!(event.api, "AllocateProducerIds");
    let fields = [("producer_id_start", first), ("producer_id_len", len)];
    let fields = fields.map(|(name, number)| (name.into(), Value::Int(number)));
    fixture.broker.answer(event.ticket, &Value::Map(fields.into())).unwrap();
}

fn after_a_restart_with(producer_ids: &[i64]) -> TestBroker {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    producer_ids.iter().for_each(|id| write(&mut fixture, *id));
    let mut fixture = fixture.again();
    fixture.topic(TOPIC, Made::default());
    fixture
}

#[test]
fn ids_of_a_block_that_logs_name_are_skipped() {
    let mut fixture = after_a_restart_with(&[5000, 17]);
    assert_eq!(fixture.broker.first_free_producer_id(), 5001);
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[question().bytes]);
    allocate(&fixture, 4999, 3);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(answered(&conn.reply(&question())), (0, 5001));
}

#[test]
fn blocks_without_a_free_id_are_skipped_and_then_refused() {
    let mut fixture = after_a_restart_with(&[5000]);
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[question().bytes]);
    allocate(&fixture, 0, 1000);
    allocate(&fixture, 1000, 1000);
    fixture.turn(&mut [&mut conn]);
    assert!(conn.is_waiting());
    allocate(&fixture, 2000, 1000);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(answered(&conn.reply(&question())).0, 15);
    fixture.event(&mut conn, &[question().bytes]);
    allocate(&fixture, 6000, 1000);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(answered(&conn.reply(&question())), (0, 6000));
}

#[test]
fn a_log_that_is_opened_later_bounds_the_block_at_hand() {
    let mut fixture = after_a_restart_with(&[1500]).again();
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[question().bytes]);
    allocate(&fixture, 1000, 1000);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(answered(&conn.reply(&question())), (0, 1000));
    fixture.topic(TOPIC, Made::default());
    assert_eq!(answered(&fixture.ask(&mut conn, &question())), (0, 1501));
}

#[test]
fn a_producer_id_beyond_every_block_is_ignored() {
    let fixture = after_a_restart_with(&[i64::MAX, i64::MAX / 2 + 1, 3]);
    assert_eq!(fixture.broker.first_free_producer_id(), 4);
}

#[test]
fn producers_of_transactions_count_by_their_metadata() {
    let mut fixture = TestBroker::new();
    let topic = "__transaction_state";
    fixture.topic(topic, Made::default());
    for (codec, id) in [(Codec::None, 70i64), (Codec::Gzip, 7000)] {
        let mut builder = BatchBuilder::new();
        let value = [&[0, 0][..], &id.to_be_bytes(), &[0; 27]].concat();
        let (key, value) = (Some(&b"\0\0\0\x01t"[..]), Some(&value[..]));
        builder.add(&NewRecord { timestamp: NOW_MS, key, value, ..NewRecord::default() });
        builder.add(&NewRecord { timestamp: NOW_MS, key, value: None, ..NewRecord::default() });
        append(
            &fixture,
            topic,
            &builder.to_bytes(&BatchFields { codec, ..BatchFields::default() }).unwrap(),
        );
    }
    let mut fixture = fixture.again();
    fixture.topic(topic, Made::default());
    assert_eq!(fixture.broker.first_free_producer_id(), 7001);
}

#[test]
fn a_leader_epoch_that_the_checkpoint_lacks_is_reported() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    write(&mut fixture, -1);
    let mut fixture = fixture.again();
    fixture.topic(TOPIC, Made::default());
    assert!(fixture.broker.take_newer_epochs().is_empty());
    let image = fixture.broker.image();
    let partition = image.topic(TOPIC).unwrap().partition(0).unwrap().local.clone().unwrap();
    let checkpoint = partition.log.dir().path().join("orders-0/leader-epoch-checkpoint");
    let mut fixture = {
        drop((image, partition));
        let fixture = fixture.again();
        std::fs::remove_file(checkpoint).unwrap();
        fixture
    };
    fixture.topic(TOPIC, Made::default());
    let newer = vec![(TopicPartition::new(TOPIC, 0), Epoch(0))];
    assert_eq!(fixture.broker.take_newer_epochs(), newer);
}

#[test]
fn a_leader_epoch_below_that_of_the_log_is_reported_and_not_written() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let log = |fixture: &TestBroker| {
        let image = fixture.broker.image();
        image.topic(TOPIC).unwrap().partition(0).unwrap().local.clone().unwrap()
    };
    log(&fixture).log.set_leader_epoch(Epoch(7));
    write(&mut fixture, -1);
    let mut fixture = fixture.again();
    fixture.topic(TOPIC, Made::default());
    let newer = vec![(TopicPartition::new(TOPIC, 0), Epoch(7))];
    assert_eq!(fixture.broker.take_newer_epochs(), newer);
    assert!(fixture.broker.take_newer_epochs().is_empty());
    write(&mut fixture, -1);
    assert_eq!(log(&fixture).log.latest_epoch(), Epoch(7));
}
