//! A producer's batch is stored once; transactions hold back and hide records.

use krust::ids::Offset;
use krust::record::batch::BatchFields;
use krust::storage::{AbortedTxn, AppendError};

use crate::support::{LogFixture, NOW_MS, append, batch, batch_of, build, marker, read_all, stage};

fn in_txn(producer_id: i64, base_sequence: i32) -> Vec<u8> {
    let fields = BatchFields {
        producer_id,
        producer_epoch: 0,
        base_sequence,
        transactional: true,
        ..BatchFields::default()
    };
    build(NOW_MS, &[b"t"], &fields)
}

#[test]
fn a_retry_of_the_last_five_gets_its_original_offset() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let mut log = fixture.open();
    for n in 0..7 {
        append(&log, &batch_of(5, n * 2, &[b"a", b"b"])).unwrap();
        append(&log, &batch(&[b"other"])).unwrap();
    }
    for reopened in [false, true] {
        if reopened {
            log = fixture.open();
        }
        for n in 2..7 {
            let again = append(&log, &batch_of(5, n * 2, &[b"a", b"b"])).unwrap();
            assert!(again.duplicate);
            let base = i64::from(n) * 3;
            assert_eq!((again.base_offset, again.last_offset), (Offset(base), Offset(base + 1)));
        }
        let old = append(&log, &batch_of(5, 2, &[b"a", b"b"]));
        assert!(matches!(old, Err(AppendError::OutOfOrderSequence { .. })));
    }
    assert_eq!(log.log_end_offset(), Offset(21));
}

#[test]
fn a_retry_of_the_last_five_gets_its_original_offset_after_a_clean_restart() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    for sequence in 0..7 {
        append(&log, &batch_of(5, sequence, &[b"a"])).unwrap();
    }
    log.close().unwrap();
    let log = fixture.open_with(true);
    for sequence in 2..7 {
        let again = append(&log, &batch_of(5, sequence, &[b"a"])).unwrap();
        assert!(again.duplicate, "sequence {sequence}");
        assert_eq!(again.base_offset, Offset(i64::from(sequence)));
    }
    assert_eq!(log.log_end_offset(), Offset(7));
}

#[test]
fn a_retry_within_one_event_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    let first = stage(&log, &batch_of(5, 0, &[b"a"])).unwrap();
    let again = stage(&log, &batch_of(5, 0, &[b"a"])).unwrap();
    let next = stage(&log, &batch_of(5, 1, &[b"b"])).unwrap();
    assert!(again.duplicate && !next.duplicate);
    log.commit(again.staged).unwrap();
    log.commit(next.staged).unwrap();
    assert_eq!(again.base_offset, first.base_offset);
    assert_eq!(read_all(&log).len(), 2);
}

#[test]
fn gaps_old_epochs_and_unknown_producers_get_the_right_error() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    append(&log, &batch_of(5, 17, &[b"unknown: any first sequence"])).unwrap();
    let gap = append(&log, &batch_of(5, 19, &[b"x"]));
    assert!(matches!(gap, Err(AppendError::OutOfOrderSequence { last: 17, found: 19, .. })));
    let epoch = |producer_epoch, base_sequence| {
        let fields =
            BatchFields { producer_id: 5, producer_epoch, base_sequence, ..BatchFields::default() };
        build(NOW_MS, &[b"x"], &fields)
    };
    let jump = append(&log, &epoch(1, 3));
    assert!(matches!(jump, Err(AppendError::OutOfOrderSequence { .. })));
    append(&log, &epoch(1, 0)).unwrap();
    let old = append(&log, &epoch(0, 18));
    assert!(matches!(old, Err(AppendError::InvalidProducerEpoch { found: 0, current: 1, .. })));
}

#[test]
fn sequence_numbers_wrap() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    append(&log, &batch_of(5, i32::MAX - 1, &[b"a", b"b", b"c"])).unwrap();
    append(&log, &batch_of(5, 1, &[b"d"])).unwrap();
    assert!(append(&log, &batch_of(5, i32::MAX - 1, &[b"a", b"b", b"c"])).unwrap().duplicate);
}

#[test]
fn silent_producers_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    append(&log, &batch_of(5, 0, &[b"x"])).unwrap();
    append(&log, &in_txn(6, 0)).unwrap();
    log.retain(NOW_MS + 86_400_000 - 1).unwrap();
    assert_eq!(log.producers().len(), 2);
    log.retain(NOW_MS + 86_400_000).unwrap();
    let left: Vec<i64> = log.producers().iter().map(|states| states.producer_id).collect();
    assert_eq!(left, [6], "an open transaction keeps its producer");
}

#[test]
fn a_partition_remembers_a_bounded_number_of_the_latest_producers() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.config.producers_max = 1000;
    let log = fixture.open();
    append(&log, &in_txn(0, 0)).unwrap();
    for producer_id in 1..=1200 {
        let fields = BatchFields {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            ..BatchFields::default()
        };
        append(&log, &build(NOW_MS - producer_id, &[b"x"], &fields)).unwrap();
        assert!(log.producers().len() <= 1000);
    }
    let mut left: Vec<i64> = log.producers().iter().map(|states| states.producer_id).collect();
    left.sort_unstable();
    assert_eq!(left[0], 0, "an open transaction keeps its producer");
    assert!(left[1..].iter().copied().eq(1202 - left.len() as i64..=1200), "{left:?}");
}

#[test]
fn open_transactions_hold_back_the_last_stable_offset() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let mut log = fixture.open();
    append(&log, &batch(&[b"plain"])).unwrap();
    append(&log, &in_txn(5, 0)).unwrap();
    append(&log, &in_txn(6, 0)).unwrap();
    let outside = append(&log, &batch_of(5, 1, &[b"x"]));
    assert!(matches!(outside, Err(AppendError::InvalidTxnState(5))));
    append(&log, &batch(&[b"plain"])).unwrap();
    assert_eq!(log.last_stable_offset(), Offset(1));
    append(&log, &marker(5, false)).unwrap();
    assert_eq!(log.last_stable_offset(), Offset(2));
    let aborted =
        AbortedTxn { producer_id: 5, first_offset: 1, last_offset: 4, last_stable_offset: 2 };
    assert_eq!(log.aborted(Offset(0), Offset(5)).unwrap(), [aborted]);
    log = fixture.open();
    log.raise_high_watermark(log.log_end_offset());
    assert_eq!(log.last_stable_offset(), Offset(2));
    assert_eq!(log.aborted(Offset(0), Offset(5)).unwrap(), [aborted]);
    append(&log, &marker(6, true)).unwrap();
    assert_eq!(log.last_stable_offset(), Offset(6));
    log.close().unwrap();
    let log = fixture.open_with(true);
    log.raise_high_watermark(log.log_end_offset());
    assert_eq!(log.last_stable_offset(), Offset(6));
    assert_eq!(log.aborted(Offset(0), Offset(6)).unwrap(), [aborted]);
    assert_eq!(log.aborted(Offset(5), Offset(6)).unwrap(), []);
}

#[test]
fn a_transaction_is_unstable_until_its_marker_is_replicated() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    for bytes in [in_txn(5, 0), marker(5, true), batch(&[b"x"])] {
        let appended = stage(&log, &bytes).unwrap();
        log.commit(appended.staged).unwrap();
    }
    log.raise_high_watermark(Offset(1));
    assert_eq!(log.last_stable_offset(), Offset(0));
    log.raise_high_watermark(Offset(2));
    assert_eq!(log.last_stable_offset(), Offset(2));
    log.raise_high_watermark(Offset(3));
    assert_eq!(log.last_stable_offset(), Offset(3));
}
