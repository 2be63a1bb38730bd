//! The APIs whose answer is a decision: the request goes to the policy as it is, and what comes
//! back is encoded with the request's version.
//!
//! ```text
//! CreateTopics (19) v0-7             DeleteTopics (20) v0-6          CreatePartitions (37) v0-3
//! DescribeConfigs (32) v0-4          AlterConfigs (33) v0-2          ElectLeaders (43) v0-2
//! AlterReplicaLogDirs (34) v0-2
//! IncrementalAlterConfigs (44) v0-1  AlterPartitionReassignments (45) v0-1
//! ListPartitionReassignments (46) v0
//! DescribeClientQuotas (48) v0-1     AlterClientQuotas (49) v0-1
//! DescribeUserScramCredentials (50) v0
//! ListConfigResources (74) v0-1
//! JoinGroup (11) v0-9                SyncGroup (14) v0-5             LeaveGroup (13) v0-5
//! DescribeGroups (15) v0-6           ListGroups (16) v0-5            DeleteGroups (42) v0-2
//! ConsumerGroupDescribe (69) v0-1
//! LeaderAndIsr (4) v0-7              StopReplica (5) v0-4            UpdateMetadata (6) v0-8
//! ControlledShutdown (7) v0-3        AlterPartition (56) v0-3        AllocateProducerIds (67) v0
//! ```
//! and what of ConsumerGroupHeartbeat (68) v0-1 is news; v0 of OffsetCommit (8) and OffsetFetch
//! (9), whose offsets lie in the znode tree. The last six are served between brokers alone.
//! Behaviour: the connection is not read from until the answer is there, so a client's decisions
//!     are made in its order. An answer that is no response of the API closes the connection.
//!     What concerns groups passes `group` first.
//! Version notes: the policy sees only the fields of the request's version, and may answer with
//!     fields that the version lacks: they are left out.
//! Not done: deadlines; `timeout_ms` is for the policy to keep.

use super::super::apis::Outcome;
use super::super::call::Call;
use super::super::service::Flow;
use super::group::{self, Admitted};
use crate::protocol::{Direction, decode_any, encode_any};
use crate::wire::Sink;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.request.head;
    let (key, version) = (head.api.key, head.version);
    let request = decode_any(key, version, Direction::Request, call.request.body)?;
    match group::admit(call, request) {
        Admitted::Ask { request, settled } => {
            call.ask_policy(request, settled);
            Ok(Flow::Hold)
        }
        Admitted::Answer(response) => {
            match encode_any(key, version, Direction::Response, &response) {
                Ok(body) => call.reply(|writer, _| writer.raw(&body.buf)),
                Err(error) => {
                    tracing::error!(api = head.api.name, %error, "no answer of ours");
                    return Ok(Flow::Close);
                }
            }
            Ok(Flow::Go)
        }
    }
}
