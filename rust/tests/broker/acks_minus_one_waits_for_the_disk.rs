//! Where every append is flushed, no acknowledgement leaves before the disk has the records.

use crate::double::{Made, TestBroker};
use crate::records::{Fetch, TOPIC, batch, get, produce, produced};

fn flushed_before_ack() -> TestBroker {
    let mut fixture = TestBroker::new();
    let mut made = Made::default();
    made.config.ack_flush = true;
    made.config.flush_messages = 1;
    fixture.topic(TOPIC, made);
    fixture
}

#[test]
fn replies_leave_in_order_after_the_flush() {
    let mut fixture = flushed_before_ack();
    let mut conn = fixture.connect();
    for acks in [1, -1] {
        let (first, second) = (produce(9, acks, &batch(&["a"])), produce(9, acks, &batch(&["b"])));
        fixture.event(&mut conn, &[first.bytes.clone(), second.bytes.clone()]);
        fixture.turn_until_sent(&mut conn);
        let first_answer = produced(9, &conn.reply(&first));
        while conn.is_waiting() {
            fixture.turn(&mut [&mut conn]);
        }
        let second_answer = produced(9, &conn.reply(&second));
        assert_eq!((first_answer.0, second_answer.0), (0, 0));
        assert_eq!(first_answer.1 + 1, second_answer.1);
    }
    let partition = fixture.broker.partitions().remove(0);
    assert_eq!(partition.log.flushed_offset().0, 4);
    assert_eq!(get(&mut fixture, &mut conn, Fetch::default()).1, 4);
}

#[test]
fn appends_beyond_the_unflushed_allowance_wait_too() {
    let mut fixture = TestBroker::new();
    let mut made = Made::default();
    made.config.flush_messages = 4;
    fixture.topic(TOPIC, made);
    let mut conn = fixture.connect();
    for number in 1..=9 {
        let request = produce(9, 1, &batch(&["a"]));
        fixture.event(&mut conn, std::slice::from_ref(&request.bytes));
        while conn.is_waiting() {
            fixture.turn(&mut [&mut conn]);
        }
        assert_eq!(produced(9, &conn.reply(&request)), (0, number - 1));
        let partition = fixture.broker.partitions().remove(0);
        assert!(partition.log.flushed_offset().0 + 3 >= number, "{number}");
    }
}

#[test]
fn waiting_replies_of_a_closed_connection_are_dropped() {
    let mut fixture = flushed_before_ack();
    let mut conn = fixture.connect();
    fixture.event(&mut conn, &[produce(9, -1, &batch(&["a"])).bytes]);
    fixture.close(conn);
    let mut other = fixture.connect();
    fixture.event(&mut other, &[produce(9, -1, &batch(&["b"])).bytes]);
    fixture.turn_until_sent(&mut other);
}
