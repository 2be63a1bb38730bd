//! Gives a batch behind a refused one the error of that one (see `state::refused_batches`).
//!
//! Threads: the one that commits the request: the connection's network thread, or a worker.

use crate::broker::handlers::produce::partition_result::{PartitionResult, named};
use crate::broker::state::image::ClusterImage;
use crate::broker::state::refused_batches::{SentBatch, SharedRefusedBatches};
use crate::protocol::ErrorCode;
use crate::protocol::produce::ProduceRequest;
use crate::record::batch::Batch;

/// Notes the refused batches of a request, and changes the results of those behind one.
pub(crate) fn settle(
    refused: &SharedRefusedBatches,
    (image, version): (&ClusterImage, i16),
    (message, results): (&ProduceRequest<'_>, &mut [PartitionResult]),
) {
    let mut refused = refused.lock();
    if refused.is_empty() && results.iter().all(|result| result.error == ErrorCode::None) {
        return;
    }
    let mut results = results.iter_mut();
    for topic in &message.topic_data {
        let found = named(topic, version).find(image);
        for (data, result) in topic.partition_data.iter().zip(results.by_ref()) {
            let Ok(found) = found else { continue };
            let Ok(batch) = Batch::parse(data.records.bytes().unwrap_or_default()) else {
                continue;
            };
            let header = batch.header();
            if header.producer_id < 0 || header.base_sequence < 0 {
                continue;
            }
            let batch = SentBatch {
                topic: &found.name,
                partition: data.index,
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                base_sequence: header.base_sequence,
            };
            result.error = refused.answer(batch, result.error);
        }
    }
}
