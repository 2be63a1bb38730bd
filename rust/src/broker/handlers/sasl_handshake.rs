//! SaslHandshake (17), v0-1: refused, because this listener has no authentication.
//! Behaviour: ILLEGAL_SASL_STATE (34) without mechanisms. The connection stays usable.
//! Version notes: v0 and v1 differ in what follows success, which never happens here.
//! Not done: SASL.

use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::service::Flow;
use crate::protocol::ErrorCode;
use crate::protocol::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    SaslHandshakeRequest::decode(&mut call.reader(), call.version())?;
    let response = SaslHandshakeResponse {
        error_code: ErrorCode::IllegalSaslState.code(),
        ..Default::default()
    };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(Flow::Go)
}
