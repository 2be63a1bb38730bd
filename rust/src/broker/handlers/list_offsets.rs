//! ListOffsets (2), v0-11: the offset for a timestamp, for each partition.
//! Behaviour: -1 is the high watermark (read_committed: the last stable offset; a replica: the log
//!     end offset). A new leader does not know the high watermark until the in-sync replicas have
//!     fetched: a question that depends on it is OFFSET_NOT_AVAILABLE (78; below v5
//!     LEADER_NOT_AVAILABLE). -2 and -4 are the log start offset. -3 is the record with the largest
//!     timestamp. Replica id -2 (a tool that compares replicas) asks any replica. A worker
//!     searches for all other timestamps in the time index, then in the
//!     segment, for the first record that is not older. If there is none below the reader's limit,
//!     the offset is -1 without an error. A partition that is named twice is INVALID_REQUEST (42),
//!     as in Kafka.
//! Version notes: v0 lists base offsets of segments in descending order, selected by the age of
//!     their files. v1 returns one (timestamp, offset). v2 adds the isolation level. v4 adds the
//!     leader epoch and fences old ones. v7 adds -3, v8 -4, v9 -5, v11 -6; in older versions they
//!     are UNSUPPORTED_VERSION (35).
//! Authorization: a topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED (29).
//! Not done: tiered storage. -5 and -6 return -1.

use ahash::HashSet;

use crate::broker::errors;
use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::requests::access::Access;
use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::delayed::WorkResult;
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Describe;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::lookup::{NamedTopic, check_leader_epoch, find_led, find_replica};
use crate::broker::state::partition::Partition;
use crate::ids::{Epoch, Offset};
use crate::protocol::ErrorCode;
use crate::protocol::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use crate::storage::{FoundOffset, Log};
use crate::wire::Reader;

/// Kafka's debugging consumer.
const DEBUGGER: i32 = -2;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING: i64 = -6;

/// The parameters of the request that apply to all its partitions.
struct OffsetLookupRules {
    version: i16,
    read_committed: bool,
    is_replica: bool,
    now_ms: i64,
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = ListOffsetsRequest::decode(&mut call.reader(), call.version())?;
    let head = call.request.head;
    if !is_long(&request, head.version) {
        let image = call.image();
        let access = call.access();
        answer((call.broker, &image, &access), (head, &request), call.replies.ready());
        return Ok(Flow::Go);
    }
    let lease = call.lease.take().or_else(|| call.broker.memory().lease(call.request.size));
    let (body, access) = (call.request.body.to_vec(), call.access());
    call.hand_over(lease, move |broker| {
        let Ok(request) = ListOffsetsRequest::decode(&mut Reader::new(&body), head.version) else {
            return WorkResult::Fails;
        };
        let mut output = Output::default();
        answer((broker, &broker.image(), &access), (head, &request), &mut output);
        WorkResult::Answer(output)
    });
    Ok(Flow::Hold)
}

/// Whether a worker answers the request: a search by time reads a batch of each partition, and may
/// inflate it.
fn is_long(request: &ListOffsetsRequest<'_>, version: i16) -> bool {
    let mut asked = request.topics.iter().flat_map(|topic| &topic.partitions);
    version > 0 && asked.any(|asked| asked.timestamp >= 0 || asked.timestamp == MAX_TIMESTAMP)
}

fn answer(
    (broker, image, access): (&Broker, &ClusterImage, &Access),
    (head, request): (Head, &ListOffsetsRequest<'_>),
    output: &mut Output,
) {
    let node = broker.settings().node_id;
    let reading = OffsetLookupRules {
        version: head.version,
        read_committed: request.isolation_level == 1,
        is_replica: request.replica_id >= 0 || request.replica_id == DEBUGGER,
        now_ms: broker.clock.wall_ms(),
    };
    let repeated = repeated(request);
    let topics = request.topics.iter().map(|topic| {
        let found = access.topic(Describe, NamedTopic { topic: topic.name, id: None }, image);
        let answers = topic.partitions.iter().map(|asked| {
            let is_repeated = repeated.contains(&(topic.name, asked.partition_index));
            let answered = found
                .and_then(
                    |topic| if is_repeated { Err(ErrorCode::InvalidRequest) } else { Ok(topic) },
                )
                .and_then(|topic| match request.replica_id {
                    DEBUGGER => find_replica(topic, asked.partition_index, node),
                    _ => find_led(topic, asked.partition_index, node),
                })
                .and_then(|(image, partition)| {
                    check_leader_epoch(asked.current_leader_epoch, image.state.leader_epoch)?;
                    reading.answer(partition, asked)
                });
            let partition_index = asked.partition_index;
            match answered {
                Ok(answer) => ListOffsetsPartitionResponse { partition_index, ..answer },
                Err(error) => ListOffsetsPartitionResponse {
                    partition_index,
                    error_code: error.code(),
                    ..no_offset()
                },
            }
        });
        ListOffsetsTopicResponse { name: topic.name, partitions: answers.collect() }
    });
    let response = ListOffsetsResponse { topics: topics.collect(), ..Default::default() };
    head.reply(output, |writer, version| response.encode(writer, version));
}

/// The partitions that a request names more than once. They are refused, because the request's size
/// would not bound their cost.
fn repeated<'f>(request: &ListOffsetsRequest<'f>) -> HashSet<(&'f str, i32)> {
    let mut first = FirstOnly::default();
    let topics = request.topics.iter();
    let named = topics.flat_map(|topic| {
        topic.partitions.iter().map(|partition| (topic.name, partition.partition_index))
    });
    named.filter(|named| !first.passes(*named)).collect()
}

impl OffsetLookupRules {
    fn answer(
        &self,
        partition: &Partition,
        asked: &ListOffsetsPartition,
    ) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
        let log = &*partition.log;
        if self.version == 0 {
            let count = usize::try_from(asked.max_num_offsets).unwrap_or(0);
            let all = log.legacy_offsets_before(asked.timestamp, self.now_ms).into_iter();
            let seen = all.map(|offset| offset.min(self.end(log)).0);
            let old_style_offsets = seen.take(count).collect();
            return Ok(ListOffsetsPartitionResponse { old_style_offsets, ..no_offset() });
        }
        let first = match asked.timestamp {
            MAX_TIMESTAMP => 7,
            EARLIEST_LOCAL => 8,
            LATEST_TIERED => 9,
            EARLIEST_PENDING => 11,
            other if other < EARLIEST_PENDING => i16::MAX,
            _ => 1,
        };
        if self.version < first {
            return Err(ErrorCode::UnsupportedVersion);
        }
        let storage = |error| errors::of_storage(&error);
        Ok(match asked.timestamp {
            LATEST => {
                self.check_known(partition)?;
                at(self.end(log), -1, log.latest_epoch())
            }
            EARLIEST | EARLIEST_LOCAL => {
                let start = log.log_start_offset();
                at(start, -1, log.epoch_at(start))
            }
            LATEST_TIERED | EARLIEST_PENDING => no_offset(),
            MAX_TIMESTAMP => self.seen(partition, log.max_timestamp().map_err(storage)?)?,
            time => self.seen(partition, log.offset_for_timestamp(time).map_err(storage)?)?,
        })
    }

    /// Checks that the end of the readable records is known.
    fn check_known(&self, partition: &Partition) -> Result<(), ErrorCode> {
        match self.is_replica || partition.knows_high_watermark() {
            true => Ok(()),
            false if self.version >= 5 => Err(ErrorCode::OffsetNotAvailable),
            false => Err(ErrorCode::LeaderNotAvailable),
        }
    }

    /// The end of the records that the reader may read.
    fn end(&self, log: &Log) -> Offset {
        if self.is_replica {
            log.log_end_offset()
        } else if self.read_committed {
            log.last_stable_offset()
        } else {
            log.high_watermark()
        }
    }

    /// A record, if the reader may see it.
    fn seen(
        &self,
        partition: &Partition,
        found: Option<FoundOffset>,
    ) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
        match found.filter(|found| found.offset < self.end(&partition.log)) {
            Some(found) => Ok(at(found.offset, found.timestamp, found.leader_epoch)),
            None => self.check_known(partition).map(|()| no_offset()),
        }
    }
}

fn at(offset: Offset, timestamp: i64, epoch: Epoch) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        offset: offset.0,
        timestamp,
        leader_epoch: epoch.0,
        ..no_offset()
    }
}

fn no_offset() -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse {
        partition_index: 0,
        error_code: 0,
        old_style_offsets: Vec::new(),
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
    }
}
