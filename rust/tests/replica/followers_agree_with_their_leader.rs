//! Where a follower truncates, and when it appends.

use krust::broker::replica::follower::{
    FollowerEffect, FollowerLog, FollowerReplica, FollowerRequest, LeaderAnswer, restart_offset,
};
use krust::ids::{Epoch, Offset};
use krust::protocol::ErrorCode;

/// A log that is nothing but its epochs: epoch and first offset of each, in order.
struct EpochsOfLog {
    starts: Vec<(i32, i64)>,
    log_end: i64,
    high_watermark: i64,
}

impl FollowerLog for EpochsOfLog {
    fn log_end(&self) -> Offset {
        Offset(self.log_end)
    }

    fn log_start(&self) -> Offset {
        Offset(0)
    }

    fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark)
    }

    fn last_batch_epoch(&self) -> Epoch {
        self.starts.last().map_or(Epoch::NONE, |(epoch, _)| Epoch(*epoch))
    }

    fn end_offset_for_epoch(&self, epoch: Epoch) -> (Epoch, Offset) {
        let Some(at) = self.starts.iter().rposition(|(it, _)| *it <= epoch.0) else {
            return (Epoch::NONE, Offset::NONE);
        };
        let end = self.starts.get(at + 1).map_or(self.log_end, |(_, start)| *start);
        (Epoch(self.starts[at].0), Offset(end))
    }
}

/// Epoch 1 from 0, epoch 3 from 40, 60 records.
fn log() -> EpochsOfLog {
    EpochsOfLog { starts: vec![(1, 0), (3, 40)], log_end: 60, high_watermark: 35 }
}

fn answered(
    follower: &mut FollowerReplica,
    log: &EpochsOfLog,
    answer: LeaderAnswer,
) -> FollowerEffect {
    let request = follower.request(log).unwrap();
    follower.answered(log, request, answer)
}

fn ends(epoch: i32, end_offset: i64) -> LeaderAnswer {
    LeaderAnswer::EpochEnds { epoch: Epoch(epoch), end_offset: Offset(end_offset) }
}

#[test]
fn a_follower_fetches_from_its_log_end_and_names_its_last_epoch() {
    let follower = FollowerReplica::new(Epoch(4), true);
    let expected = FollowerRequest::Fetch {
        fetch_offset: Offset(60),
        last_fetched_epoch: Epoch(3),
        log_start: Offset(0),
        current_leader_epoch: Epoch(4),
    };
    assert_eq!(follower.request(&log()), Some(expected));
}

#[test]
fn logs_that_share_the_epoch_agree_to_the_lower_of_its_two_ends() {
    let mut follower = FollowerReplica::new(Epoch(4), true);
    let effect = answered(&mut follower, &log(), ends(3, 50));
    assert_eq!(effect, FollowerEffect::TruncateTo(Offset(50)));
}

#[test]
fn an_epoch_that_the_leader_never_saw_is_dropped_whole() {
    let mut follower = FollowerReplica::new(Epoch(4), true);
    let effect = answered(&mut follower, &log(), ends(1, 45));
    assert_eq!(effect, FollowerEffect::TruncateTo(Offset(40)));
}

#[test]
fn a_follower_without_the_leaders_epoch_asks_again_from_its_own_lower_one() {
    let mut follower = FollowerReplica::new(Epoch(4), false);
    let mut log = log();
    let effect = answered(&mut follower, &log, ends(2, 55));
    assert_eq!(effect, FollowerEffect::TruncateTo(Offset(40)));
    log = EpochsOfLog { starts: vec![(1, 0)], log_end: 40, high_watermark: 35 };
    let again = FollowerRequest::EndOfEpoch { epoch: Epoch(1), current_leader_epoch: Epoch(4) };
    assert_eq!(follower.request(&log), Some(again));
    assert_eq!(answered(&mut follower, &log, ends(1, 30)), FollowerEffect::TruncateTo(Offset(30)));
}

#[test]
fn nothing_is_appended_from_an_answer_to_an_earlier_question() {
    let mut follower = FollowerReplica::new(Epoch(4), true);
    let earlier = follower.request(&log()).unwrap();
    let truncated = EpochsOfLog { starts: vec![(1, 0)], log_end: 40, high_watermark: 35 };
    let answer = LeaderAnswer::Fetched { high_watermark: Offset(60), log_start: Offset(0) };
    assert_eq!(follower.answered(&truncated, earlier, answer), FollowerEffect::None);
}

#[test]
fn a_follower_below_the_leaders_log_begins_where_that_log_begins() {
    let mut follower = FollowerReplica::new(Epoch(4), true);
    let refused = LeaderAnswer::Refused(ErrorCode::OffsetOutOfRange);
    assert_eq!(answered(&mut follower, &log(), refused), FollowerEffect::None);
    let bounds = LeaderAnswer::LogBounds { log_start: Offset(80), log_end: Offset(95) };
    let effect = answered(&mut follower, &log(), bounds);
    assert_eq!(effect, FollowerEffect::TruncateFullyAndStartAt(Offset(80)));
}

/// Where a log of 60 records starts again, of which so many are known to be committed, when its
/// leader's log starts at `leader_log_start` and sends a batch with these offsets first.
fn restart(committed: i64, leader_log_start: i64, first: Option<(i64, i64)>) -> Option<i64> {
    let log = EpochsOfLog { high_watermark: committed, ..log() };
    let first = first.map(|(base, last)| (Offset(base), Offset(last)));
    restart_offset(&log, Offset(leader_log_start), first).map(|it| it.0)
}

#[test]
fn a_follower_begins_anew_with_the_batch_in_which_its_leaders_log_starts() {
    assert_eq!(restart(35, 60, Some((50, 70))), Some(50));
    assert_eq!(restart(50, 52, Some((50, 60))), Some(50));
    // The leader has the records before the batch, or the follower has committed some of the batch.
    assert_eq!(restart(35, 50, Some((50, 70))), None);
    assert_eq!(restart(51, 55, Some((50, 70))), None);
}

#[test]
fn a_follower_gives_up_committed_records_that_its_leader_has_deleted_and_had_otherwise() {
    assert_eq!(restart(51, 60, Some((50, 70))), Some(50));
    assert_eq!(restart(60, 60, Some((59, 70))), Some(59));
}

#[test]
fn a_follower_keeps_nothing_of_a_log_that_its_leader_has_deleted_whole() {
    assert_eq!(restart(35, 60, Some((60, 70))), Some(60));
    assert_eq!(restart(35, 60, None), Some(60));
    assert_eq!(restart(35, 65, Some((62, 70))), Some(60));
    assert_eq!(restart(35, 59, Some((60, 70))), None);
    assert_eq!(restart(60, 60, Some((60, 70))), None);
}

#[test]
fn a_fenced_follower_stops_and_one_that_is_too_early_waits() {
    let mut follower = FollowerReplica::new(Epoch(4), true);
    let early = LeaderAnswer::Refused(ErrorCode::UnknownLeaderEpoch);
    assert_eq!(answered(&mut follower, &log(), early), FollowerEffect::RetryLater);
    let fenced = LeaderAnswer::Refused(ErrorCode::FencedLeaderEpoch);
    assert_eq!(answered(&mut follower, &log(), fenced), FollowerEffect::Stop);
    assert_eq!(follower.request(&log()), None);
}
