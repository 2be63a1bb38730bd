//! After the epoch 32766 the producer id is replaced. The epoch 32767 fences and is nobody's.

use krust::broker::transactions::step::Event;
use krust::broker::transactions::transaction::LAST_EPOCH;
use krust::broker::transactions::transaction::TransactionState::{
    CompleteAbort, CompleteCommit, Ongoing, PrepareAbort,
};
use krust::protocol::ErrorCode::{
    ConcurrentTransactions, InvalidProducerIdMapping, InvalidTxnState, ProducerFenced,
};

use crate::id::{Id, V0, V2, producer};

#[test]
fn init_producer_id_replaces_the_id_after_the_last_epoch() {
    let mut id = Id::initialised();
    id.now.as_mut().unwrap().producer.epoch = LAST_EPOCH - 1;
    assert_eq!(id.init(None), Ok(producer(1, LAST_EPOCH)));
    assert_eq!(id.init(None), Ok(producer(2, 0)));
    assert_eq!(id.add(producer(1, LAST_EPOCH), 0), Err(InvalidProducerIdMapping));
}

#[test]
fn a_producer_that_lost_the_answer_with_the_new_id_gets_it_again() {
    let mut id = Id::initialised();
    id.now.as_mut().unwrap().producer.epoch = LAST_EPOCH;
    let last = producer(1, LAST_EPOCH);
    assert_eq!(id.init(Some(last)), Ok(producer(2, 0)));
    assert_eq!(id.init(Some(last)), Ok(producer(2, 0)));
    assert_eq!(id.init(Some(producer(1, 3))), Err(ProducerFenced));
    id.add(producer(2, 0), 0).unwrap();
    assert_eq!(id.init(Some(last)), Err(ProducerFenced), "the new id was used");
}

#[test]
fn a_fenced_last_epoch_is_followed_by_a_new_id() {
    let mut id = Id::ongoing_at(LAST_EPOCH);
    assert_eq!(id.init(None), Err(ConcurrentTransactions));
    assert_eq!(id.producer(), producer(1, i16::MAX));
    id.written();
    assert_eq!(id.init(None), Ok(producer(2, 0)));
}

#[test]
fn the_last_end_under_v2_replaces_the_id_when_the_markers_are_written() {
    let mut id = Id::ongoing_at(LAST_EPOCH);
    let last = producer(1, LAST_EPOCH);
    assert_eq!(id.end(V2, last, true), Ok(producer(2, 0)));
    assert_eq!(id.producer(), producer(1, i16::MAX), "the markers fence the old id");
    for next in [last, producer(2, 0)] {
        assert_eq!(id.end(V2, next, true), Err(ConcurrentTransactions));
    }
    assert_eq!(id.add(producer(2, 0), 0), Err(ConcurrentTransactions));
    id.written();
    assert_eq!((id.state(), id.producer()), (CompleteCommit, producer(2, 0)));
    assert_eq!(id.end(V2, last, true), Ok(producer(2, 0)), "a retry");
    assert_eq!(id.end(V2, last, false), Err(InvalidTxnState));
    id.add(producer(2, 0), 0).unwrap();
    assert_eq!(id.end(V2, last, true), Err(InvalidProducerIdMapping), "it comes too late");
    assert_eq!(id.state(), Ongoing);
}

#[test]
fn an_old_client_ends_at_the_last_epoch_and_keeps_its_id() {
    let mut id = Id::ongoing_at(LAST_EPOCH);
    let last = producer(1, LAST_EPOCH);
    assert_eq!(id.end(V0, last, true), Ok(last));
    id.written();
    assert_eq!(id.producer(), last);
    assert_eq!(id.init(Some(last)), Ok(producer(2, 0)));
}

#[test]
fn no_client_goes_on_with_the_epoch_that_only_fences() {
    let mut id = Id::ongoing_at(LAST_EPOCH);
    id.now_ms += 1_000_000;
    id.step(&Event::TimedOut).unwrap();
    assert_eq!(id.state(), PrepareAbort);
    let last = producer(1, LAST_EPOCH);
    assert_eq!(id.end(V2, last, false), Err(ProducerFenced));
    id.written();
    assert_eq!(id.state(), CompleteAbort);
    assert_eq!(id.end(V2, last, false), Err(ProducerFenced));
    assert_eq!(id.init(Some(last)), Err(ProducerFenced));
    assert_eq!(id.init(None), Ok(producer(2, 0)));
}
