//! What logs name is not handed out again, whatever the metadata knows: ids of producers, leader
//! epochs.

use krust::broker::Event;
use krust::ids::{Epoch, TopicPartition};
use krust::protocol::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use krust::protocol::value::Value;
use krust::record::batch::{self, Batch, Builder, Entry, Fields, Rules};
use krust::record::compression::Codec;
use krust::wire::Reader;

use crate::double::{Frame, House, Made, NOW_MS, frame};
use crate::records::{TOPIC, batch_with, put};

fn write(house: &mut House, producer_id: i64) {
    let bytes = batch_with(&["a"], Codec::None, |fields| {
        (fields.producer_id, fields.producer_epoch, fields.base_sequence) = (producer_id, 0, 0);
    });
    let mut conn = house.connect();
    assert_eq!(put(house, &mut conn, (9, -1, &bytes)).0, 0);
}

fn append(house: &House, topic: &str, bytes: &[u8]) {
    let image = house.broker.image();
    let partition = image.topic(topic).unwrap().partition(0).unwrap();
    let log = &partition.local.as_ref().unwrap().log;
    let batch = Batch::parse(bytes).unwrap();
    let facts = batch::check(&batch, &Rules::default()).unwrap();
    log.commit(log.stage(&batch, &facts, NOW_MS).unwrap().staged).unwrap();
}

fn question() -> Frame {
    frame(22, 4, |w, v| InitProducerIdRequest::default().encode(w, v))
}

fn answered(reply: &[u8]) -> (i16, i64) {
    let response = InitProducerIdResponse::decode(&mut Reader::new(reply), 4).unwrap();
    (response.error_code, response.producer_id)
}

fn allocate(house: &House, first: i64, len: i64) {
    let event: Event = house.events().remove(0);
    assert_eq!(event.api, "AllocateProducerIds");
    let fields = [("producer_id_start", first), ("producer_id_len", len)];
    let fields = fields.map(|(name, number)| (name.into(), Value::Int(number)));
    house.broker.answer(event.ticket, &Value::Map(fields.into())).unwrap();
}

fn after_a_restart_with(producer_ids: &[i64]) -> House {
    let mut house = House::new();
    house.topic(TOPIC, Made::default());
    producer_ids.iter().for_each(|id| write(&mut house, *id));
    let mut house = house.again();
    house.topic(TOPIC, Made::default());
    house
}

#[test]
fn of_a_block_below_what_logs_name_only_the_rest_is_given() {
    let mut house = after_a_restart_with(&[5000, 17]);
    assert_eq!(house.broker.first_free_producer_id(), 5001);
    let mut conn = house.connect();
    house.event(&mut conn, &[question().bytes]);
    allocate(&house, 4999, 3);
    house.turn(&mut [&mut conn]);
    assert_eq!(answered(&conn.reply(&question())), (0, 5001));
}

#[test]
fn blocks_without_a_free_id_are_passed_over_and_then_refused() {
    let mut house = after_a_restart_with(&[5000]);
    let mut conn = house.connect();
    house.event(&mut conn, &[question().bytes]);
    allocate(&house, 0, 1000);
    allocate(&house, 1000, 1000);
    house.turn(&mut [&mut conn]);
    assert!(conn.is_waiting());
    allocate(&house, 2000, 1000);
    house.turn(&mut [&mut conn]);
    assert_eq!(answered(&conn.reply(&question())).0, 15);
    house.event(&mut conn, &[question().bytes]);
    allocate(&house, 6000, 1000);
    house.turn(&mut [&mut conn]);
    assert_eq!(answered(&conn.reply(&question())), (0, 6000));
}

#[test]
fn a_log_that_is_opened_later_bounds_the_block_at_hand() {
    let mut house = after_a_restart_with(&[1500]).again();
    let mut conn = house.connect();
    house.event(&mut conn, &[question().bytes]);
    allocate(&house, 1000, 1000);
    house.turn(&mut [&mut conn]);
    assert_eq!(answered(&conn.reply(&question())), (0, 1000));
    house.topic(TOPIC, Made::default());
    assert_eq!(answered(&house.ask(&mut conn, &question())), (0, 1501));
}

#[test]
fn an_id_that_no_controller_reaches_proves_nothing() {
    let house = after_a_restart_with(&[i64::MAX, i64::MAX / 2 + 1, 3]);
    assert_eq!(house.broker.first_free_producer_id(), 4);
}

#[test]
fn producers_of_transactions_count_by_their_metadata() {
    let mut house = House::new();
    let topic = "__transaction_state";
    house.topic(topic, Made::default());
    for (codec, id) in [(Codec::None, 70i64), (Codec::Gzip, 7000)] {
        let mut builder = Builder::new();
        let value = [&[0, 0][..], &id.to_be_bytes(), &[0; 20]].concat();
        let (key, value) = (Some(&b"\0\0\0\x01t"[..]), Some(&value[..]));
        builder.add(&Entry { timestamp: NOW_MS, key, value, ..Entry::default() });
        builder.add(&Entry { timestamp: NOW_MS, key, value: None, ..Entry::default() });
        append(&house, topic, &builder.to_bytes(&Fields { codec, ..Fields::default() }).unwrap());
    }
    let mut house = house.again();
    house.topic(topic, Made::default());
    assert_eq!(house.broker.first_free_producer_id(), 7001);
}

#[test]
fn a_leader_epoch_that_the_checkpoint_does_not_tell_is_told_too() {
    let mut house = House::new();
    house.topic(TOPIC, Made::default());
    write(&mut house, -1);
    let mut house = house.again();
    house.topic(TOPIC, Made::default());
    assert!(house.broker.take_newer_epochs().is_empty());
    let image = house.broker.image();
    let partition = image.topic(TOPIC).unwrap().partition(0).unwrap().local.clone().unwrap();
    let checkpoint = partition.log.dir().path().join("orders-0/leader-epoch-checkpoint");
    let mut house = {
        drop((image, partition));
        let house = house.again();
        std::fs::remove_file(checkpoint).unwrap();
        house
    };
    house.topic(TOPIC, Made::default());
    let newer = vec![(TopicPartition::new(TOPIC, 0), Epoch(0))];
    assert_eq!(house.broker.take_newer_epochs(), newer);
}

#[test]
fn a_leader_epoch_below_that_of_the_log_is_told_and_not_written() {
    let mut house = House::new();
    house.topic(TOPIC, Made::default());
    let log = |house: &House| {
        let image = house.broker.image();
        image.topic(TOPIC).unwrap().partition(0).unwrap().local.clone().unwrap()
    };
    log(&house).log.set_leader_epoch(Epoch(7));
    write(&mut house, -1);
    let mut house = house.again();
    house.topic(TOPIC, Made::default());
    let newer = vec![(TopicPartition::new(TOPIC, 0), Epoch(7))];
    assert_eq!(house.broker.take_newer_epochs(), newer);
    assert!(house.broker.take_newer_epochs().is_empty());
    write(&mut house, -1);
    assert_eq!(log(&house).log.latest_epoch(), Epoch(7));
}
