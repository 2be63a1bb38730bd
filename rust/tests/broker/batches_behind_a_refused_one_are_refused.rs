//! A batch behind one that was refused for a temporary reason is refused for the same reason: to a
//! producer, a gap in the sequence would mean that records were lost.

use krust::record::compression::Codec;

use crate::double::{Conn, TestBroker};
use crate::records::{batch_with, produce, produced, put};
use crate::replicas::{PartitionAssignment, leader};

const NOT_LEADER: i16 = 6;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const OUT_OF_ORDER: i16 = 45;

fn send(fixture: &mut TestBroker, conn: &mut Conn, (acks, sequence): (i16, i32)) -> i16 {
    put(fixture, conn, (9, acks, &records("a", Codec::None, sequence))).0
}

fn records(value: &str, codec: Codec, sequence: i32) -> Vec<u8> {
    batch_with(&[value], codec, |fields| {
        (fields.producer_id, fields.producer_epoch, fields.base_sequence) = (7, 0, sequence);
    })
}

#[test]
fn a_producer_that_asks_a_leader_too_early_sends_its_batches_again_in_order() {
    let assigned = PartitionAssignment::default();
    let mut fixture = leader(&assigned);
    let (mut early, mut other) = (fixture.connect(), fixture.connect());
    assert_eq!(send(&mut fixture, &mut early, (1, 0)), 0);
    PartitionAssignment { leader: 1, leader_epoch: 6, partition_epoch: 8, ..assigned.clone() }
        .to(&mut fixture);
    assert_eq!(send(&mut fixture, &mut early, (1, 1)), NOT_LEADER);
    PartitionAssignment { leader_epoch: 7, partition_epoch: 9, ..assigned }.to(&mut fixture);
    assert_eq!(send(&mut fixture, &mut early, (1, 2)), NOT_LEADER);
    assert_eq!(send(&mut fixture, &mut other, (1, 2)), OUT_OF_ORDER, "it has sent nothing before");
    for sequence in [1, 2] {
        assert_eq!(send(&mut fixture, &mut early, (1, sequence)), 0);
    }
    assert_eq!(send(&mut fixture, &mut early, (1, 9)), OUT_OF_ORDER, "nothing is refused any more");
}

#[test]
fn a_worker_knows_what_was_refused_before_its_batch() {
    let assigned = PartitionAssignment::default();
    let mut fixture = leader(&assigned);
    let mut conn = fixture.connect();
    assert_eq!(send(&mut fixture, &mut conn, (1, 0)), 0);
    PartitionAssignment { leader: 1, leader_epoch: 6, partition_epoch: 8, ..assigned.clone() }
        .to(&mut fixture);
    assert_eq!(send(&mut fixture, &mut conn, (1, 1)), NOT_LEADER);
    PartitionAssignment { leader_epoch: 7, partition_epoch: 9, ..assigned }.to(&mut fixture);
    let large = produce(9, 1, &records(&"x".repeat(6 << 20), Codec::Gzip, 2));
    fixture.event(&mut conn, std::slice::from_ref(&large.bytes));
    assert!(conn.is_waiting(), "a worker inflates it");
    fixture.turn_until_sent(&mut conn);
    assert_eq!(produced(9, &conn.reply(&large)).0, NOT_LEADER);
}

#[test]
fn too_few_replicas_in_sync_leave_no_gap() {
    let few = PartitionAssignment { isr: vec![0], min_insync_replicas: 2, ..Default::default() };
    let mut fixture = leader(&few);
    let mut conn = fixture.connect();
    assert_eq!(send(&mut fixture, &mut conn, (1, 0)), 0);
    assert_eq!(send(&mut fixture, &mut conn, (-1, 1)), NOT_ENOUGH_REPLICAS);
    assert_eq!(send(&mut fixture, &mut conn, (1, 2)), NOT_ENOUGH_REPLICAS);
    for sequence in [1, 2] {
        assert_eq!(send(&mut fixture, &mut conn, (1, sequence)), 0);
    }
}
