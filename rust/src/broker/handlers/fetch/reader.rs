//! The reader of a Fetch: a consumer, a follower, or a tool that compares replicas. A follower's
//! Fetch reports its progress to the partitions.

use crate::broker::handlers::fetch::nearest::ReplicaChoice;
use crate::broker::replica::leader::FollowerFetch;
use crate::broker::state::fetch_sessions::CachedPartition;
use crate::broker::state::waking::Wakes;
use crate::ids::Offset;
use crate::protocol::ErrorCode;
use crate::protocol::fetch::{
    FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, PartitionData,
};

/// Kafka's debugging consumer.
const DEBUGGER: i32 = -2;

/// The first version in which consumers may read followers.
pub(super) const FOLLOWERS_FROM: i16 = 11;

/// Who sent a Fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchReader {
    /// It reads committed records.
    Consumer,
    /// It reads any replica to the log end.
    Debugger,
    /// It reads the leader's log to its end. Its fetch offset is its log end offset.
    Follower {
        replica: i32,
        /// -1 before v15.
        broker_epoch: i64,
    },
}

/// What a Fetch does besides reading.
pub(crate) enum ReaderRole<'a, 'w> {
    /// Nothing.
    Reads,
    /// It reports the progress of a follower.
    Reports(FollowerReport<'a, 'w>),
    /// It chooses a nearer replica for a consumer with a rack.
    Chooses(ReplicaChoice<'a>),
}

/// Reports a follower's progress to the partitions that it reads.
pub(crate) struct FollowerReport<'a, 'w> {
    pub(crate) replica: i32,
    pub(crate) broker_epoch: i64,
    pub(crate) wakes: &'a mut Wakes<'w>,
}

impl FetchReader {
    pub(crate) fn of(request: &FetchRequest<'_>) -> Self {
        let state = &request.replica_state;
        let (replica, broker_epoch) = match request.replica_id {
            -1 => (state.replica_id, state.replica_epoch),
            replica => (replica, -1),
        };
        match replica {
            0.. => Self::Follower { replica, broker_epoch },
            DEBUGGER => Self::Debugger,
            _ => Self::Consumer,
        }
    }

    pub(crate) fn is_follower(self) -> bool {
        matches!(self, Self::Follower { .. })
    }

    /// Whether it also reads records above the high watermark.
    pub(crate) fn reads_to_log_end(self) -> bool {
        self != Self::Consumer
    }

    /// Whether it reads followers too. Consumers do since KIP-392.
    pub(crate) fn reads_any_replica(self, version: i16) -> bool {
        match self {
            Self::Consumer => version >= FOLLOWERS_FROM,
            Self::Debugger => true,
            Self::Follower { .. } => false,
        }
    }
}

impl FollowerReport<'_, '_> {
    /// Reports that the follower has all records below its fetch offset. Its log agrees with this
    /// one up to there.
    pub(crate) fn report(&mut self, entry: &CachedPartition) -> Result<(), ErrorCode> {
        let Ok((partition, leader_epoch)) = &entry.local else { return Ok(()) };
        let fetch_offset = Offset(entry.request.fetch_offset);
        let log = &partition.log;
        if fetch_offset < log.log_start_offset() || fetch_offset > log.log_end_offset() {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let fetch = FollowerFetch {
            replica: self.replica,
            broker_epoch: self.broker_epoch,
            fetch_offset,
            log_start: Offset(entry.request.log_start),
        };
        partition.follower_fetched(*leader_epoch, &fetch, self.wakes)
    }
}

/// The reply to a follower on a listener for clients: Kafka's reply to a client without
/// ClusterAction.
pub(crate) fn refusal<'a>(request: &FetchRequest<'a>) -> FetchResponse<'a> {
    let partitions = |topic: &FetchTopic<'_>| {
        let refused = topic.partitions.iter().map(|partition| PartitionData {
            partition_index: partition.partition,
            error_code: ErrorCode::TopicAuthorizationFailed.code(),
            high_watermark: -1,
            ..Default::default()
        });
        refused.collect()
    };
    let topics = request.topics.iter().map(|topic| FetchableTopicResponse {
        topic: topic.topic,
        topic_id: topic.topic_id,
        partitions: partitions(topic),
    });
    FetchResponse { responses: topics.collect(), ..Default::default() }
}
