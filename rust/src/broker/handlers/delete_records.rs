//! DeleteRecords (21), v0-2: moves the log start offset of partitions. Older records are deleted.
//! Behaviour: offset -1 means the high watermark; a larger offset is OFFSET_OUT_OF_RANGE (1). A
//!     topic that is compacted and never deletes is refused with POLICY_VIOLATION (44). The reply
//!     waits until the log start of all live replicas has passed the offset, and holds the lowest.
//!     After `timeout_ms`: REQUEST_TIMED_OUT (7). The next run of retention removes the segments.
//! Authorization: Delete on the topic, else TOPIC_AUTHORIZATION_FAILED (29).
//! Version notes: v2 is flexible.
//! Not done: nothing.

use std::sync::Arc;

use crate::broker::errors;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::delayed::{DelayedContext, DelayedOperation, OperationProgress};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Delete;
use crate::broker::state::lookup::{NamedTopic, find_led};
use crate::broker::state::partition::{ChangeWatcher, Partition};
use crate::broker::state::waking::DelayedId;
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::protocol::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};

/// A request that waits for the followers.
#[derive(Debug)]
struct DelayedDeletion {
    topics: Vec<(String, Vec<(i32, DeletionResult)>)>,
    watch: Arc<ChangeWatcher>,
}

/// The result for one partition.
#[derive(Clone, Debug)]
enum DeletionResult {
    Failed(ErrorCode),
    /// The leader's records below `wanted` are deleted.
    Deleted {
        partition: Arc<Partition>,
        term: u32,
        wanted: Offset,
    },
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = DeleteRecordsRequest::decode(&mut call.reader(), call.version())?;
    let (image, access) = (call.image(), call.access());
    let node = call.broker.settings.load().node_id;
    let topics = request.topics.iter().map(|topic| {
        let found = access.topic(Delete, NamedTopic { topic: topic.name, id: None }, &image);
        let results = topic.partitions.iter().map(|asked| {
            let deleted = found
                .and_then(|topic| Ok((topic, find_led(topic, asked.partition_index, node)?)))
                .and_then(|(topic, (_, partition))| {
                    let config = &topic.settings.log;
                    if config.compact && !config.delete {
                        return Err(ErrorCode::PolicyViolation);
                    }
                    let term = partition.term();
                    let start = partition.log.delete_records(Offset(asked.offset));
                    let start = start.map_err(|error| errors::of_read(&error))?;
                    let wanted = if asked.offset < 0 { start } else { Offset(asked.offset) };
                    let partition = Arc::clone(partition);
                    Ok(DeletionResult::Deleted { partition, term, wanted })
                });
            (asked.partition_index, deleted.unwrap_or_else(DeletionResult::Failed))
        });
        (topic.name.to_owned(), results.collect())
    });
    let topics: Vec<(String, Vec<_>)> = topics.collect();
    let waiting = DelayedDeletion { topics, watch: Arc::new(ChangeWatcher::new(false)) };
    for partition in waiting.partitions() {
        partition.log_start_moved(&mut call.broker.wakes(call.thread));
    }
    if waiting.is_over() {
        let head = call.request.head;
        waiting.write(head, call.replies.ready());
        return Ok(Flow::Go);
    }
    for partition in waiting.partitions() {
        partition.add_watcher(&waiting.watch, 0);
    }
    let id = call.thread.delayed.name();
    waiting.watch.wake_on_change(call.thread.index, id);
    // A follower may have fetched between the check and the start of the watch.
    call.thread.to_retry.push(id);
    let timeout_ms = i64::from(request.timeout_ms.max(0));
    let deadline_ms = call.broker.clock.monotonic_ms().saturating_add(timeout_ms);
    call.delay_as(id, Some(deadline_ms), Box::new(waiting));
    Ok(Flow::Go)
}

impl DelayedDeletion {
    fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        let results = self.topics.iter().flat_map(|(_, results)| results);
        results.filter_map(|(_, result)| match result {
            DeletionResult::Deleted { partition, .. } => Some(partition),
            DeletionResult::Failed(_) => None,
        })
    }

    fn is_over(&self) -> bool {
        let mut results = self.topics.iter().flat_map(|(_, results)| results);
        results.all(|(_, result)| result.is_over())
    }

    /// Writes the reply. Partitions whose followers have not deleted the records have timed out.
    fn write(&self, head: Head, output: &mut Output) {
        let topics = self.topics.iter().map(|(name, results)| {
            let partitions = results.iter().map(|(index, result)| {
                let (error, low_watermark) = result.answer();
                DeleteRecordsPartitionResult {
                    partition_index: *index,
                    low_watermark: low_watermark.0,
                    error_code: error.code(),
                }
            });
            DeleteRecordsTopicResult { name, partitions: partitions.collect() }
        });
        let response = DeleteRecordsResponse { topics: topics.collect(), ..Default::default() };
        head.reply(output, |writer, version| response.encode(writer, version));
    }
}

impl DeletionResult {
    fn is_over(&self) -> bool {
        self.answer().0 != ErrorCode::RequestTimedOut
    }

    /// The answer as it is now.
    fn answer(&self) -> (ErrorCode, Offset) {
        match self {
            Self::Failed(error) => (*error, Offset::NONE),
            Self::Deleted { partition, term, .. } if partition.term() != *term => {
                (ErrorCode::NotLeaderOrFollower, Offset::NONE)
            }
            Self::Deleted { partition, wanted, .. } => match partition.low_watermark() {
                low if low >= *wanted => (ErrorCode::None, low),
                low => (ErrorCode::RequestTimedOut, low),
            },
        }
    }
}

impl DelayedOperation for DelayedDeletion {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        let mut changed = Vec::new();
        self.watch.take(&mut changed);
        if self.is_over() || is_late {
            self.cancel(at.broker, at.thread.index, at.id);
            let mut output = Output::default();
            self.write(at.head, &mut output);
            return OperationProgress::Answered(output);
        }
        if !self.watch.wake_on_change(at.thread.index, at.id) {
            at.thread.to_retry.push(at.id);
        }
        OperationProgress::Waits(self)
    }

    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {
        self.watch.cancel_wake();
        for partition in self.partitions() {
            partition.remove_watcher(&self.watch);
        }
    }
}
