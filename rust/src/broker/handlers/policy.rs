//! The APIs whose answer is a decision: the request goes to the policy as it is, and what comes
//! back is encoded with the request's version.
//!
//! ```text
//! CreateTopics (19) v0-7             DeleteTopics (20) v0-6          CreatePartitions (37) v0-3
//! DescribeConfigs (32) v0-4          AlterConfigs (33) v0-2          ElectLeaders (43) v0-2
//! IncrementalAlterConfigs (44) v0-1  ListPartitionReassignments (46) v0
//! ListConfigResources (74) v0-1
//! ```
//! Behaviour: the connection is not read from until the answer is there, so a client's decisions
//!     are made in its order. An answer that is no response of the API closes the connection.
//! Version notes: the policy sees only the fields of the request's version, and may answer with
//!     fields that the version lacks: they are left out.
//! Not done: deadlines; `timeout_ms` is for the policy to keep.

use super::super::apis::Outcome;
use super::super::call::Call;
use super::super::service::Flow;
use crate::protocol::{Direction, decode_any};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.request.head;
    let (key, version) = (head.api.key, head.version);
    let request = decode_any(key, version, Direction::Request, call.request.body)?;
    call.ask_policy(request, Vec::new());
    Ok(Flow::Hold)
}
