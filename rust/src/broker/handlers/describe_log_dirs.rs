//! DescribeLogDirs (35), v0-5: which partitions each log directory holds, and their sizes.
//! Behaviour: one result for each directory; an offline directory has KAFKA_STORAGE_ERROR (56). A
//!     null list of topics means all. A replica that AlterReplicaLogDirs is copying has the key
//!     `future`, and its lag is the number of offsets not yet copied. All other lags are 0.
//! Authorization: Describe on the cluster, else CLUSTER_AUTHORIZATION_FAILED (31).
//! Version notes: v3 adds an error for the whole reply, v4 the total and usable bytes of the file
//!     system, v5 whether the directory is cordoned (never).
//! Not done: the lag of followers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::broker::handlers::first_only::FirstOnly;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::Describe;
use crate::broker::state::image::ClusterImage;
use crate::broker::state::partition::Partition;
use crate::protocol::ErrorCode;
use crate::protocol::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeLogDirsResult, DescribeLogDirsTopic,
};
use crate::storage::{FutureReplica, LogDir};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = DescribeLogDirsRequest::decode(&mut call.reader(), call.version())?;
    if !call.access().check_cluster(Describe) {
        let error_code = ErrorCode::ClusterAuthorizationFailed.code();
        let response = DescribeLogDirsResponse { error_code, ..Default::default() };
        call.reply(|writer, version| response.encode(writer, version));
        return Ok(Flow::Go);
    }
    let image = call.image();
    let partitions = wanted(&image, &request);
    let dirs = call.broker.log_manager.dirs();
    let paths: Vec<String> = dirs.iter().map(|dir| dir.path().display().to_string()).collect();
    let moves = call.broker.moves();
    let found = (&partitions[..], &moves[..]);
    let results = dirs.iter().zip(&paths).map(|(dir, path)| result(dir, path, found));
    let response = DescribeLogDirsResponse { results: results.collect(), ..Default::default() };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}

/// The requested partitions that have a replica here.
fn wanted<'i>(
    image: &'i ClusterImage,
    request: &DescribeLogDirsRequest<'_>,
) -> Vec<&'i Arc<Partition>> {
    match &request.topics {
        None => {
            let all = image.topics().flat_map(|topic| &topic.partitions);
            all.filter_map(|partition| partition.local.as_ref()).collect()
        }
        Some(topics) => {
            let asked = topics.iter().filter_map(|asked| Some((asked, image.topic(asked.topic)?)));
            let partitions = asked.flat_map(|(asked, topic)| {
                let indexes = asked.partitions.iter();
                indexes.filter_map(|index| topic.partition(*index)?.local.as_ref())
            });
            let mut first = FirstOnly::default();
            partitions.filter(|partition| first.passes(Arc::as_ptr(partition))).collect()
        }
    }
}

fn result<'a>(
    dir: &Arc<LogDir>,
    path: &'a str,
    (partitions, moves): (&[&'a Arc<Partition>], &'a [Arc<FutureReplica>]),
) -> DescribeLogDirsResult<'a> {
    if dir.is_offline() {
        let error_code = ErrorCode::KafkaStorageError.code();
        return DescribeLogDirsResult { error_code, log_dir: path, ..Default::default() };
    }
    let mut topics: BTreeMap<&str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for partition in partitions.iter().filter(|p| Arc::ptr_eq(&p.log.dir(), dir)) {
        topics.entry(&partition.name.topic).or_default().push(DescribeLogDirsPartition {
            partition_index: partition.name.partition,
            partition_size: i64::try_from(partition.log.size()).unwrap_or(i64::MAX),
            offset_lag: 0,
            is_future_key: false,
        });
    }
    for it in moves.iter().filter(|it| Arc::ptr_eq(it.to(), dir)) {
        if partitions.iter().any(|partition| partition.name == *it.name()) {
            topics.entry(&it.name().topic).or_default().push(DescribeLogDirsPartition {
                partition_index: it.name().partition,
                partition_size: i64::try_from(it.size()).unwrap_or(i64::MAX),
                offset_lag: it.lag(),
                is_future_key: true,
            });
        }
    }
    let (usable, total) = dir.disk_space().unwrap_or_default();
    DescribeLogDirsResult {
        log_dir: path,
        topics: topics
            .into_iter()
            .map(|(name, partitions)| DescribeLogDirsTopic { name, partitions })
            .collect(),
        total_bytes: i64::try_from(total).unwrap_or(i64::MAX),
        usable_bytes: i64::try_from(usable).unwrap_or(i64::MAX),
        ..Default::default()
    }
}
