//! The batches of Produce requests between check and reply: staged one after the other, committed
//! once per partition, then answered.
//!
//! Threads: owned by one network thread or one worker.

use std::sync::Arc;

use crate::broker::handlers::produce::append::{AppendRules, NotStaged, UnverifiedPartition};
use crate::broker::handlers::produce::partition_result::PartitionResult;
use crate::broker::handlers::produce::reply::DelayedProduce;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::partition::{Acks, Partition};
use crate::broker::state::waking::Wakes;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::produce::ProduceRequest;
use crate::storage::Stage;

/// How many of the last partitions to commit are searched for a repeated one.
const LOOK_BACK: usize = 4;

/// Buffers that one network thread reuses from event to event.
#[derive(Debug, Default)]
pub(crate) struct ProduceScratch {
    pub(crate) results: Vec<PartitionResult>,
    pub(crate) commits: Vec<(Arc<Partition>, Stage)>,
    pub(crate) converted: Vec<u8>,
    /// Partitions whose transaction must be verified, in the order of their results.
    pub(crate) unverified: Vec<UnverifiedPartition>,
}

/// How a request is answered after its batches are committed.
pub(crate) enum ProduceReply {
    /// No reply: acks=0.
    None,
    /// No reply (acks=0), but the request failed: the connection is closed.
    Close,
    Now,
    /// After the watermarks have passed its records.
    Later(DelayedProduce),
}

impl ProduceReply {
    /// How the request `message` with these results is answered. They are moved out if it is
    /// delayed.
    pub(crate) fn of(
        message: &ProduceRequest<'_>,
        (version, results): (i16, &mut [PartitionResult]),
    ) -> Self {
        let acks = match message.acks {
            0 if results.iter().any(|result| result.error != ErrorCode::None) => {
                return Self::Close;
            }
            0 => return Self::None,
            1 => Acks::Leader,
            _ => Acks::All,
        };
        match results.iter().all(|result| result.is_acknowledged(acks)) {
            true => Self::Now,
            false => Self::Later(DelayedProduce::new(acks, message, (version, results))),
        }
    }
}

impl ProduceScratch {
    /// Stages the partitions of a request from number `from` on. False if one of them takes too
    /// long on this thread: those before it are staged, but for those in `unverified`.
    pub(crate) fn stage(
        &mut self,
        image: &ClusterImage,
        (rules, message, from): (&AppendRules, &ProduceRequest<'_>, usize),
    ) -> bool {
        let mut skip = from;
        for topic in &message.topic_data {
            let found = rules.topic(topic, image);
            for data in &topic.partition_data {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let result = match found {
                    Ok(found) => rules.partition(found, data, &mut self.converted),
                    Err(error) => Ok(PartitionResult::refused(error)),
                };
                let result = match (result, found) {
                    (Ok(result), _) => result,
                    (Err(NotStaged::Unverified(batch)), Ok(found)) => {
                        let partition = TopicPartition::new(Arc::clone(&found.name), data.index);
                        let at = self.results.len();
                        self.unverified.push(UnverifiedPartition { at, partition, batch });
                        PartitionResult::refused(ErrorCode::NotEnoughReplicas)
                    }
                    (Err(_), _) => return false,
                };
                self.commit_later(&result);
                self.results.push(result);
            }
        }
        true
    }

    /// Writes the staged batches, moves watermarks, and stores failures in the results.
    pub(crate) fn commit(&mut self, wakes: &mut Wakes<'_>) {
        for (partition, stage) in self.commits.drain(..) {
            if partition.log.commit(stage).is_err() {
                // Some stages may have been written before the failure: each knows its own result.
                let results = self.results.iter_mut().filter(|result| {
                    result.partition.as_ref().is_some_and(|other| Arc::ptr_eq(other, &partition))
                });
                results.for_each(PartitionResult::settle);
            }
            partition.advance(wakes);
        }
    }

    /// Notes that a result's stage must be committed. A partition with several batches in the event
    /// is noted once, with the last of them.
    pub(crate) fn commit_later(&mut self, result: &PartitionResult) {
        let (Some(partition), Some(stage)) = (&result.partition, result.stage) else { return };
        let recent = self.commits.iter_mut().rev().take(LOOK_BACK);
        match recent.into_iter().find(|(other, _)| Arc::ptr_eq(other, partition)) {
            Some((_, last)) => *last = stage,
            None => self.commits.push((Arc::clone(partition), stage)),
        }
    }
}
