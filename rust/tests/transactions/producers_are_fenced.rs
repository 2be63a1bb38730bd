//! Who is fenced by whom: InitProducerId, with and without the producer that it goes on from.

use krust::broker::transactions::transaction::TransactionState::{
    CompleteAbort, CompleteCommit, Empty, PrepareAbort,
};
use krust::protocol::ErrorCode::{
    ConcurrentTransactions, InvalidProducerIdMapping, InvalidTransactionTimeout, ProducerFenced,
};

use crate::id::{Id, V0, V2, producer};

#[test]
fn each_new_producer_gets_the_next_epoch_and_fences_the_one_before() {
    let mut id = Id::initialised();
    assert_eq!(id.init(None), Ok(producer(1, 1)));
    assert_eq!(id.state(), Empty);
    for version in [V0, V2] {
        assert_eq!(id.end(version, producer(1, 0), false), Err(ProducerFenced));
    }
    assert_eq!(id.add(producer(1, 0), 0), Err(ProducerFenced));
    assert_eq!(id.add(producer(1, 2), 0), Err(ProducerFenced), "nobody has this epoch yet");
    assert_eq!(id.add(producer(9, 1), 0), Err(InvalidProducerIdMapping));
    assert_eq!(id.end(V0, producer(9, 1), true), Err(InvalidProducerIdMapping));
    assert_eq!(id.end(V2, producer(9, 1), true), Err(InvalidProducerIdMapping));
    assert_eq!(id.add(producer(1, 1), 0), Ok(()));
}

#[test]
fn a_new_producer_aborts_the_open_transaction_of_the_one_before() {
    let mut id = Id::ongoing();
    assert_eq!(id.init(None), Err(ConcurrentTransactions));
    assert_eq!((id.state(), id.producer()), (PrepareAbort, producer(1, 1)));
    assert_eq!(id.end(V0, producer(1, 0), true), Err(ProducerFenced));
    assert_eq!(id.end(V2, producer(1, 0), true), Err(ProducerFenced));
    assert_eq!(id.init(None), Err(ConcurrentTransactions));
    id.written();
    assert_eq!(id.init(None), Ok(producer(1, 2)));
    assert_eq!(id.state(), Empty);
}

#[test]
fn a_timeout_must_be_positive_and_no_longer_than_the_broker_allows() {
    for timeout_ms in [-1, 0, 900_001, i32::MAX] {
        let mut id = Id::initialised();
        let before = id.now.clone();
        assert_eq!(id.init_for(timeout_ms, None), Err(InvalidTransactionTimeout));
        assert_eq!(id.now, before);
        assert_eq!(Id::default().init_for(timeout_ms, None), Err(InvalidTransactionTimeout));
    }
    assert_eq!(Id::initialised().init_for(900_000, None), Ok(producer(1, 1)));
}

#[test]
fn a_producer_that_goes_on_after_an_error_gets_the_next_epoch() {
    for state in [Empty, CompleteCommit, CompleteAbort] {
        let mut id = Id::in_state(state, V0);
        assert_eq!(id.init(Some(producer(1, 0))), Ok(producer(1, 1)));
        assert_eq!(id.init(Some(producer(1, 0))), Ok(producer(1, 1)), "the answer was lost");
        assert_eq!(id.init(Some(producer(1, 1))), Ok(producer(1, 2)));
        assert_eq!(id.init(Some(producer(1, 0))), Err(ProducerFenced));
    }
}

#[test]
fn a_producer_that_another_has_replaced_cannot_go_on() {
    let mut id = Id::initialised();
    assert_eq!(id.init(None), Ok(producer(1, 1)));
    assert_eq!(id.init(Some(producer(1, 0))), Err(ProducerFenced));
    assert_eq!(id.init(Some(producer(7, 1))), Err(ProducerFenced));
    assert_eq!(id.producer(), producer(1, 1));
}

#[test]
fn a_producer_whose_id_was_forgotten_gets_a_new_one() {
    let mut id = Id::default();
    assert_eq!(id.init(Some(producer(77, 4))), Ok(producer(1, 0)));
}
