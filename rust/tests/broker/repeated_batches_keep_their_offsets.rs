//! An idempotent producer that repeats a batch gets its original offsets.

use krust::record::compression::Codec;

use crate::double::{Made, TestBroker};
use crate::records::{TOPIC, batch_with, produce, produced, put};

fn sent(sequence: i32, values: &[&str]) -> Vec<u8> {
    batch_with(values, Codec::None, |fields| {
        (fields.producer_id, fields.producer_epoch, fields.base_sequence) = (7, 0, sequence);
    })
}

#[test]
fn a_batch_repeated_within_one_event_keeps_its_offset() {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let mut conn = fixture.connect();
    assert_eq!(put(&mut fixture, &mut conn, (9, -1, &sent(0, &["a", "b"]))), (0, 0));
    assert_eq!(put(&mut fixture, &mut conn, (9, -1, &sent(2, &["c"]))), (0, 2));
    assert_eq!(put(&mut fixture, &mut conn, (9, -1, &sent(0, &["a", "b"]))), (0, 0));
    assert_eq!(put(&mut fixture, &mut conn, (9, -1, &sent(9, &["z"]))).0, 45);

    let request = produce(9, -1, &sent(3, &["d"]));
    fixture.event(&mut conn, &[request.bytes.clone(), request.bytes.clone()]);
    let first = conn.reply(&request);
    let again = conn.reply(&request);
    assert_eq!((produced(9, &first), produced(9, &again)), ((0, 3), (0, 3)));
}
