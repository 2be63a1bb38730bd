//! DescribeTopicPartitions (75), v0: topics with their partitions, in pages.
//! Behaviour: topics are sorted by name. An empty list means all topics. A page has at most
//!     `response_partition_limit` partitions, and at most the broker's own limit; the cursor names
//!     the first partition of the next page. A negative partition in a cursor is read as 0. An
//!     unknown topic is UNKNOWN_TOPIC_OR_PARTITION (3); the broker does not create it.
//! Version notes: there is only v0.
//! Authorization: a topic that the client names and may not describe is TOPIC_AUTHORIZATION_FAILED
//!     (29). A list of all topics has those that it may describe.
//! Not done: eligible leader replicas (KIP-966). The list is empty: the controller keeps them in
//!     the partition's state znode, and the cluster image does not have them. The schema also
//!     allows null, but Java's admin client fails on it.

use std::sync::Arc;

use crate::broker::handlers::metadata::is_legal;
use crate::broker::requests::access::{Access, OPERATIONS_NOT_ASKED};
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Describe;
use crate::broker::state::acls::ResourceType::Topic;
use crate::broker::state::image::{ClusterImage, TopicImage};
use crate::protocol::ErrorCode;
use crate::protocol::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};

/// A topic of the reply.
struct TopicToDescribe<'a> {
    name: &'a str,
    /// `None`: there is no such topic.
    topic: Option<&'a Arc<TopicImage>>,
    first_partition: usize,
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = DescribeTopicPartitionsRequest::decode(&mut call.reader(), call.version())?;
    let image = call.image();
    let most = call.broker.settings.load().partitions_per_answer;
    let limit = match request.response_partition_limit {
        1.. => most.min(request.response_partition_limit),
        _ => most,
    };
    let mut left = usize::try_from(limit).unwrap_or(1).max(1);
    let access = call.access();
    let mut response = DescribeTopicPartitionsResponse::default();
    for TopicToDescribe { name, topic, first_partition } in
        topics_from_cursor((&image, &access), &request)
    {
        let topic = match topic {
            _ if !access.check(Describe, Topic, name) => {
                response.topics.push(refused(name, ErrorCode::TopicAuthorizationFailed));
                continue;
            }
            Some(topic) => topic,
            None => {
                response.topics.push(absent(name));
                continue;
            }
        };
        if left == 0 {
            response.next_cursor = cursor(name, first_partition);
            break;
        }
        let count = topic.partitions.len().saturating_sub(first_partition).min(left);
        left -= count;
        response.topics.push(describe(topic, (first_partition, count), (&image, &access)));
        if first_partition + count < topic.partitions.len() {
            response.next_cursor = cursor(name, first_partition + count);
            break;
        }
    }
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}

/// The requested topics in the order of their names, from the request's cursor on.
fn topics_from_cursor<'a>(
    (image, access): (&'a ClusterImage, &Access),
    request: &DescribeTopicPartitionsRequest<'a>,
) -> Vec<TopicToDescribe<'a>> {
    let mut names: Vec<&'a str> = if request.topics.is_empty() {
        let names = image.topics().map(|topic| &*topic.name);
        names.filter(|name| access.sees(Describe, Topic, name)).collect()
    } else {
        request.topics.iter().map(|topic| topic.name).collect()
    };
    names.sort_unstable();
    names.dedup();
    let cursor = request.cursor.as_ref();
    let begins = cursor.map_or("", |cursor| cursor.topic_name);
    let from = cursor.map_or(0, |cursor| usize::try_from(cursor.partition_index).unwrap_or(0));
    let rest = names.into_iter().filter(|name| *name >= begins);
    let to_describe = rest.map(|name| TopicToDescribe {
        name,
        topic: image.topic(name),
        first_partition: if name == begins { from } else { 0 },
    });
    to_describe.collect()
}

fn cursor(topic_name: &str, partition: usize) -> Option<Cursor<'_>> {
    let partition_index = i32::try_from(partition).ok()?;
    Some(Cursor { topic_name, partition_index })
}

fn absent(name: &str) -> DescribeTopicPartitionsResponseTopic<'_> {
    let error = if is_legal(name) {
        ErrorCode::UnknownTopicOrPartition
    } else {
        ErrorCode::InvalidTopicException
    };
    refused(name, error)
}

fn refused(name: &str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic<'_> {
    DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        name: Some(name),
        topic_authorized_operations: OPERATIONS_NOT_ASKED,
        ..Default::default()
    }
}

fn describe<'a>(
    topic: &'a TopicImage,
    (from, count): (usize, usize),
    (image, access): (&ClusterImage, &Access),
) -> DescribeTopicPartitionsResponseTopic<'a> {
    let partitions = (0..).zip(&topic.partitions).skip(from).take(count);
    let partitions = partitions.map(|(partition_index, partition)| {
        let state = &partition.state;
        let offline = state.replicas.iter().copied().filter(|node| image.broker(*node).is_none());
        let error = if state.leader < 0 { ErrorCode::LeaderNotAvailable } else { ErrorCode::None };
        DescribeTopicPartitionsResponsePartition {
            error_code: error.code(),
            partition_index,
            leader_id: state.leader,
            leader_epoch: state.leader_epoch.0,
            replica_nodes: state.replicas.clone(),
            isr_nodes: state.isr.clone(),
            eligible_leader_replicas: Some(Vec::new()),
            last_known_elr: Some(Vec::new()),
            offline_replicas: offline.collect(),
        }
    });
    DescribeTopicPartitionsResponseTopic {
        error_code: 0,
        name: Some(&topic.name),
        topic_id: topic.id,
        is_internal: topic.internal,
        partitions: partitions.collect(),
        topic_authorized_operations: access.topic_operations(&topic.name),
    }
}
