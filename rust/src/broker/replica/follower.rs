//! A follower of a partition: what to ask the leader next, and what its answers mean for the log.
//!
//! A follower fetches from its log end and names the epoch of its last batch. A leader that knows
//! Fetch v12 answers with the records, or with where the two logs diverge (KIP-595); then the
//! follower truncates and fetches again, until they agree. An older leader is asked first where the
//! follower's last epoch ends (OffsetForLeaderEpoch, KIP-101 and KIP-279).
//! Invariants: the log is truncated only to the end of the largest epoch that both logs have, as
//!     far as both have it; nothing is appended but what the leader answered in this leader epoch
//!     to a Fetch from the present log end.
//!     A log that its leader has deleted whole starts again, unless all of it is known to be
//!     committed: nobody can tell any more where it diverged.
//! Not promised: that the leader is alive. The fetcher repeats what is not answered.

use crate::ids::{Epoch, Offset};
use crate::protocol::ErrorCode;
use crate::storage::Log;

/// What a follower must know of its own log.
pub trait FollowerLog {
    /// The offset of the next record.
    fn log_end(&self) -> Offset;
    /// The offset of the first record.
    fn log_start(&self) -> Offset;
    /// Below it are the records that are known to be committed.
    fn high_watermark(&self) -> Offset;
    /// The epoch of the last batch; [`Epoch::NONE`] in an empty log.
    fn last_batch_epoch(&self) -> Epoch;
    /// The largest epoch up to `epoch`, and where it ends; (-1, -1) if the log has none.
    fn end_offset_for_epoch(&self, epoch: Epoch) -> (Epoch, Offset);
}

impl FollowerLog for Log {
    fn log_end(&self) -> Offset {
        self.log_end_offset()
    }

    fn log_start(&self) -> Offset {
        self.log_start_offset()
    }

    fn high_watermark(&self) -> Offset {
        self.high_watermark()
    }

    fn last_batch_epoch(&self) -> Epoch {
        self.last_batch_epoch()
    }

    fn end_offset_for_epoch(&self, epoch: Epoch) -> (Epoch, Offset) {
        self.end_offset_for_epoch(epoch)
    }
}

/// A question to the leader. Each carries the leader epoch, so that a broker that does not lead in
/// it refuses (KIP-320).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FollowerRequest {
    /// Fetch from the log end.
    Fetch {
        /// The log end offset.
        fetch_offset: Offset,
        /// The epoch of the last batch.
        last_fetched_epoch: Epoch,
        /// The log start offset.
        log_start: Offset,
        /// The leader's epoch.
        current_leader_epoch: Epoch,
    },
    /// OffsetForLeaderEpoch: where does this epoch end?
    EndOfEpoch {
        /// The epoch of the follower's last batch.
        epoch: Epoch,
        /// The leader's epoch.
        current_leader_epoch: Epoch,
    },
    /// ListOffsets, earliest and latest: the leader refused the fetch offset.
    LogBounds {
        /// The leader's epoch.
        current_leader_epoch: Epoch,
    },
}

/// The leader's answer, as far as it concerns this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaderAnswer {
    /// Records from the fetch offset on, perhaps none.
    Fetched {
        /// The leader's high watermark.
        high_watermark: Offset,
        /// The leader's log start offset.
        log_start: Offset,
    },
    /// The logs diverge: the leader's largest epoch up to the one named, and where it ends there.
    /// Also the answer to [`FollowerRequest::EndOfEpoch`].
    EpochEnds {
        /// The epoch; [`Epoch::NONE`] if the leader's log has none that old.
        epoch: Epoch,
        /// Where it ends; [`Offset::NONE`] if unknown.
        end_offset: Offset,
    },
    /// The leader's log reaches from `log_start` to `log_end`.
    LogBounds {
        /// Its first record.
        log_start: Offset,
        /// One past its last record.
        log_end: Offset,
    },
    /// It refused.
    Refused(ErrorCode),
}

/// What to do with the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FollowerEffect {
    /// Do nothing.
    None,
    /// Append the records, then raise the high watermark as far as the log reaches, at most to the
    /// leader's, and the log start offset to the leader's.
    Append {
        /// The leader's high watermark.
        high_watermark: Offset,
        /// The leader's log start offset.
        log_start: Offset,
    },
    /// Truncate the log to this offset.
    TruncateTo(Offset),
    /// Drop all records, and begin at this offset.
    TruncateFullyAndStartAt(Offset),
    /// Ask again later: the leader cannot answer yet.
    RetryLater,
    /// Stop asking: another leader was elected, of which the controller will tell.
    Stop,
}

/// Which question comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    AskEndOfEpoch,
    Fetch,
    AskLogBounds,
    Stopped,
}

/// The follower of one leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FollowerReplica {
    leader_epoch: Epoch,
    phase: Phase,
}

impl FollowerReplica {
    /// Begins to follow the leader of an epoch. `truncates_by_fetch`: the leader knows Fetch v12.
    pub fn new(leader_epoch: Epoch, truncates_by_fetch: bool) -> Self {
        let phase = if truncates_by_fetch { Phase::Fetch } else { Phase::AskEndOfEpoch };
        Self { leader_epoch, phase }
    }

    /// The leader epoch that is followed.
    pub fn leader_epoch(&self) -> Epoch {
        self.leader_epoch
    }

    /// The next question; `None` once the follower has stopped.
    pub fn request(&self, log: &impl FollowerLog) -> Option<FollowerRequest> {
        let current_leader_epoch = self.leader_epoch;
        let last_fetched_epoch = log.last_batch_epoch();
        match self.phase {
            Phase::AskEndOfEpoch if last_fetched_epoch > Epoch::NONE => {
                Some(FollowerRequest::EndOfEpoch {
                    epoch: last_fetched_epoch,
                    current_leader_epoch,
                })
            }
            Phase::Fetch | Phase::AskEndOfEpoch => Some(FollowerRequest::Fetch {
                fetch_offset: log.log_end(),
                last_fetched_epoch,
                log_start: log.log_start(),
                current_leader_epoch,
            }),
            Phase::AskLogBounds => Some(FollowerRequest::LogBounds { current_leader_epoch }),
            Phase::Stopped => None,
        }
    }

    /// The leader answered `request`. An answer to a question that would not be asked now, because
    /// the log or the leader has changed since, has no effect.
    pub fn answered(
        &mut self,
        log: &impl FollowerLog,
        request: FollowerRequest,
        answer: LeaderAnswer,
    ) -> FollowerEffect {
        if self.request(log) != Some(request) {
            return FollowerEffect::None;
        }
        match answer {
            LeaderAnswer::Fetched { high_watermark, log_start } => {
                self.phase = Phase::Fetch;
                FollowerEffect::Append { high_watermark, log_start }
            }
            LeaderAnswer::EpochEnds { epoch, end_offset } => {
                self.truncated(log, (epoch, end_offset))
            }
            LeaderAnswer::LogBounds { log_start, log_end } => {
                self.phase = Phase::Fetch;
                within(log, (log_start, log_end))
            }
            LeaderAnswer::Refused(error) => self.refused(error),
        }
    }

    fn refused(&mut self, error: ErrorCode) -> FollowerEffect {
        match error {
            ErrorCode::OffsetOutOfRange => {
                self.phase = Phase::AskLogBounds;
                FollowerEffect::None
            }
            ErrorCode::FencedLeaderEpoch => {
                self.phase = Phase::Stopped;
                FollowerEffect::Stop
            }
            _ => FollowerEffect::RetryLater,
        }
    }

    /// The leader's largest epoch up to the follower's latest one ends at `ends`. If the follower
    /// has that epoch, the logs agree to the lower of both ends. If not, they agree at most to the
    /// end of the follower's next lower epoch, and the leader is asked again from there.
    fn truncated(&mut self, log: &impl FollowerLog, ends: (Epoch, Offset)) -> FollowerEffect {
        let (epoch, end_offset) = ends;
        let log_end = log.log_end();
        if end_offset == Offset::NONE {
            // The leader's log begins after the follower's last epoch.
            self.phase = Phase::AskLogBounds;
            return FollowerEffect::None;
        }
        let (own_epoch, own_end) = log.end_offset_for_epoch(epoch);
        let (to, agrees) = if own_epoch == Epoch::NONE {
            (end_offset.min(log_end), true)
        } else if own_epoch < epoch {
            (own_end.min(log_end), false)
        } else {
            (own_end.min(end_offset).min(log_end), true)
        };
        if agrees || to == log_end {
            self.phase = Phase::Fetch;
        }
        if to < log_end { FollowerEffect::TruncateTo(to) } else { FollowerEffect::None }
    }
}

/// Where the log starts again before the leader's records are appended; `None`: they continue it.
/// `first`: the offsets of the first batch that came, if any, from first to last.
///
/// A leader's log may start within a batch, which comes whole. Then the follower's log begins where
/// that batch does, because its own records from there on are no part of it. A committed record is
/// kept, unless the leader has deleted all that the follower has: after an unclean election the two
/// may have committed different records, and the follower could never append again.
pub fn restart_offset(
    log: &impl FollowerLog,
    leader_log_start: Offset,
    first: Option<(Offset, Offset)>,
) -> Option<Offset> {
    let (log_start, log_end, high_watermark) =
        (log.log_start(), log.log_end(), log.high_watermark());
    let is_empty = log_start == log_end;
    match first {
        Some((base, last)) if base < log_end && log_end <= last => {
            let is_deleted =
                base < leader_log_start && (high_watermark <= base || log_end <= leader_log_start);
            (is_empty || is_deleted).then_some(base)
        }
        _ => {
            let is_deleted = log_end <= leader_log_start && high_watermark < log_end;
            (!is_empty && is_deleted).then_some(log_end)
        }
    }
}

/// The leader's log does not hold the follower's end. Below its start, the follower begins there.
/// Above its end, the leader lost records that no in-sync replica needed; the follower drops them.
fn within(log: &impl FollowerLog, (log_start, log_end): (Offset, Offset)) -> FollowerEffect {
    let end = log.log_end();
    if end < log_start {
        FollowerEffect::TruncateFullyAndStartAt(log_start)
    } else if end > log_end {
        FollowerEffect::TruncateTo(log_end)
    } else {
        FollowerEffect::None
    }
}
