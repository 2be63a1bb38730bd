//! The result of a Produce for each partition.

use std::sync::Arc;

use crate::broker::errors;
use crate::broker::handlers::produce::faults::RecordErrors;
use crate::broker::state::lookup::NamedTopic;
use crate::broker::state::partition::{Acks, CommitState, Partition};
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::protocol::produce::TopicProduceData;
use crate::storage::Stage;

/// The first version that names topics by id.
pub(crate) const IDS_FROM: i16 = 13;

/// The result of a Produce for one partition.
#[derive(Debug)]
pub(crate) struct PartitionResult {
    pub(crate) partition: Option<Arc<Partition>>,
    pub(crate) stage: Option<Stage>,
    pub(crate) error: ErrorCode,
    /// The bad records and their faults, if they are known.
    pub(crate) record_errors: Option<Box<RecordErrors>>,
    pub(crate) base_offset: i64,
    pub(crate) log_append_time: i64,
    pub(crate) log_start_offset: i64,
    /// The partition's term in which the records were appended.
    pub(crate) term: u32,
    /// One past the last record.
    pub(crate) end: Offset,
    /// Refused because this leader is cut off from its followers and the controller.
    pub(crate) is_cut_off: bool,
}

pub(crate) fn named<'a>(topic: &TopicProduceData<'a>, version: i16) -> NamedTopic<'a> {
    let id = (version >= IDS_FROM).then_some(topic.topic_id);
    NamedTopic { topic: topic.name, id }
}

impl PartitionResult {
    /// Nothing was appended.
    pub(crate) fn refused(error: ErrorCode) -> Self {
        Self {
            partition: None,
            stage: None,
            error,
            record_errors: None,
            base_offset: -1,
            log_append_time: -1,
            log_start_offset: -1,
            term: 0,
            end: Offset(0),
            is_cut_off: false,
        }
    }

    /// Reads the stage's own result after a commit of its partition failed.
    pub(crate) fn settle(&mut self) {
        let (Some(partition), Some(stage)) = (&self.partition, self.stage) else { return };
        if let Err(error) = partition.log.commit(stage) {
            *self = Self::refused(errors::of_storage(&error));
        }
    }

    /// Whether it is complete: it failed, or the watermark has passed it.
    pub(crate) fn is_acknowledged(&self, acks: Acks) -> bool {
        self.error != ErrorCode::None
            || (self.partition.as_ref())
                .is_none_or(|p| p.is_acknowledged(acks, (self.term, self.end)))
    }

    /// The error if the records will not be committed: the disk failed, this broker ceased to lead
    /// or is cut off, or too few replicas are in sync.
    pub(crate) fn failed(&self, acks: Acks) -> Option<ErrorCode> {
        let partition = self.partition.as_ref()?;
        if partition.log.is_offline() {
            return Some(ErrorCode::KafkaStorageError);
        }
        if partition.term() != self.term {
            return Some(ErrorCode::NotLeaderOrFollower);
        }
        match partition.commit_state() {
            CommitState::TooFewInSync if acks == Acks::All => {
                Some(ErrorCode::NotEnoughReplicasAfterAppend)
            }
            CommitState::CutOff if acks == Acks::All => Some(ErrorCode::NotLeaderOrFollower),
            _ => None,
        }
    }
}
