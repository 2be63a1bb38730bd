//! Writes the markers that end transactions into partitions that this broker leads.
//!
//! A marker of `__consumer_offsets` also ends the offsets that its transaction committed: they
//! apply, or are dropped, under the lock of the group's shard.
//! Threads: the transaction thread's, and workers. An append may make a segment.
//! Not promised: that the marker is committed. The caller waits for that; a repeat writes nothing
//!     and waits for the same.

use std::sync::Arc;

use crate::broker::errors;
use crate::broker::requests::broker::Broker;
use crate::broker::state::coordinator::shard::AppendedAt;
use crate::broker::state::groups::shard::TOPIC;
use crate::broker::state::lookup::find_led;
use crate::broker::state::partition::{CommitState, Partition};
use crate::broker::state::txn_marker::TxnMarker;
use crate::broker::state::waking::Wakes;
use crate::ids::{Offset, TopicPartition};
use crate::protocol::ErrorCode;
use crate::storage::AppendError;

impl Broker {
    /// Writes a marker into a partition. Returns what must be committed before it counts.
    ///
    /// Errors: see the handler of WriteTxnMarkers.
    pub fn write_marker(
        &self,
        partition: &TopicPartition,
        marker: &TxnMarker,
    ) -> Result<AppendedAt, ErrorCode> {
        let image = self.image.load();
        let topic = image.topic(&partition.topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let node = self.settings.load().node_id;
        let (_, partition) = find_led(topic, partition.partition, node)?;
        match partition.commit_state() {
            CommitState::Possible => {}
            CommitState::TooFewInSync => return Err(ErrorCode::NotEnoughReplicas),
            CommitState::CutOff => return Err(ErrorCode::NotLeaderOrFollower),
        }
        let at = if *topic.name == *TOPIC {
            self.write_group_marker(partition, marker)?
        } else {
            let at = AppendedAt::now(partition, Offset(0));
            AppendedAt { end: self.append_marker(partition, marker)?, ..at }
        };
        partition.advance(&mut Wakes { here: None, waker: self });
        Ok(at)
    }

    fn write_group_marker(
        &self,
        partition: &Arc<Partition>,
        marker: &TxnMarker,
    ) -> Result<AppendedAt, ErrorCode> {
        let shard = self.groups.shards.at(partition.name.partition);
        let shard = shard.filter(|shard| Arc::ptr_eq(&shard.partition, partition));
        let shard = shard.ok_or(ErrorCode::NotLeaderOrFollower)?;
        let mut memory = shard.lock_ready().map_err(|_| ErrorCode::NotLeaderOrFollower)?;
        let end = self.append_marker(partition, marker)?;
        memory.end = memory.end.max(end);
        memory.kept.end_transaction(marker.ends.producer_id, marker.ends.commit);
        Ok(shard.end(&memory))
    }

    /// Appends a marker. Returns what the high watermark must reach.
    fn append_marker(
        &self,
        partition: &Partition,
        marker: &TxnMarker,
    ) -> Result<Offset, ErrorCode> {
        let now_ms = self.clock.wall_ms();
        let TxnMarker { ends, transaction_version } = marker;
        let staged = partition.log.stage_marker(ends, *transaction_version, now_ms);
        let staged = staged.map_err(|error| of_marker(&error))?;
        partition.log.commit(staged.staged).map_err(|error| errors::of_storage(&error))?;
        Ok(staged.end)
    }
}

/// The code of a refusal, of those that a coordinator knows.
fn of_marker(error: &AppendError) -> ErrorCode {
    match errors::of_append(error) {
        code @ (ErrorCode::NotLeaderOrFollower
        | ErrorCode::InvalidProducerEpoch
        | ErrorCode::TransactionCoordinatorFenced) => code,
        _ => ErrorCode::KafkaStorageError,
    }
}
