//! How a transaction begins and ends, and what a late or repeated request gets.

use krust::broker::transactions::step::{Event, Outcome};
use krust::broker::transactions::transaction::TransactionState::{
    self, CompleteAbort, CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit,
};
use krust::protocol::ErrorCode::{
    self, ConcurrentTransactions, InvalidProducerIdMapping, InvalidTxnState, None as NoError,
    ProducerFenced, TransactionAbortable,
};

use crate::id::{Id, TIMEOUT_MS, V0, V2, producer};

const ALL: [TransactionState; 6] =
    [Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort];

#[test]
fn the_first_partition_begins_a_transaction_and_the_last_marker_completes_it() {
    for (version, commit, prepared, complete) in [
        (V0, true, PrepareCommit, CompleteCommit),
        (V0, false, PrepareAbort, CompleteAbort),
        (V2, true, PrepareCommit, CompleteCommit),
        (V2, false, PrepareAbort, CompleteAbort),
    ] {
        let mut id = Id::initialised();
        id.now_ms = 5000;
        id.add(producer(1, 0), 0).unwrap();
        id.now_ms = 6000;
        id.add(producer(1, 0), 1).unwrap();
        let now = id.now.clone().unwrap();
        assert_eq!((now.state, now.start_ms, now.partitions.len()), (Ongoing, 5000, 2));
        let next = id.end(version, producer(1, 0), commit).unwrap();
        assert_eq!(id.state(), prepared);
        assert_eq!(id.now.as_ref().unwrap().partitions.len(), 2);
        id.written();
        assert_eq!((id.state(), id.producer()), (complete, next));
        assert!(id.now.as_ref().unwrap().partitions.is_empty());
        assert_eq!(next, if version == V2 { producer(1, 1) } else { producer(1, 0) });
        id.add(next, 0).unwrap();
        assert_eq!(id.state(), Ongoing);
    }
}

#[test]
fn partitions_that_were_added_before_change_nothing() {
    let mut id = Id::ongoing();
    let before = id.now.clone();
    id.now_ms += 10;
    id.add(producer(1, 0), 0).unwrap();
    assert_eq!(id.now, before);
}

/// The code of an EndTxn in each state, for its epoch 0; `None`: success.
fn codes(
    version: krust::broker::transactions::transaction::ClientTransactionVersion,
    commit: bool,
) -> Vec<Option<ErrorCode>> {
    let code = |state| Id::in_state(state, version).end(version, producer(1, 0), commit).err();
    ALL.map(code).to_vec()
}

#[test]
fn an_old_client_may_repeat_how_it_ended_its_transaction_but_not_change_it() {
    let (other, busy) = (Some(InvalidTxnState), Some(ConcurrentTransactions));
    assert_eq!(codes(V0, true), [other, None, busy, other, None, other]);
    assert_eq!(codes(V0, false), [other, None, other, busy, other, None]);
}

#[test]
fn a_retry_under_v2_has_the_epoch_before_and_gets_the_next_producer_again() {
    let (other, busy) = (Some(InvalidTxnState), Some(ConcurrentTransactions));
    assert_eq!(codes(V2, true), [other, None, busy, other, None, other]);
    assert_eq!(codes(V2, false), [None, None, other, busy, other, None]);
    for state in [CompleteCommit, CompleteAbort] {
        let mut id = Id::in_state(state, V2);
        let before = id.now.clone();
        assert_eq!(id.end(V2, producer(1, 0), state == CompleteCommit), Ok(producer(1, 1)));
        assert_eq!(id.now, before);
    }
}

#[test]
fn under_v2_a_client_may_abort_before_it_has_added_a_partition() {
    for (state, epoch) in [(Empty, 0), (CompleteCommit, 1), (CompleteAbort, 1)] {
        let mut id = Id::in_state(state, V2);
        assert_eq!(id.end(V2, producer(1, epoch), true), Err(InvalidTxnState));
        assert_eq!(id.end(V2, producer(1, epoch), false), Ok(producer(1, epoch + 1)));
        let now = id.now.clone().unwrap();
        assert_eq!((now.state, now.partitions.len()), (PrepareAbort, 0));
        assert!(now.start_ms >= 0);
        id.written();
        assert_eq!(id.state(), CompleteAbort);
    }
}

#[test]
fn a_late_end_of_one_transaction_does_not_end_the_next() {
    let mut id = Id::in_state(CompleteCommit, V2);
    id.add(producer(1, 1), 7).unwrap();
    for commit in [true, false] {
        assert_eq!(id.end(V2, producer(1, 0), commit), Err(ProducerFenced));
    }
    assert_eq!(id.state(), Ongoing);
}

#[test]
fn while_markers_are_written_the_next_transaction_waits() {
    for version in [V0, V2] {
        for state in [PrepareCommit, PrepareAbort] {
            let mut id = Id::in_state(state, version);
            let next = id.producer();
            assert_eq!(id.add(next, 3), Err(ConcurrentTransactions));
            assert_eq!(id.verify(next, &[0]), Err(ConcurrentTransactions));
            assert_eq!(id.init(None), Err(ConcurrentTransactions));
            assert_eq!(id.state(), state);
        }
    }
}

#[test]
fn while_markers_are_written_the_end_of_the_next_transaction_waits() {
    for state in [PrepareCommit, PrepareAbort] {
        let mut id = Id::in_state(state, V2);
        for commit in [true, false] {
            assert_eq!(id.end(V2, id.producer(), commit), Err(ConcurrentTransactions));
        }
        id.written();
        assert_eq!(id.end(V2, id.producer(), true), Err(InvalidTxnState), "it has no partition");
        let next = producer(1, id.producer().epoch + 1);
        assert_eq!(id.end(V2, id.producer(), false), Ok(next));
    }
}

#[test]
fn partitions_are_verified_against_the_open_transaction() {
    let mut id = Id::ongoing();
    assert_eq!(id.verify(producer(1, 0), &[0, 1]), Ok(vec![NoError, TransactionAbortable]));
    assert_eq!(id.verify(producer(1, 1), &[0]), Err(ProducerFenced));
    assert_eq!(id.verify(producer(2, 0), &[0]), Err(InvalidProducerIdMapping));
    let mut id = Id::in_state(CompleteAbort, V0);
    assert_eq!(id.verify(producer(1, 0), &[0]), Ok(vec![TransactionAbortable]));
}

#[test]
fn a_transaction_whose_time_is_up_is_aborted_under_the_next_epoch() {
    let mut id = Id::ongoing();
    id.now_ms += i64::from(TIMEOUT_MS);
    id.step(&Event::TimedOut).unwrap();
    assert_eq!(id.state(), Ongoing, "not yet");
    id.now_ms += 1;
    let outcome = id.step(&Event::TimedOut).unwrap();
    assert_eq!(outcome, Outcome::WriteMarkers { commit: false, producer: producer(1, 1) });
    assert_eq!(id.end(V0, producer(1, 0), true), Err(ProducerFenced));
    id.written();
    assert_eq!((id.state(), id.producer()), (CompleteAbort, producer(1, 1)));
    assert_eq!(id.add(producer(1, 0), 0), Err(ProducerFenced));
    for commit in [true, false] {
        assert_eq!(id.end(V2, producer(1, 0), commit), Err(ProducerFenced), "no EndTxn bumped");
    }
    assert_eq!(id.init(None), Ok(producer(1, 2)));
}

#[test]
fn only_open_transactions_time_out_and_only_markers_that_are_due_complete() {
    for state in ALL {
        let mut id = Id::in_state(state, V0);
        let before = id.now.clone();
        id.now_ms += 10 * i64::from(TIMEOUT_MS);
        if state != Ongoing {
            id.step(&Event::TimedOut).unwrap();
        }
        if ![PrepareCommit, PrepareAbort].contains(&state) {
            id.written();
        }
        assert_eq!(id.now, before);
    }
}

#[test]
fn a_silent_id_is_forgotten_unless_it_has_a_transaction() {
    for state in ALL {
        let mut id = Id::in_state(state, V0);
        id.now_ms += 999_999;
        id.step(&Event::Expired).unwrap();
        assert!(id.now.is_some(), "too early");
        id.now_ms += 1;
        id.step(&Event::Expired).unwrap();
        let is_settled = [Empty, CompleteCommit, CompleteAbort].contains(&state);
        assert_eq!(id.now.is_none(), is_settled, "{state:?}");
    }
    let mut unknown = Id::default();
    for event in [Event::Expired, Event::TimedOut, Event::MarkersWritten] {
        unknown.step(&event).unwrap();
    }
    assert_eq!(unknown.add(producer(1, 0), 0), Err(InvalidProducerIdMapping));
    assert_eq!(unknown.end(V0, producer(1, 0), true), Err(InvalidProducerIdMapping));
    assert_eq!(unknown.end(V2, producer(1, 0), true), Err(InvalidProducerIdMapping));
    assert_eq!(unknown.verify(producer(1, 0), &[0]), Err(InvalidProducerIdMapping));
}
