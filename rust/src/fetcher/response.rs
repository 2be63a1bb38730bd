//! What a leader's answers mean, partition by partition.
//!
//! Each answer is handed to its partition with the question that it answers. The partition ignores
//! it if it would not ask that question now, because its log, its role or its leader has changed.
//! Records go from the receive buffer to the log without a copy.
//! Errors: an append that fails concerns its partition alone. One whose log directory is offline,
//!     or whose log is closed, is not fetched any more.
//! Threads: one.

use std::collections::HashMap;
use std::time::Duration;

use super::partitions::{PartitionTable, Questions};
use crate::broker::quotas::replication::ReplicationQuota;
use crate::broker::replica::follower::LeaderAnswer;
use crate::broker::{AnsweredRequest, FollowerStep, Waker};
use crate::ids::{Epoch, Offset};
use crate::protocol::ErrorCode;
use crate::protocol::fetch::{FetchResponse, PartitionData};
use crate::protocol::list_offsets::ListOffsetsResponse;
use crate::protocol::offset_for_leader_epoch::OffsetForLeaderEpochResponse;
use crate::storage::{AppendError, StorageError};

/// Carries answers out.
pub(super) struct Answers<'a> {
    pub table: &'a mut PartitionTable,
    pub waker: &'a dyn Waker,
    /// What throttled partitions may fetch, and the time in monotonic milliseconds.
    pub quota: (&'a ReplicationQuota, i64),
    /// The longest pause of a refused partition.
    pub longest_pause: Duration,
}

impl Answers<'_> {
    /// The answer to a Fetch.
    pub fn fetched(&mut self, response: &FetchResponse<'_>, by_id: bool) {
        for topic in &response.responses {
            for data in &topic.partitions {
                let number = data.partition_index;
                let slot = match by_id {
                    true => self.table.slot_by_id(topic.topic_id, number),
                    false => self.table.slot_of(topic.topic, number),
                };
                let asked = slot.and_then(|slot| Some((slot, self.table.get(slot)?.in_session?)));
                let Some((slot, request)) = asked else { continue };
                let records = data.records.bytes().unwrap_or_default();
                if !records.is_empty() {
                    self.table.begin_after(slot);
                    if self.table.get(slot).is_some_and(|it| it.partition.is_follower_throttled()) {
                        self.quota.0.add(records.len(), self.quota.1);
                    }
                }
                self.carry_out(slot, &AnsweredRequest { request, answer: of(data), records });
            }
        }
    }

    /// The answers to EndOfEpoch questions.
    pub fn epochs_end(
        &mut self,
        questions: &Questions,
        response: &OffsetForLeaderEpochResponse<'_>,
    ) {
        for topic in &response.topics {
            for ends in &topic.partitions {
                let answer = match ends.error_code {
                    0 => LeaderAnswer::EpochEnds {
                        epoch: Epoch(ends.leader_epoch),
                        end_offset: Offset(ends.end_offset),
                    },
                    code => LeaderAnswer::Refused(ErrorCode::from(code)),
                };
                self.answered(questions, (topic.topic, ends.partition), answer);
            }
        }
    }

    /// The two answers to LogBounds questions.
    pub fn bounds(
        &mut self,
        questions: &Questions,
        (earliest, latest): (&ListOffsetsResponse<'_>, &ListOffsetsResponse<'_>),
    ) {
        let ends: HashMap<(&str, i32), i64> = latest
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|it| (topic.name, it)))
            .filter(|(_, it)| it.error_code == 0)
            .map(|(topic, it)| ((topic, it.partition_index), it.offset))
            .collect();
        for topic in &earliest.topics {
            for begins in &topic.partitions {
                let name = (topic.name, begins.partition_index);
                let answer = match (begins.error_code, ends.get(&name)) {
                    (0, Some(log_end)) => LeaderAnswer::LogBounds {
                        log_start: Offset(begins.offset),
                        log_end: Offset(*log_end),
                    },
                    (0, None) => LeaderAnswer::Refused(ErrorCode::OffsetNotAvailable),
                    (code, _) => LeaderAnswer::Refused(ErrorCode::from(code)),
                };
                self.answered(questions, name, answer);
            }
        }
    }

    /// The answer to one of `questions`.
    fn answered(
        &mut self,
        questions: &Questions,
        (topic, partition): (&str, i32),
        answer: LeaderAnswer,
    ) {
        let Some(slot) = self.table.slot_of(topic, partition) else { return };
        let Some(request) = questions.get(&slot).copied() else { return };
        self.carry_out(slot, &AnsweredRequest { request, answer, records: &[] });
    }

    fn carry_out(&mut self, slot: usize, answered: &AnsweredRequest<'_>) {
        let Some(fetched) = self.table.get(slot) else { return };
        match fetched.partition.leader_answered(answered, self.waker) {
            Ok(FollowerStep::Next) => self.table.accepted(slot),
            Ok(FollowerStep::Later) => match answered.answer {
                LeaderAnswer::Refused(error) => self.later(slot, &error.name()),
                _ => self.later(slot, &"its log ends where the leader does not answer"),
            },
            Ok(FollowerStep::End) => self.table.remove(slot),
            Err(error) => self.failed(slot, &error),
        }
    }

    fn later(&mut self, slot: usize, why: &dyn std::fmt::Display) {
        self.table.refused(slot, self.longest_pause, why);
    }

    /// An effect could not be carried out.
    pub fn failed(&mut self, slot: usize, error: &AppendError) {
        let Some(fetched) = self.table.get(slot) else { return };
        let is_closed = matches!(error, AppendError::Storage(StorageError::Closed(_)));
        if is_closed
            || fetched.partition.log.is_offline()
            || fetched.partition.log.damage().is_some()
        {
            tracing::warn!(partition = %fetched.partition.name, "is not fetched any more: {error}");
            self.table.remove(slot);
        } else {
            if !fetched.is_refused() {
                let name = &fetched.partition.name;
                tracing::warn!(partition = %name, "what its leader sent is tried again: {error}");
            }
            self.later(slot, error);
        }
    }
}

/// The answer for one partition.
fn of(data: &PartitionData<'_>) -> LeaderAnswer {
    if data.error_code != 0 {
        return LeaderAnswer::Refused(ErrorCode::from(data.error_code));
    }
    let diverging = &data.diverging_epoch;
    if diverging.epoch >= 0 || diverging.end_offset >= 0 {
        let end_offset = Offset(diverging.end_offset);
        return LeaderAnswer::EpochEnds { epoch: Epoch(diverging.epoch), end_offset };
    }
    LeaderAnswer::Fetched {
        high_watermark: Offset(data.high_watermark),
        log_start: Offset(data.log_start_offset),
    }
}
