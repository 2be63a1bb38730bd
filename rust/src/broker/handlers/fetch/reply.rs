//! Writes the reply to a Fetch after the replies before it. File ranges are inserted at the holes.

use crate::broker::handlers::fetch::{ReadResult, convert};
use crate::broker::requests::head::{FileParts, Head};
use crate::broker::requests::reply::Output;
use crate::broker::state::fetch_sessions::{CachedPartition, FetchContext};
use crate::protocol::fetch::{
    AbortedTransaction, EpochEndOffset, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch,
    PartitionData,
};
use crate::protocol::{ErrorCode, RecordsField};

/// The approximate size of a partition in a reply, without records.
const PARTITION_BYTES: usize = 64;

/// Writes the reply, and stores the marks that it sends.
pub(crate) fn write(
    head: Head,
    output: &mut Output,
    (context, mut found, session_id): (&mut FetchContext, Vec<ReadResult>, i32),
) {
    let mut file_parts = FileParts::default();
    let mut in_memory = found.len() * PARTITION_BYTES;
    for found in &mut found {
        if let Some(held) = &found.slice.held {
            in_memory += held.bytes().len();
        } else if found.converted.is_none() && found.slice.size > 0 {
            file_parts.add(std::mem::take(&mut found.slice.ranges));
        }
        if let Some(entry) = context.entry(found.number) {
            entry.sent_high_watermark = found.high_watermark;
            entry.sent_log_start = found.log_start_offset;
        }
    }
    output.buf.reserve(in_memory);
    let responses = topics(context, &found);
    let response = FetchResponse { session_id, responses, ..Default::default() };
    head.reply_with(output, file_parts, |writer, version| response.encode(writer, version));
    give_back(found);
}

/// The size of a reply in bytes.
pub(crate) fn size(version: i16, context: &FetchContext, found: &[ReadResult]) -> usize {
    FetchResponse { responses: topics(context, found), ..Default::default() }.size(version)
}

/// Returns the buffers of converted records.
pub(crate) fn give_back(found: Vec<ReadResult>) {
    found.into_iter().filter_map(|found| found.converted).for_each(convert::give_back);
}

fn topics<'a>(
    context: &'a FetchContext,
    found: &'a [ReadResult],
) -> Vec<FetchableTopicResponse<'a>> {
    let entry = |found: &ReadResult| context.entries.get(found.number as usize)?.as_ref();
    let topic = |found: &ReadResult| entry(found).map(|entry| (&*entry.topic, entry.id));
    let mut responses = Vec::new();
    for group in found.chunk_by(|one, next| topic(one) == topic(next)) {
        let Some((topic, topic_id)) = group.first().and_then(topic) else { continue };
        let mut partitions = Vec::with_capacity(group.len());
        partitions.extend(group.iter().filter_map(|one| Some(partition(entry(one)?, one))));
        responses.push(FetchableTopicResponse { topic, topic_id, partitions });
    }
    responses
}

fn partition<'a>(entry: &CachedPartition, found: &'a ReadResult) -> PartitionData<'a> {
    let records = match &found.converted {
        Some(bytes) => RecordsField::Bytes(bytes),
        None if found.slice.size == 0 => RecordsField::Bytes(&[]),
        None => match &found.slice.held {
            Some(held) => RecordsField::Bytes(held.bytes()),
            None => RecordsField::Hole(found.slice.size),
        },
    };
    let aborted = found.aborted.as_ref().map(|list| {
        let one = |aborted: &crate::storage::AbortedTxn| AbortedTransaction {
            producer_id: aborted.producer_id,
            first_offset: aborted.first_offset,
        };
        list.iter().map(one).collect()
    });
    let mut data = PartitionData {
        partition_index: entry.partition,
        error_code: found.error.code(),
        high_watermark: found.high_watermark,
        last_stable_offset: found.last_stable_offset,
        log_start_offset: found.log_start_offset,
        aborted_transactions: aborted,
        records,
        ..Default::default()
    };
    if let Some(replica) = found.preferred {
        data.preferred_read_replica = replica;
    }
    if let Some((epoch, end_offset)) = found.diverging {
        data.diverging_epoch = EpochEndOffset { epoch: epoch.0, end_offset: end_offset.0 };
    }
    if matches!(found.error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch) {
        let (leader_id, epoch) = entry.leader;
        data.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch: epoch.0 };
    }
    data
}
