//! FindCoordinator (10), v0-6: which broker coordinates a group or a transactional id.
//! Behaviour: this node, for groups (key type 0) and transactional ids (1); any other key type is
//!     INVALID_REQUEST (42).
//! Version notes: v0 knows groups only; v1 adds the key type and an error message; v4 asks for many
//!     keys at once and answers each; v6 adds share groups (key type 2), refused here.
//! Not done: more than one broker; share groups.

use super::super::apis::Outcome;
use super::super::call::Call;
use super::super::service::Flow;
use super::metadata::advertised;
use crate::protocol::ErrorCode;
use crate::protocol::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> Outcome {
    let request = FindCoordinatorRequest::decode(&mut call.reader(), call.version())?;
    let node = call.broker.settings.load().node_id;
    let refused = !matches!(request.key_type, 0 | 1);
    let (node_id, (host, port)) = if refused {
        (-1, (String::new(), -1))
    } else {
        (node, advertised(&call.thread.image, node, &call.session.peer).unwrap_or_default())
    };
    let error = if refused { ErrorCode::InvalidRequest } else { ErrorCode::None };
    let error_code = error.code();
    let error_message = refused.then_some("only groups and transactional ids have coordinators");
    let host = host.as_str();
    let response = if call.version() < 4 {
        let coordinators = Vec::new();
        FindCoordinatorResponse {
            error_code,
            error_message,
            node_id,
            host,
            port,
            coordinators,
            ..Default::default()
        }
    } else {
        let keys = request.coordinator_keys.into_iter();
        let coordinators =
            keys.map(|key| Coordinator { key, node_id, host, port, error_code, error_message });
        FindCoordinatorResponse { coordinators: coordinators.collect(), ..Default::default() }
    };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}
