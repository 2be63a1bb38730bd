//! DeleteRecords (21), v0-2: moves the log start offset of partitions. Older records are deleted.
//! Behaviour: offset -1 means the high watermark; a larger offset is OFFSET_OUT_OF_RANGE (1). The
//!     reply holds the new log start offset. A topic that is compacted and never deletes is refused
//!     with POLICY_VIOLATION (44). The next run of retention removes the segments.
//! Version notes: v2 is flexible.
//! Not done: waiting for followers. There is no replication.

use crate::broker::errors;
use crate::broker::requests::call::{Call, Outcome};
use crate::broker::requests::service::Flow;
use crate::broker::state::lookup::{Named, led};
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::protocol::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let request = DeleteRecordsRequest::decode(&mut call.reader(), call.version())?;
    let image = call.image();
    let node = call.broker.settings.load().node_id;
    let mut moved = Vec::new();
    let topics = request.topics.iter().map(|topic| {
        let found = Named { topic: topic.name, id: None }.find(&image);
        let answers = topic.partitions.iter().map(|asked| {
            let deleted = found
                .and_then(|topic| Ok((topic, led(topic, asked.partition_index, node)?)))
                .and_then(|(topic, (_, partition))| {
                    let config = &topic.settings.log;
                    if config.compact && !config.delete {
                        return Err(ErrorCode::PolicyViolation);
                    }
                    let start = partition.log.delete_records(Offset(asked.offset));
                    let start = start.map_err(|error| errors::of_read(&error))?;
                    moved.push(partition);
                    Ok(start)
                });
            let (error_code, low_watermark) = match deleted {
                Ok(start) => (0, start.0),
                Err(error) => (error.code(), -1),
            };
            let partition_index = asked.partition_index;
            DeleteRecordsPartitionResult { partition_index, low_watermark, error_code }
        });
        DeleteRecordsTopicResult { name: topic.name, partitions: answers.collect() }
    });
    let response = DeleteRecordsResponse { topics: topics.collect(), ..Default::default() };
    for partition in moved {
        partition.advance(&mut call.broker.wakes(call.thread));
    }
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}
