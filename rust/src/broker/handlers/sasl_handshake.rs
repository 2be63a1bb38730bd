//! SaslHandshake (17), v0-1: the client chooses how it will prove who it is.
//! Behaviour: a mechanism that the listener does not offer: UNSUPPORTED_SASL_MECHANISM (33) with
//!     those that it does; then the connection is closed, after the delay of a failed login. On a
//!     listener without SASL, and after a login that needs no other: ILLEGAL_SASL_STATE (34), and
//!     the connection stays usable. In the middle of a login: the connection is closed.
//! Version notes: after v0 the tokens come as frames of their own, after v1 in SaslAuthenticate.

use crate::broker::handlers::sasl_authenticate;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::login::{OngoingLogin, TokenFrames};
use crate::broker::requests::service::Flow;
use crate::protocol::ErrorCode;
use crate::protocol::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use crate::transport::sasl::ServerExchange;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let request = SaslHandshakeRequest::decode(&mut call.reader(), call.version())?;
    let frames = if call.version() == 0 { TokenFrames::Raw } else { TokenFrames::Requests };
    let Some(login) = call.connection.login.as_deref_mut() else {
        return Ok(answer(call, ErrorCode::IllegalSaslState, &[]));
    };
    if login.ongoing.is_some() {
        return Ok(Flow::Close);
    }
    if login.user.is_some() && login.ends_ms.is_none() {
        return Ok(answer(call, ErrorCode::IllegalSaslState, &[]));
    }
    let names: Vec<_> = login.listener.offered.iter().map(|it| it.mechanism.name()).collect();
    let mut offered = login.listener.offered.iter();
    // Whoever logs in again does so as before (KIP-368).
    let known = login.user.as_ref().map(|(_, offered)| offered.mechanism);
    let wanted = offered.find(|it| it.mechanism.name() == request.mechanism).copied();
    match wanted.filter(|it| known.is_none_or(|known| known == it.mechanism)) {
        Some(offered) => {
            let exchange = ServerExchange::begin(offered.mechanism);
            login.ongoing = Some(OngoingLogin { offered, exchange, frames });
            Ok(answer(call, ErrorCode::None, &names))
        }
        None => {
            let response = response(ErrorCode::UnsupportedSaslMechanism, &names);
            let output = call.request.head.output(|writer, version| {
                response.encode(writer, version);
            });
            let reason = format!("it asked for {:?}", shown(request.mechanism));
            Ok(sasl_authenticate::fail(call, output, &reason))
        }
    }
}

fn answer(call: &mut Call<'_, '_>, code: ErrorCode, names: &[&'static str]) -> Flow {
    let response = response(code, names);
    call.reply(|writer, version| response.encode(writer, version));
    Flow::Go
}

fn response<'a>(code: ErrorCode, names: &[&'a str]) -> SaslHandshakeResponse<'a> {
    SaslHandshakeResponse { error_code: code.code(), mechanisms: names.to_vec() }
}

/// The beginning of a mechanism's name.
fn shown(name: &str) -> String {
    name.chars().take(40).collect()
}
