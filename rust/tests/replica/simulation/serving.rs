//! What a leader checks of a follower's question before it answers, in any log.

use crate::replica::follower::{FollowerLog, FollowerRequest, LeaderAnswer};
use krust::ids::{Epoch, Offset};
use krust::protocol::ErrorCode;

/// A question that the leader may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The answer needs no records.
    Answer(LeaderAnswer),
    /// The logs agree up to here; records from here on are the answer.
    Read { from: Offset, log_start: Offset },
}

/// The leader epoch that a question names.
pub fn epoch_of(request: &FollowerRequest) -> Epoch {
    match *request {
        FollowerRequest::Fetch { current_leader_epoch, .. }
        | FollowerRequest::EndOfEpoch { current_leader_epoch, .. }
        | FollowerRequest::LogBounds { current_leader_epoch } => current_leader_epoch,
    }
}

/// Refuses a question of another leader epoch (KIP-320).
pub fn check_epoch(asked: Epoch, leader_epoch: Epoch) -> Result<(), ErrorCode> {
    match asked.cmp(&leader_epoch) {
        std::cmp::Ordering::Less => Err(ErrorCode::FencedLeaderEpoch),
        std::cmp::Ordering::Greater => Err(ErrorCode::UnknownLeaderEpoch),
        std::cmp::Ordering::Equal => Ok(()),
    }
}

/// Checks a question against the leader's log.
pub fn check(log: &impl FollowerLog, request: &FollowerRequest) -> Result<Checked, ErrorCode> {
    let (start, end) = (log.log_start(), log.log_end());
    match *request {
        FollowerRequest::EndOfEpoch { epoch, .. } => {
            let (epoch, end_offset) = log.end_offset_for_epoch(epoch);
            Ok(Checked::Answer(LeaderAnswer::EpochEnds { epoch, end_offset }))
        }
        FollowerRequest::LogBounds { .. } => {
            Ok(Checked::Answer(LeaderAnswer::LogBounds { log_start: start, log_end: end }))
        }
        FollowerRequest::Fetch { fetch_offset, last_fetched_epoch, log_start, .. } => {
            if last_fetched_epoch > Epoch::NONE {
                let (epoch, end_offset) = log.end_offset_for_epoch(last_fetched_epoch);
                if epoch == Epoch::NONE || end_offset == Offset::NONE {
                    return Err(ErrorCode::OffsetOutOfRange);
                }
                if epoch < last_fetched_epoch || end_offset < fetch_offset {
                    return Ok(Checked::Answer(LeaderAnswer::EpochEnds { epoch, end_offset }));
                }
            }
            if fetch_offset < start || fetch_offset > end {
                return Err(ErrorCode::OffsetOutOfRange);
            }
            Ok(Checked::Read { from: fetch_offset, log_start })
        }
    }
}
