//! Replies to Produce: at once, or after waiting for watermarks.
//!
//! A delayed request keeps a copy of the names in it, because the connection's buffer is reused.
//! Threads: the connection's reactor thread.

use crate::broker::handlers::produce::parts::{IDS_FROM, Part, named};
use crate::broker::requests::broker::Broker;
use crate::broker::requests::delayed::{Delayed, DelayedOperation, Progress};
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

/// The first version that says what is wrong with which record.
const RECORD_ERRORS_FROM: i16 = 8;

/// A request whose acknowledgements are awaited.
#[derive(Debug)]
pub(crate) struct DelayedProduce {
    acks: Acks,
    topics: Vec<DelayedTopic>,
}

#[derive(Debug)]
struct DelayedTopic {
    name: String,
    id: TopicId,
    parts: Vec<(i32, Part)>,
}

/// Writes the reply to a request that waits for nothing.
pub(crate) fn write(
    head: Head,
    output: &mut Output,
    (image, message, parts): (&ClusterImage, &ProduceRequest<'_>, &[Part]),
) {
    let mut parts = parts.iter();
    let mut responses = Vec::with_capacity(message.topic_data.len());
    for topic in &message.topic_data {
        let found = named(topic, head.version).find(image).ok();
        let mut list = Vec::with_capacity(topic.partition_data.len());
        for (data, part) in topic.partition_data.iter().zip(parts.by_ref()) {
            let mut response = respond(data.index, part, head.version);
            if part.error == ErrorCode::NotLeaderOrFollower
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

fn respond(index: i32, part: &Part, version: i16) -> PartitionProduceResponse<'_> {
    let mut response = PartitionProduceResponse {
        index,
        error_code: part.error.code(),
        base_offset: part.base_offset,
        log_append_time_ms: part.log_append_time,
        log_start_offset: part.log_start_offset,
        ..Default::default()
    };
    if let (Some(record_errors), true) = (&part.record_errors, version >= RECORD_ERRORS_FROM) {
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
    /// What `message` waits for; `parts` are its partitions in order, and are moved out.
    pub(crate) fn new(
        acks: Acks,
        message: &ProduceRequest<'_>,
        (version, parts): (i16, &mut [Part]),
    ) -> Self {
        let mut parts = parts.iter_mut();
        let topics = message.topic_data.iter().map(|topic| {
            let taken = topic.partition_data.iter().zip(parts.by_ref()).map(|(data, part)| {
                (data.index, std::mem::replace(part, Part::refused(ErrorCode::None)))
            });
            let parts = taken.collect();
            let name = if version >= IDS_FROM { "" } else { topic.name };
            DelayedTopic { name: name.to_owned(), id: topic.topic_id, parts }
        });
        Self { acks, topics: topics.collect() }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.topics.iter().flat_map(|topic| topic.parts.iter().map(|(_, part)| part))
    }

    /// Whether all partitions are complete.
    fn is_over(&self) -> bool {
        self.parts().all(|part| part.is_acknowledged(self.acks) || part.failed(self.acks).is_some())
    }

    /// The reply now. Partitions that are not committed have failed or timed out.
    fn reply(&mut self, head: Head, (thread, id): (usize, DelayedId)) -> Output {
        let acks = self.acks;
        for (_, part) in self.topics.iter_mut().flat_map(|topic| topic.parts.iter_mut()) {
            if !part.is_acknowledged(acks) {
                if let Some(partition) = &part.partition {
                    partition.forget(thread, id);
                }
                *part = Part::refused(part.failed(acks).unwrap_or(ErrorCode::RequestTimedOut));
            }
        }
        let responses = self.topics.iter().map(|topic| {
            let parts = topic.parts.iter();
            TopicProduceResponse {
                name: &topic.name,
                topic_id: topic.id,
                partition_responses: parts
                    .map(|(index, part)| respond(*index, part, head.version))
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
    fn try_complete(mut self: Box<Self>, at: &mut Delayed<'_>, is_late: bool) -> Progress {
        match self.is_over() || is_late {
            true => Progress::Answered(self.reply(at.head, (at.thread.index, at.id))),
            false => Progress::Waits(self),
        }
    }

    /// Begins to wait at each partition that has not got so far. True where all got so far
    /// meanwhile, or never will.
    fn begin(&mut self, thread: usize, id: DelayedId) -> bool {
        for part in self.parts().filter(|part| !part.is_acknowledged(self.acks)) {
            if let Some(partition) = &part.partition {
                let wanted = part.wanted;
                partition.wait(Waiter { acks: self.acks, wanted, thread, delayed: id });
            }
        }
        self.is_over()
    }

    fn cancel(&self, _: &Broker, thread: usize, id: DelayedId) {
        for partition in self.parts().filter_map(|part| part.partition.as_ref()) {
            partition.forget(thread, id);
        }
    }
}
