//! A transaction begins in a log only while its coordinator knows of it, and one marker ends it.

use krust::ids::{Epoch, Offset};
use krust::record::batch::{self, Batch, BatchFields, ValidationRules};
use krust::record::control::EndTransactionMarker;
use krust::storage::{
    AppendError, AppendOrigin, Appended, Log, NewBatch, StagedMarker, Verification,
    VerificationGuard,
};

use crate::support::{LogFixture, NOW_MS, batch as plain, build, read_all};

const PRODUCER: i64 = 7;

fn in_txn(epoch: i16, base_sequence: i32) -> Vec<u8> {
    let fields = BatchFields {
        producer_id: PRODUCER,
        producer_epoch: epoch,
        base_sequence,
        transactional: true,
        ..BatchFields::default()
    };
    build(NOW_MS, &[b"t"], &fields)
}

fn append(log: &Log, bytes: &[u8], origin: AppendOrigin) -> Result<Appended, AppendError> {
    let batch = Batch::parse(bytes).unwrap();
    let validated = batch::check(&batch, &ValidationRules::default()).unwrap();
    let appended = log.stage(&NewBatch::new(&batch, &validated, NOW_MS).from(origin))?;
    log.commit(appended.staged)?;
    log.raise_high_watermark(log.log_end_offset());
    Ok(appended)
}

/// The guard of a batch that begins a transaction.
fn ask(log: &Log, bytes: &[u8]) -> VerificationGuard {
    match append(log, bytes, AppendOrigin::Client(Verification::Required)) {
        Err(AppendError::NotVerified(guard)) => guard,
        other => panic!("{other:?}"),
    }
}

fn confirmed(guard: VerificationGuard) -> AppendOrigin {
    AppendOrigin::Client(Verification::ConfirmedBy { guard, has_own_epoch: false })
}

fn begin(log: &Log, bytes: &[u8]) -> Appended {
    append(log, bytes, confirmed(ask(log, bytes))).unwrap()
}

/// Writes a marker; the high watermark stays.
fn write_marker(
    log: &Log,
    (producer_epoch, coordinator_epoch): (i16, i32),
    (commit, version): (bool, i8),
) -> Result<StagedMarker, AppendError> {
    let marker =
        EndTransactionMarker { producer_id: PRODUCER, producer_epoch, coordinator_epoch, commit };
    let staged = log.stage_marker(&marker, version, NOW_MS)?;
    log.commit(staged.staged)?;
    Ok(staged)
}

fn end(log: &Log, epochs: (i16, i32), how: (bool, i8)) -> Result<StagedMarker, AppendError> {
    let staged = write_marker(log, epochs, how)?;
    log.raise_high_watermark(log.log_end_offset());
    Ok(staged)
}

fn log() -> (tempfile::TempDir, std::sync::Arc<Log>) {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFixture::new(dir.path()).open();
    (dir, log)
}

#[test]
fn only_the_first_batch_of_a_transaction_needs_to_be_verified() {
    let (_dir, log) = log();
    begin(&log, &in_txn(0, 0));
    let required = AppendOrigin::Client(Verification::Required);
    append(&log, &in_txn(0, 1), required).unwrap();
    append(&log, &plain(&[b"plain"]), required).unwrap();
    end(&log, (0, 0), (true, 0)).unwrap();
    ask(&log, &in_txn(0, 2));
    begin(&log, &in_txn(0, 2));
    assert_eq!(log.log_end_offset(), Offset(5));
}

#[test]
fn a_batch_that_nobody_verifies_begins_a_transaction() {
    let (_dir, log) = log();
    append(&log, &in_txn(0, 0), AppendOrigin::Client(Verification::NotRequired)).unwrap();
    assert_eq!(log.last_stable_offset(), Offset(0));
}

#[test]
fn a_marker_voids_the_guard_of_a_transaction_that_it_ends() {
    let (_dir, log) = log();
    begin(&log, &in_txn(0, 0));
    end(&log, (0, 0), (true, 0)).unwrap();
    let guard = ask(&log, &in_txn(0, 1));
    assert!(end(&log, (0, 0), (false, 0)).unwrap().is_repeat);
    let late = append(&log, &in_txn(0, 1), confirmed(guard));
    assert!(matches!(late, Err(AppendError::InvalidTxnState(PRODUCER))), "{late:?}");
    let (next, old) = (ask(&log, &in_txn(0, 1)), guard);
    assert_ne!(next, old);
    let late = append(&log, &in_txn(0, 1), confirmed(old));
    assert!(matches!(late, Err(AppendError::InvalidTxnState(PRODUCER))), "{late:?}");
    append(&log, &in_txn(0, 1), confirmed(next)).unwrap();
}

#[test]
fn a_marker_of_an_unknown_producer_voids_its_guard() {
    let (_dir, log) = log();
    let guard = ask(&log, &in_txn(0, 0));
    assert!(!end(&log, (0, 0), (false, 0)).unwrap().is_repeat);
    let late = append(&log, &in_txn(0, 0), confirmed(guard));
    assert!(matches!(late, Err(AppendError::InvalidTxnState(PRODUCER))), "{late:?}");
}

#[test]
fn a_new_leader_and_a_truncation_void_all_guards() {
    let (_dir, log) = log();
    append(&log, &plain(&[b"a"]), AppendOrigin::Client(Verification::Required)).unwrap();
    let guard = ask(&log, &in_txn(0, 0));
    log.stop_leading();
    log.set_leader_epoch(Epoch(3));
    let late = append(&log, &in_txn(0, 0), confirmed(guard));
    assert!(matches!(late, Err(AppendError::InvalidTxnState(PRODUCER))), "{late:?}");
    let guard = ask(&log, &in_txn(0, 0));
    log.truncate_to(Offset(0)).unwrap();
    let late = append(&log, &in_txn(0, 0), confirmed(guard));
    assert!(matches!(late, Err(AppendError::InvalidTxnState(PRODUCER))), "{late:?}");
}

#[test]
fn a_batch_behind_a_refused_first_one_is_out_of_order() {
    let (_dir, log) = log();
    let guard = ask(&log, &in_txn(0, 0));
    assert_eq!(ask(&log, &in_txn(0, 1)), guard);
    let second = append(&log, &in_txn(0, 1), confirmed(guard));
    assert!(matches!(second, Err(AppendError::OutOfOrderSequence { last: 0, found: 1, .. })));
    append(&log, &in_txn(0, 0), confirmed(guard)).unwrap();
}

#[test]
fn a_producer_with_an_epoch_per_transaction_begins_at_sequence_0() {
    let (_dir, log) = log();
    let guard = ask(&log, &in_txn(0, 5));
    let own = Verification::ConfirmedBy { guard, has_own_epoch: true };
    let refused = append(&log, &in_txn(0, 5), AppendOrigin::Client(own));
    assert!(matches!(refused, Err(AppendError::OutOfOrderSequence { last: -1, found: 5, .. })));
    append(&log, &in_txn(0, 5), confirmed(guard)).unwrap();
}

#[test]
fn a_coordinators_batches_need_no_sequence_numbers() {
    let (_dir, log) = log();
    let guard = match append(&log, &in_txn(1, 0), AppendOrigin::Coordinator(Verification::Required))
    {
        Err(AppendError::NotVerified(guard)) => guard,
        other => panic!("{other:?}"),
    };
    let confirmed = Verification::ConfirmedBy { guard, has_own_epoch: true };
    for offset in 0..3 {
        let origin = AppendOrigin::Coordinator(confirmed);
        let appended = append(&log, &in_txn(1, 0), origin).unwrap();
        assert_eq!((appended.duplicate, appended.base_offset), (false, Offset(offset)));
    }
    let zombie = append(&log, &in_txn(0, 0), AppendOrigin::Coordinator(confirmed));
    assert!(matches!(zombie, Err(AppendError::InvalidProducerEpoch { found: 0, .. })));
}

#[test]
fn a_marker_that_is_repeated_is_written_once() {
    let (_dir, log) = log();
    for (version, epochs) in [(0, [0, 0]), (2, [1, 2])] {
        begin(&log, &in_txn(epochs[0], 0));
        let log_end = log.log_end_offset();
        let first = end(&log, (epochs[1], 4), (true, version)).unwrap();
        assert_eq!((first.is_repeat, first.end), (false, Offset(log_end.0 + 1)));
        for coordinator_epoch in [4, 5] {
            let again = end(&log, (epochs[1], coordinator_epoch), (true, version)).unwrap();
            assert_eq!((again.is_repeat, again.end), (true, Offset(log_end.0 + 1)));
        }
        log.truncate_fully(Offset(log.log_end_offset().0)).unwrap();
    }
}

#[test]
fn a_repeat_is_acknowledged_no_earlier_than_its_marker() {
    let (_dir, log) = log();
    begin(&log, &in_txn(0, 0));
    let first = write_marker(&log, (0, 0), (true, 0)).unwrap();
    let again = write_marker(&log, (0, 0), (true, 0)).unwrap();
    assert!(again.is_repeat && again.end >= first.end);
    assert!(log.high_watermark() < again.end);
}

#[test]
fn a_marker_of_an_older_coordinator_or_producer_is_fenced() {
    let (_dir, log) = log();
    begin(&log, &in_txn(1, 0));
    end(&log, (1, 4), (true, 0)).unwrap();
    begin(&log, &in_txn(1, 1));
    let zombie = end(&log, (1, 3), (true, 0));
    assert!(matches!(zombie, Err(AppendError::CoordinatorFenced { found: 3, current: 4, .. })));
    let old = end(&log, (0, 9), (true, 0));
    assert!(matches!(old, Err(AppendError::InvalidProducerEpoch { found: 0, current: 1, .. })));
    assert_eq!(log.last_stable_offset(), Offset(2), "the transaction is still open");
}

#[test]
fn a_coordinator_that_repeated_a_marker_fences_the_one_before_it() {
    let (_dir, log) = log();
    begin(&log, &in_txn(0, 0));
    end(&log, (0, 4), (true, 0)).unwrap();
    assert!(end(&log, (0, 5), (true, 0)).unwrap().is_repeat);
    begin(&log, &in_txn(0, 1));
    let zombie = end(&log, (0, 4), (true, 0));
    assert!(matches!(zombie, Err(AppendError::CoordinatorFenced { found: 4, current: 5, .. })));
}

#[test]
fn a_late_marker_does_not_end_the_next_transaction_of_a_producer_with_an_epoch_for_each() {
    let (_dir, log) = log();
    begin(&log, &in_txn(0, 0));
    end(&log, (1, 4), (true, 2)).unwrap();
    begin(&log, &in_txn(1, 0));
    let late = end(&log, (1, 4), (true, 2));
    assert!(matches!(late, Err(AppendError::InvalidProducerEpoch { found: 1, current: 1, .. })));
    end(&log, (2, 4), (false, 2)).unwrap();
    assert_eq!(log.last_stable_offset(), log.log_end_offset());
}

#[test]
fn a_batch_of_an_ended_transaction_is_refused_by_its_epoch() {
    let (_dir, log) = log();
    begin(&log, &in_txn(0, 0));
    end(&log, (1, 0), (true, 2)).unwrap();
    let late = append(&log, &in_txn(0, 1), AppendOrigin::Client(Verification::Required));
    assert!(matches!(late, Err(AppendError::InvalidProducerEpoch { found: 0, current: 1, .. })));
}

#[test]
fn the_last_stable_offset_passes_a_marker_that_the_high_watermark_has_passed() {
    let (_dir, log) = log();
    begin(&log, &in_txn(0, 0));
    append(&log, &plain(&[b"plain"]), AppendOrigin::Client(Verification::Required)).unwrap();
    assert_eq!(log.last_stable_offset(), Offset(0));
    write_marker(&log, (0, 0), (false, 0)).unwrap();
    assert_eq!((log.last_stable_offset(), log.log_end_offset()), (Offset(0), Offset(3)));
    log.raise_high_watermark(Offset(3));
    assert_eq!(log.last_stable_offset(), Offset(3));
    let aborted = log.aborted(Offset(0), Offset(3)).unwrap();
    assert_eq!(
        aborted.iter().map(|it| (it.producer_id, it.first_offset)).collect::<Vec<_>>(),
        [(PRODUCER, 0)]
    );
    assert_eq!(read_all(&log).len(), 3);
}
