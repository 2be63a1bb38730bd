//! OffsetForLeaderEpoch (23), v0-4: where the log of a leader epoch ends, so that who wrote or read
//! under it finds where logs part.
//! Behaviour: the largest epoch not above the one asked, and the offset at which the next one
//!     began; the log end for the latest epoch; (-1, -1) where nothing is known.
//! Version notes: v1 adds the epoch to the answer; v2 the leader's epoch as the client knows it, an
//!     old one is fenced; v3 the replica id.
//! Not done: nothing.

use crate::broker::requests::call::{Call, Outcome};
use crate::broker::requests::service::Flow;
use crate::broker::state::lookup::{Named, fence, led};
use crate::ids::Epoch;
use crate::protocol::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let request = OffsetForLeaderEpochRequest::decode(&mut call.reader(), call.version())?;
    let image = call.image();
    let node = call.broker.settings.load().node_id;
    let topics = request.topics.iter().map(|topic| {
        let found = Named { topic: topic.topic, id: None }.find(&image);
        let answers = topic.partitions.iter().map(|asked| {
            let ended = found.and_then(|topic| led(topic, asked.partition, node)).and_then(
                |(image, partition)| {
                    fence(asked.current_leader_epoch, image.state.leader_epoch)?;
                    Ok(partition.log.end_offset_for_epoch(Epoch(asked.leader_epoch)))
                },
            );
            let (error_code, leader_epoch, end_offset) = match ended {
                Ok((epoch, offset)) => (0, epoch.0, offset.0),
                Err(error) => (error.code(), -1, -1),
            };
            EpochEndOffset { error_code, partition: asked.partition, leader_epoch, end_offset }
        });
        OffsetForLeaderTopicResult { topic: topic.topic, partitions: answers.collect() }
    });
    let response = OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}
