//! A batch behind one that was refused for a temporary reason is refused for the same reason: to a
//! producer, a gap in the sequence would mean that records were lost.

use krust::record::compression::Codec;

use crate::double::{Conn, TestBroker};
use crate::records::{batch_with, put};
use crate::replicas::{PartitionAssignment, leader};

const NOT_LEADER: i16 = 6;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const OUT_OF_ORDER: i16 = 45;

fn send(fixture: &mut TestBroker, conn: &mut Conn, (acks, sequence): (i16, i32)) -> i16 {
    let batch = batch_with(&["a"], Codec::None, |fields| {
        (fields.producer_id, fields.producer_epoch, fields.base_sequence) = (7, 0, sequence);
    });
    put(fixture, conn, (9, acks, &batch)).0
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
