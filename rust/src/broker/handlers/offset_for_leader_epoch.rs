//! OffsetForLeaderEpoch (23), v0-4: the end offset of a leader epoch. Clients and followers use it
//! to find where logs diverge.
//! Behaviour: returns the largest epoch that is not above the requested one, and the start offset
//!     of the next epoch. For the latest epoch that is the log end offset. (-1, -1) if no such
//!     epoch is known.
//! Authorization: ClusterAction, or Describe on the topic, else TOPIC_AUTHORIZATION_FAILED (29).
//! Version notes: v1 adds the epoch to the reply. v2 adds the leader epoch that the client knows,
//!     and fences old ones. v3 adds the replica id.
//! Not done: nothing.

use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::{ClusterAction, Describe};
use crate::broker::state::lookup::{NamedTopic, check_leader_epoch, find_led};
use crate::ids::Epoch;
use crate::protocol::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = OffsetForLeaderEpochRequest::decode(&mut call.reader(), call.version())?;
    let (image, access) = (call.image(), call.access());
    let is_broker = access.sees_cluster(ClusterAction);
    let node = call.broker.settings.load().node_id;
    let topics = request.topics.iter().map(|topic| {
        let named = NamedTopic { topic: topic.topic, id: None };
        let found = match is_broker {
            true => named.find(&image),
            false => access.topic(Describe, named, &image),
        };
        let answers = topic.partitions.iter().map(|asked| {
            let ended = found.and_then(|topic| find_led(topic, asked.partition, node)).and_then(
                |(image, partition)| {
                    check_leader_epoch(asked.current_leader_epoch, image.state.leader_epoch)?;
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
