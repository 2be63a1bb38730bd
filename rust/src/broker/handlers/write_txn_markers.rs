//! WriteTxnMarkers (27), v0-2: writes the markers that end transactions into partitions that this
//! broker leads. Transaction coordinators send it, and administrators who end a transaction that no
//! coordinator ends (KIP-664), on the brokers' own listener.
//! Behaviour: a worker writes the markers, and the reply leaves when all of them are committed. A
//!     repeated marker writes nothing and succeeds.
//! Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION (3). NOT_LEADER_OR_FOLLOWER (6): another
//!     broker leads it, or its groups are still being loaded. REQUEST_TIMED_OUT (7): after
//!     [`WAIT_MS`]. NOT_ENOUGH_REPLICAS (19) and NOT_ENOUGH_REPLICAS_AFTER_APPEND (20).
//!     INVALID_PRODUCER_EPOCH (47): a newer producer has written there.
//!     TRANSACTION_COORDINATOR_FENCED (52): a newer coordinator has. KAFKA_STORAGE_ERROR (56).
//! Authorization: Alter or ClusterAction on the cluster, else each partition is
//!     CLUSTER_AUTHORIZATION_FAILED (31).
//! Version notes: v1 is flexible. v2 has the `transaction.version`: from 2 on a marker has an epoch
//!     above that of its transaction, so that a late one does not end the next transaction.

use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::delayed::{
    DelayedContext, DelayedOperation, OperationProgress, WorkResult,
};
use crate::broker::requests::head::Head;
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::acls::Operation::{Alter, ClusterAction};
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::partition::{Acks, Waiter};
use crate::broker::state::txn_marker::TxnMarker;
use crate::broker::state::waking::DelayedId;
use crate::ids::TopicPartition;
use crate::protocol::ErrorCode;
use crate::protocol::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerPartitionResult, WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use crate::record::control::EndTransactionMarker;
use crate::wire::Reader;

/// How long a request waits for the in-sync replicas, as Kafka's `request.timeout.ms`.
const WAIT_MS: i64 = 30_000;

/// A request whose markers are written.
#[derive(Debug)]
struct DelayedMarkers {
    /// The request, which names the partitions.
    body: Vec<u8>,
    /// For each partition in order what must be committed, or the error.
    written: Vec<Result<AppendedAt, ErrorCode>>,
}

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let version = call.version();
    let request = WriteTxnMarkersRequest::decode(&mut call.reader(), version)?;
    let head = call.request.head;
    let access = call.access();
    if !access.sees_cluster(Alter) && !access.check_cluster(ClusterAction) {
        let response = respond(&request, std::iter::repeat(ErrorCode::ClusterAuthorizationFailed));
        call.reply(|writer, version| response.encode(writer, version));
        return Ok(Flow::Go);
    }
    let lease = call.lease.take().or_else(|| call.broker.memory().lease(call.request.size));
    let body = call.request.body.to_vec();
    call.hand_over(lease, move |broker| write(broker, head, body));
    Ok(Flow::Hold)
}

fn write(broker: &Broker, head: Head, body: Vec<u8>) -> WorkResult {
    let Ok(request) = WriteTxnMarkersRequest::decode(&mut Reader::new(&body), head.version) else {
        return WorkResult::Fails;
    };
    let mut written = Vec::new();
    for marker in &request.markers {
        let txn_marker = of_request(marker);
        for topic in &marker.topics {
            for partition in &topic.partition_indexes {
                let name = TopicPartition::new(topic.name, *partition);
                written.push(broker.write_marker(&name, &txn_marker));
            }
        }
    }
    drop(request);
    let delayed = DelayedMarkers { body, written };
    if delayed.is_over() {
        return WorkResult::Answer(delayed.reply(head));
    }
    let deadline_ms = broker.clock.monotonic_ms().saturating_add(WAIT_MS);
    WorkResult::wait(Box::new(delayed), deadline_ms)
}

fn of_request(marker: &WritableTxnMarker<'_>) -> TxnMarker {
    TxnMarker {
        ends: EndTransactionMarker {
            producer_id: marker.producer_id,
            producer_epoch: marker.producer_epoch,
            coordinator_epoch: marker.coordinator_epoch,
            commit: marker.transaction_result,
        },
        transaction_version: marker.transaction_version,
    }
}

impl DelayedMarkers {
    fn appended(&self) -> impl Iterator<Item = &AppendedAt> {
        self.written.iter().filter_map(|written| written.as_ref().ok())
    }

    /// Whether each marker is committed or will not be committed now.
    fn is_over(&self) -> bool {
        self.appended().all(|at| at.is_committed() || at.is_lost() || at.is_held_up())
    }

    fn reply(&self, head: Head) -> Output {
        let request = WriteTxnMarkersRequest::decode(&mut Reader::new(&self.body), head.version);
        let request = request.unwrap_or_default();
        let response = respond(&request, self.written.iter().map(code_of));
        head.output(|writer, version| response.encode(writer, version))
    }
}

/// A code for each partition, in the request's order.
fn respond<'f>(
    request: &WriteTxnMarkersRequest<'f>,
    mut codes: impl Iterator<Item = ErrorCode>,
) -> WriteTxnMarkersResponse<'f> {
    let markers = request.markers.iter().map(|marker| {
        let topics = marker.topics.iter().map(|topic| {
            let partitions = topic.partition_indexes.iter().zip(codes.by_ref());
            let partition = |(index, code): (&i32, ErrorCode)| {
                let error_code = code.code();
                WritableTxnMarkerPartitionResult { partition_index: *index, error_code }
            };
            let partitions = partitions.map(partition).collect();
            WritableTxnMarkerTopicResult { name: topic.name, partitions }
        });
        let topics = topics.collect();
        WritableTxnMarkerResult { producer_id: marker.producer_id, topics }
    });
    WriteTxnMarkersResponse { markers: markers.collect() }
}

/// The code of a marker. One that is not committed has failed or timed out.
fn code_of(written: &Result<AppendedAt, ErrorCode>) -> ErrorCode {
    match written {
        Err(error) => *error,
        Ok(at) if at.is_committed() => ErrorCode::None,
        Ok(at) if at.partition.log.is_offline() => ErrorCode::KafkaStorageError,
        Ok(at) if at.is_lost() => ErrorCode::NotLeaderOrFollower,
        Ok(at) if at.is_held_up() => ErrorCode::NotEnoughReplicasAfterAppend,
        Ok(_) => ErrorCode::RequestTimedOut,
    }
}

impl DelayedOperation for DelayedMarkers {
    fn try_complete(
        self: Box<Self>,
        at: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        if !self.is_over() && !is_late {
            return OperationProgress::Waits(self);
        }
        self.cancel(at.broker, at.thread.index, at.id);
        OperationProgress::Answered(self.reply(at.head))
    }

    fn begin(&mut self, thread: usize, delayed: DelayedId) -> bool {
        for at in self.appended().filter(|at| !at.is_committed()) {
            at.partition.wait(Waiter { acks: Acks::All, wanted: at.end, thread, delayed });
        }
        self.is_over()
    }

    fn cancel(&self, _: &Broker, thread: usize, id: DelayedId) {
        for at in self.appended() {
            at.partition.forget(thread, id);
        }
    }
}
