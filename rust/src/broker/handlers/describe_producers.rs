//! DescribeProducers (61), v0: the producers whose state a partition keeps.
//! Behaviour: for each producer its epoch, last sequence number, the time of its last batch, and
//!     the first offset of its open transaction (-1: none). A partition that is named twice is
//!     answered once. Any replica answers.
//! Authorization: Read on the topic, else TOPIC_AUTHORIZATION_FAILED (29).
//! Version notes: there is only v0.
//! Not done: nothing.

use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Read;
use crate::broker::state::lookup::{NamedTopic, find_replica};
use crate::protocol::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState,
    TopicResponse,
};
use crate::storage::ActiveProducer;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = DescribeProducersRequest::decode(&mut call.reader(), call.version())?;
    let (image, node) = (call.image(), call.broker.settings().node_id);
    let access = call.access();
    let mut first = FirstOnly::default();
    let topics = request.topics.iter().map(|topic| {
        let found = access.topic(Read, NamedTopic { topic: topic.name, id: None }, &image);
        let indexes = topic.partition_indexes.iter();
        let once = indexes.filter(|index| first.passes((topic.name, **index)));
        let answers = once.map(|index| {
            let producers = found
                .and_then(|topic| find_replica(topic, *index, node))
                .map(|(_, partition)| partition.log.producers());
            let partition_index = *index;
            match producers {
                Ok(producers) => PartitionResponse {
                    partition_index,
                    active_producers: producers.iter().map(state).collect(),
                    ..Default::default()
                },
                Err(error) => PartitionResponse {
                    partition_index,
                    error_code: error.code(),
                    error_message: Some(error.name()),
                    ..Default::default()
                },
            }
        });
        TopicResponse { name: topic.name, partitions: answers.collect() }
    });
    let response = DescribeProducersResponse { topics: topics.collect(), ..Default::default() };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}

fn state(producer: &ActiveProducer) -> ProducerState {
    ProducerState {
        producer_id: producer.producer_id,
        producer_epoch: i32::from(producer.producer_epoch),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.current_txn_start_offset,
    }
}
