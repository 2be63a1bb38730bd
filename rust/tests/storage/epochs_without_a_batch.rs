//! A leader may begin an epoch and append nothing in it. Its log notes the epoch only as long as it
//! leads, so that followers learn where earlier epochs end.

use krust::ids::{Epoch, Offset};
use krust::record::batch::{Batch, HeaderPatch, patch_header};

use crate::support::{LogFixture, batch, fill};

/// One record, as a leader of `epoch` sends it.
fn of_leader(base_offset: i64, epoch: i32) -> Vec<u8> {
    let bytes = batch(&[b"value"]);
    let parsed = Batch::parse(&bytes).unwrap();
    let max_timestamp = parsed.header().max_timestamp;
    let patch =
        HeaderPatch { base_offset, leader_epoch: epoch, max_timestamp, log_append_time: None };
    let mut patched = patch_header(&parsed, &patch).to_vec();
    patched.extend_from_slice(&bytes[61..]);
    patched
}

#[test]
fn a_leader_tells_where_earlier_epochs_end_before_its_first_append() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFixture::new(dir.path()).open();
    log.set_leader_epoch(Epoch(3));
    fill(&log, 5);
    log.begin_leader_epoch(Epoch(7));
    assert_eq!(log.end_offset_for_epoch(Epoch(5)), (Epoch(3), Offset(5)));
    assert_eq!(log.end_offset_for_epoch(Epoch(7)), (Epoch(7), Offset(5)));
    log.begin_leader_epoch(Epoch(9));
    assert_eq!(log.epochs(), [(Epoch(3), Offset(0)), (Epoch(9), Offset(5))]);
}

#[test]
fn a_follower_names_the_epoch_of_its_last_batch_and_not_one_that_it_left_empty() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFixture::new(dir.path()).open();
    assert_eq!(log.last_batch_epoch(), Epoch::NONE);
    log.set_leader_epoch(Epoch(3));
    fill(&log, 5);
    log.begin_leader_epoch(Epoch(7));
    assert_eq!((log.last_batch_epoch(), log.latest_epoch()), (Epoch(3), Epoch(7)));
}

#[test]
fn a_follower_appends_batches_of_an_epoch_below_one_that_it_left_empty() {
    let dir = tempfile::tempdir().unwrap();
    let log = LogFixture::new(dir.path()).open();
    log.set_leader_epoch(Epoch(3));
    fill(&log, 5);
    log.begin_leader_epoch(Epoch(7));
    assert_eq!(log.append_as_follower(&of_leader(5, 6)).unwrap(), Offset(6));
    assert_eq!(log.epochs(), [(Epoch(3), Offset(0)), (Epoch(6), Offset(5))]);
}
