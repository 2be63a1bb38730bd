//! Markers for partitions that a peer leads, as WriteTxnMarkers (27).
//!
//! A message names a marker once, with all its partitions. It names a producer id once, because the
//! answer names only the producer id.
//! Version notes: v2 carries the `transaction.version`; v0 and v1 do not.

use std::collections::{HashMap, VecDeque};

use super::PeerApi;
use super::thread::OpenPeer;
use crate::broker::TxnMarker;
use crate::broker::inter_broker::PeerMarker;
use crate::client::connection::ApiRequest;
use crate::client::error::Result;
use crate::protocol::ErrorCode;
use crate::protocol::write_txn_markers::{
    KEY, WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use crate::wire::Writer;

/// The most partitions in a message.
const BATCH_MAX: usize = 5000;

impl PeerApi for PeerMarker {
    const NAME: &'static str = "txn-markers";

    fn take_batch(queue: &mut VecDeque<Self>) -> Vec<Self> {
        let mut markers: HashMap<i64, TxnMarker> = HashMap::new();
        let mut batch = Vec::new();
        let mut left = VecDeque::new();
        while let Some(request) = queue.pop_front() {
            let marker = request.marker;
            let fits = batch.len() < BATCH_MAX
                && *markers.entry(marker.ends.producer_id).or_insert(marker) == marker;
            if fits { batch.push(request) } else { left.push_back(request) }
        }
        *queue = left;
        batch
    }

    fn ask(batch: &mut Vec<Self>, peer: &mut OpenPeer<'_>) -> Result<()> {
        let version = peer.connection.version(KEY, i16::MAX)?;
        let request = request(batch);
        let encode = |writer: &mut Writer| request.encode(writer, version);
        let reply = peer.call(&ApiRequest { key: KEY, version, encode: &encode })?;
        drop(request);
        let response = WriteTxnMarkersResponse::decode(&mut reply.body(), version)
            .map_err(|error| peer.connection.bad(error))?;
        let mut codes = HashMap::new();
        for marker in &response.markers {
            for topic in &marker.topics {
                for partition in &topic.partitions {
                    let key = (marker.producer_id, topic.name, partition.partition_index);
                    codes.insert(key, ErrorCode::from(partition.error_code));
                }
            }
        }
        for request in batch.drain(..) {
            let partition = &request.partition;
            let key = (request.marker.ends.producer_id, &*partition.topic, partition.partition);
            let code = codes.get(&key).copied().unwrap_or(ErrorCode::NetworkException);
            (request.then)(vec![code]);
        }
        Ok(())
    }

    fn fail(self, error: ErrorCode) {
        (self.then)(vec![error]);
    }
}

/// The message: one entry for each producer id, which has one marker in a batch.
fn request(batch: &[PeerMarker]) -> WriteTxnMarkersRequest<'_> {
    let mut places: HashMap<i64, usize> = HashMap::new();
    let mut topics: HashMap<(i64, &str), usize> = HashMap::new();
    let mut markers: Vec<WritableTxnMarker<'_>> = Vec::new();
    for PeerMarker { marker: TxnMarker { ends, transaction_version }, partition, .. } in batch {
        let place = *places.entry(ends.producer_id).or_insert(markers.len());
        if place == markers.len() {
            markers.push(WritableTxnMarker {
                producer_id: ends.producer_id,
                producer_epoch: ends.producer_epoch,
                transaction_result: ends.commit,
                topics: Vec::new(),
                coordinator_epoch: ends.coordinator_epoch,
                transaction_version: *transaction_version,
            });
        }
        let Some(marker) = markers.get_mut(place) else { continue };
        let count = marker.topics.len();
        let topic = *topics.entry((ends.producer_id, &*partition.topic)).or_insert(count);
        if topic == count {
            let name = &*partition.topic;
            marker.topics.push(WritableTxnMarkerTopic { name, partition_indexes: Vec::new() });
        }
        if let Some(topic) = marker.topics.get_mut(topic) {
            topic.partition_indexes.push(partition.partition);
        }
    }
    WriteTxnMarkersRequest { markers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TopicPartition;
    use crate::record::control::EndTransactionMarker;

    fn marker(producer_id: i64, epoch: i16, partition: i32) -> PeerMarker {
        PeerMarker {
            marker: TxnMarker {
                ends: EndTransactionMarker {
                    producer_id,
                    producer_epoch: epoch,
                    coordinator_epoch: 3,
                    commit: true,
                },
                transaction_version: 2,
            },
            partition: TopicPartition::new("orders", partition),
            then: Box::new(|_| {}),
        }
    }

    #[test]
    fn a_message_names_each_producer_once() {
        let mut queue =
            VecDeque::from([marker(1, 0, 0), marker(2, 5, 0), marker(1, 1, 0), marker(1, 0, 4)]);
        let batch = PeerMarker::take_batch(&mut queue);
        let request = request(&batch);
        let named = request.markers.iter().map(|it| (it.producer_id, it.producer_epoch));
        assert_eq!(named.collect::<Vec<_>>(), [(1, 0), (2, 5)]);
        let first = &request.markers[0].topics;
        assert_eq!((first.len(), &first[0].partition_indexes), (1, &vec![0, 4]));
        assert_eq!(queue.len(), 1, "another transaction of the same producer waits");
        assert_eq!(queue[0].marker.ends.producer_epoch, 1);
    }
}
