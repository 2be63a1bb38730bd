//! Writes the replies to Produce, at once or after their watermarks have moved.
//!
//! A delayed request keeps a copy of the names in it, because the connection's buffer is reused.
//! Threads: the connection's network thread.

use crate::broker::handlers::produce::partition_result::{IDS_FROM, PartitionResult, named};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::{DelayedContext, DelayedOperation, OperationProgress};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::partition::{Acks, Waiter};
use crate::broker::state::waking::DelayedId;
use crate::ids::TopicId;
use crate::protocol::ErrorCode;
use crate::protocol::produce::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, ProduceRequest,
    ProduceResponse, TopicProduceResponse,
};

/// The first version with record errors.
const RECORD_ERRORS_FROM: i16 = 8;

/// A request that waits for its acknowledgements.
#[derive(Debug)]
pub(crate) struct DelayedProduce {
    acks: Acks,
    topics: Vec<DelayedTopic>,
}

#[derive(Debug)]
struct DelayedTopic {
    name: String,
    id: TopicId,
    results: Vec<(i32, PartitionResult)>,
}

/// Writes the reply to a request that does not wait.
pub(crate) fn write(
    head: Head,
    output: &mut Output,
    (image, message, results): (&ClusterImage, &ProduceRequest<'_>, &[PartitionResult]),
) {
    let mut results = results.iter();
    let mut responses = Vec::with_capacity(message.topic_data.len());
    for topic in &message.topic_data {
        let found = named(topic, head.version).find(image).ok();
        let mut list = Vec::with_capacity(topic.partition_data.len());
        for (data, result) in topic.partition_data.iter().zip(results.by_ref()) {
            let mut response = respond(data.index, result, head.version);
            if result.error == ErrorCode::NotLeaderOrFollower
                && let Some(leader) = found.and_then(|topic| topic.partition(data.index))
            {
                response.current_leader = LeaderIdAndEpoch {
                    leader_id: leader.state.leader,
                    leader_epoch: leader.state.leader_epoch.0,
                };
            }
            list.push(response);
        }
        responses.push(TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses: list,
        });
    }
    let throttle_time_ms = head.throttle_time_ms;
    let response = ProduceResponse { responses, throttle_time_ms, ..Default::default() };
    head.reply(output, |writer, version| response.encode(writer, version));
}

fn respond(index: i32, result: &PartitionResult, version: i16) -> PartitionProduceResponse<'_> {
    let mut response = PartitionProduceResponse {
        index,
        error_code: result.error.code(),
        base_offset: result.base_offset,
        log_append_time_ms: result.log_append_time,
        log_start_offset: result.log_start_offset,
        ..Default::default()
    };
    if let (Some(record_errors), true) = (&result.record_errors, version >= RECORD_ERRORS_FROM) {
        response.error_message = Some(&record_errors.message);
        let each = record_errors.records.iter().map(|(index, text)| BatchIndexAndErrorMessage {
            batch_index: *index,
            batch_index_error_message: Some(text),
        });
        response.record_errors = each.collect();
    }
    response
}

impl DelayedProduce {
    /// A delayed `message`. `results` are those of its partitions in order; they are moved out.
    pub(crate) fn new(
        acks: Acks,
        message: &ProduceRequest<'_>,
        (version, results): (i16, &mut [PartitionResult]),
    ) -> Self {
        let mut results = results.iter_mut();
        let topics = message.topic_data.iter().map(|topic| {
            let taken = topic.partition_data.iter().zip(results.by_ref()).map(|(data, result)| {
                (data.index, std::mem::replace(result, PartitionResult::refused(ErrorCode::None)))
            });
            let results = taken.collect();
            let name = if version >= IDS_FROM { "" } else { topic.name };
            DelayedTopic { name: name.to_owned(), id: topic.topic_id, results }
        });
        Self { acks, topics: topics.collect() }
    }

    fn results(&self) -> impl Iterator<Item = &PartitionResult> {
        self.topics.iter().flat_map(|topic| topic.results.iter().map(|(_, result)| result))
    }

    /// Whether all partitions are complete.
    fn is_over(&self) -> bool {
        self.results()
            .all(|result| result.is_acknowledged(self.acks) || result.failed(self.acks).is_some())
    }

    /// The reply. A partition that is not committed has failed or timed out.
    fn reply(&mut self, head: Head, (thread, id): (usize, DelayedId)) -> Output {
        let acks = self.acks;
        for (_, result) in self.topics.iter_mut().flat_map(|topic| topic.results.iter_mut()) {
            if !result.is_acknowledged(acks) {
                if let Some(partition) = &result.partition {
                    partition.forget(thread, id);
                }
                *result = PartitionResult::refused(
                    result.failed(acks).unwrap_or(ErrorCode::RequestTimedOut),
                );
            }
        }
        let responses = self.topics.iter().map(|topic| {
            let results = topic.results.iter();
            TopicProduceResponse {
                name: &topic.name,
                topic_id: topic.id,
                partition_responses: results
                    .map(|(index, result)| respond(*index, result, head.version))
                    .collect(),
            }
        });
        let response = ProduceResponse {
            responses: responses.collect(),
            throttle_time_ms: head.throttle_time_ms,
            ..Default::default()
        };
        head.output(|writer, version| response.encode(writer, version))
    }
}

impl DelayedOperation for DelayedProduce {
    fn try_complete(
        mut self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        match self.is_over() || is_late {
            true => OperationProgress::Answered(self.reply(at.head, (at.thread.index, at.id))),
            false => OperationProgress::Waits(self),
        }
    }

    /// Begins to wait at each partition that is not committed. True if all are committed by now, or
    /// never will be.
    fn begin(&mut self, thread: usize, id: DelayedId) -> bool {
        for result in self.results().filter(|result| !result.is_acknowledged(self.acks)) {
            if let Some(partition) = &result.partition {
                let wanted = result.end;
                partition.wait(Waiter { acks: self.acks, wanted, thread, delayed: id });
            }
        }
        self.is_over()
    }

    fn cancel(&self, _: &Broker, thread: usize, id: DelayedId) {
        for partition in self.results().filter_map(|result| result.partition.as_ref()) {
            partition.forget(thread, id);
        }
    }
}
