//! Old content of a block may be a batch with a right checksum. Its offset or epoch tells.

use krust::record::batch::{Batch, BatchFields, HeaderPatch, patch_header};

use crate::support::{LogFixture, NOW_MS, append, batch, build, expected, fill, read_all};

fn moved(bytes: &[u8], base_offset: i64, leader_epoch: i32) -> Vec<u8> {
    let batch = Batch::parse(bytes).unwrap();
    let max_timestamp = batch.header().max_timestamp;
    let patch = HeaderPatch { base_offset, leader_epoch, max_timestamp, log_append_time: None };
    let mut moved = patch_header(&batch, &patch).to_vec();
    moved.extend_from_slice(&bytes[61..]);
    moved
}

fn ends_at(tail: &[u8], dense: bool) -> i64 {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.dense = dense;
    let log = fixture.open();
    log.set_leader_epoch(krust::ids::Epoch(3));
    fill(&log, 5);
    let path = fixture.file(0, "log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(tail);
    std::fs::write(&path, bytes).unwrap();
    let log = fixture.open();
    assert_eq!(read_all(&log)[..5], expected(0..5));
    log.log_end_offset().0
}

#[test]
fn an_offset_that_falls_is_cut() {
    assert_eq!(ends_at(&moved(&batch(&[b"old"]), 4, 3), true), 5);
    assert_eq!(ends_at(&moved(&batch(&[b"old"]), 0, 3), false), 5);
}

#[test]
fn an_offset_that_jumps_is_cut_where_offsets_are_dense() {
    assert_eq!(ends_at(&moved(&batch(&[b"new"]), 9, 3), true), 5);
    assert_eq!(ends_at(&moved(&batch(&[b"new"]), 9, 3), false), 10);
}

/// Where a log of seven batches ends whose fifth bears another offset; whether it is damaged.
fn with_a_wrong_fifth(base_offset: i64, synced: bool) -> (i64, bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = LogFixture::new(dir.path());
    fixture.dense = false;
    let log = fixture.open();
    fill(&log, 7);
    if synced {
        log.flush().unwrap();
        fixture.dir.checkpoint().unwrap();
    }
    let path = fixture.file(0, "log");
    let mut bytes = std::fs::read(&path).unwrap();
    let fifth = bytes.len() / 7 * 4;
    bytes[fifth..fifth + 8].copy_from_slice(&base_offset.to_be_bytes());
    std::fs::write(&path, bytes).unwrap();
    let log = fixture.open();
    assert_eq!(read_all(&log)[..4], expected(0..4));
    assert_eq!(read_all(&log).len(), 4);
    (log.log_end_offset().0, log.damage().is_some())
}

#[test]
fn an_offset_above_the_next_one_is_cut_or_damage_below_the_recovery_point() {
    for base_offset in [5, 6, 4 + (1 << 14), 4 + (1 << 40)] {
        assert_eq!(with_a_wrong_fifth(base_offset, false), (4, false), "{base_offset}");
        assert_eq!(with_a_wrong_fifth(base_offset, true), (4, true), "{base_offset}");
    }
}

#[test]
fn an_epoch_that_falls_is_cut() {
    assert_eq!(ends_at(&moved(&batch(&[b"old"]), 5, i32::MIN), true), 5);
    assert_eq!(ends_at(&moved(&batch(&[b"old"]), 5, 2), true), 5);
    assert_eq!(ends_at(&moved(&batch(&[b"new"]), 5, 3), true), 6);
    assert_eq!(ends_at(&moved(&batch(&[b"new"]), 5, 4), true), 6);
}

#[test]
fn a_wrong_checksum_is_cut() {
    let mut bytes = moved(&build(NOW_MS, &[b"x"], &BatchFields::default()), 5, 3);
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(ends_at(&bytes, true), 5);
}

#[test]
fn leader_epochs_are_rebuilt_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = LogFixture::new(dir.path());
    let log = fixture.open();
    fill(&log, 2);
    log.set_leader_epoch(krust::ids::Epoch(7));
    append(&log, &batch(&[b"x"])).unwrap();
    let epochs = log.epochs();
    assert_eq!(epochs.len(), 2);
    log.flush().unwrap();
    drop(log);
    std::fs::write(fixture.partition().join("leader-epoch-checkpoint"), "0\n1\n9 0\n").unwrap();
    assert_eq!(fixture.open().epochs(), epochs, "a wrong file is rebuilt");
    std::fs::remove_file(fixture.partition().join("leader-epoch-checkpoint")).unwrap();
    assert_eq!(fixture.open().epochs(), epochs, "a missing file is rebuilt");
}
