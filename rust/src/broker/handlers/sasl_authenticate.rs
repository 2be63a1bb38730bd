//! SaslAuthenticate (36), v0-2: one token of a login.
//! Behaviour: the broker answers with its own token until the client is known. A login that fails
//!     is answered after `connection.failed.authentication.delay.ms` with
//!     SASL_AUTHENTICATION_FAILED (58), then the connection is closed; after SaslHandshake v0 it is
//!     closed without an answer. The text is the same whether the user or the password is wrong,
//!     and for every token that is refused.
//!     Without a login that goes on: ILLEGAL_SASL_STATE (34).
//! Version notes: v1 says for how long the login lasts (KIP-368). A client of v0 is disconnected
//!     when that time is over, as by Kafka. v2 is flexible.

use std::sync::Arc;

use crate::broker::requests::broker::Broker;
use crate::broker::requests::call::{Call, HandlerResult};
use crate::broker::requests::delayed::{DelayedContext, DelayedOperation, OperationProgress};
use crate::broker::requests::login::{OngoingLogin, TokenFrames};
use crate::broker::requests::reply::Output;
use crate::broker::requests::service::Flow;
use crate::broker::state::logins::OfferedMechanism;
use crate::broker::state::waking::DelayedId;
use crate::protocol::ErrorCode;
use crate::protocol::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use crate::transport::sasl::{KnownUsers, Mechanism, SaslError, ServerStep, TOKEN_REFUSED};
use crate::wire::Reader;

pub(crate) fn handle(call: &mut Call<'_, '_>) -> HandlerResult {
    let login = call.connection.login.as_deref_mut();
    let Some((login, ongoing)) = login.and_then(|login| {
        let ongoing = login.ongoing.take()?;
        Some((login, ongoing))
    }) else {
        return refuse(call);
    };
    let OngoingLogin { offered, exchange, frames } = ongoing;
    let token = match frames {
        TokenFrames::Raw => call.request.body,
        TokenFrames::Requests => {
            let mut reader = Reader::new(call.request.body);
            SaslAuthenticateRequest::decode(&mut reader, call.request.head.version)?.auth_bytes
        }
    };
    let users = KnownUsers {
        plain: &login.listener.plain_users,
        scram: &call.thread.image.scram,
        delegation: Some(&call.thread.image.tokens),
        secret: &call.broker.logins.secret,
        tokens: login.listener.tokens.as_deref(),
        now_ms: call.broker.clock.wall_ms(),
    };
    match exchange.step(token, users) {
        Ok(ServerStep::Challenge(token, exchange)) => {
            login.ongoing = Some(OngoingLogin { offered, exchange, frames });
            answer(call, frames, &token, 0);
            Ok(Flow::Go)
        }
        Ok(ServerStep::Authenticated { user, token, ends_ms, is_delegated }) => {
            let lasts_ms = lasts_ms(offered, ends_ms, users.now_ms);
            let who = Authenticated { user, lasts_ms, is_delegated };
            Ok(authenticated(call, (offered, frames), &who, &token))
        }
        Err(error) => Ok(refuse_login(call, (offered, frames), &error)),
    }
}

/// For how long a login lasts: as long as its token, at most `connections.max.reauth.ms`; 0:
/// without end.
fn lasts_ms(offered: OfferedMechanism, ends_ms: Option<i64>, now_ms: i64) -> i64 {
    let most_ms = offered.max_reauth_ms.max(0);
    // A token in the time of `clock.skew.seconds` after its end is still accepted.
    match ends_ms.map(|ends_ms| ends_ms.saturating_sub(now_ms).max(1)) {
        None => most_ms,
        Some(left_ms) if most_ms > 0 => left_ms.min(most_ms),
        Some(left_ms) => left_ms,
    }
}

/// A client that has proved who it is.
struct Authenticated {
    user: String,
    lasts_ms: i64,
    is_delegated: bool,
}

/// The client is known.
fn authenticated(
    call: &mut Call<'_, '_>,
    (offered, frames): (OfferedMechanism, TokenFrames),
    Authenticated { user, lasts_ms, is_delegated }: &Authenticated,
    token: &[u8],
) -> Flow {
    let lasts_ms = *lasts_ms;
    let now_ms = call.broker.clock.monotonic_ms();
    let Some(login) = call.connection.login.as_deref_mut() else { return Flow::Close };
    match &login.user {
        Some((known, _)) if **known != *user => {
            let error = SaslError::Malformed("another user cannot take over the connection");
            return refuse_login(call, (offered, frames), &error);
        }
        Some(_) => {}
        None => {
            let user: Arc<str> = user.as_str().into();
            call.connection.user = Arc::clone(&user);
            login.user = Some((user, offered));
        }
    }
    login.is_delegated = *is_delegated;
    login.ends_ms = (lasts_ms > 0).then(|| now_ms.saturating_add(lasts_ms));
    // The requests before the login were not this user's.
    call.connection.account = None;
    answer(call, frames, token, lasts_ms);
    Flow::Go
}

/// Sends the client a token.
fn answer(call: &mut Call<'_, '_>, frames: TokenFrames, token: &[u8], lasts_ms: i64) {
    match frames {
        TokenFrames::Raw => put_raw(call.replies.ready(), token),
        TokenFrames::Requests => {
            let response = SaslAuthenticateResponse {
                auth_bytes: token,
                session_lifetime_ms: lasts_ms,
                ..Default::default()
            };
            call.reply(|writer, version| response.encode(writer, version));
        }
    }
}

/// Appends a frame that is a token.
fn put_raw(output: &mut Output, token: &[u8]) {
    let length = u32::try_from(token.len()).unwrap_or(u32::MAX);
    output.buf.extend_from_slice(&length.to_be_bytes());
    output.buf.extend_from_slice(token);
}

/// The request belongs to no login.
fn refuse(call: &mut Call<'_, '_>) -> HandlerResult {
    SaslAuthenticateRequest::decode(&mut call.reader(), call.version())?;
    let is_known = call.connection.login.as_ref().is_none_or(|login| login.user.is_some());
    let response = SaslAuthenticateResponse {
        error_code: ErrorCode::IllegalSaslState.code(),
        error_message: Some("SaslHandshake has to come before SaslAuthenticate"),
        ..Default::default()
    };
    call.reply(|writer, version| response.encode(writer, version));
    Ok(if is_known { Flow::Go } else { Flow::Close })
}

/// The login has failed.
fn refuse_login(
    call: &mut Call<'_, '_>,
    (offered, frames): (OfferedMechanism, TokenFrames),
    error: &SaslError,
) -> Flow {
    let output = match frames {
        TokenFrames::Raw => Output::default(),
        TokenFrames::Requests => {
            let message = message(offered.mechanism, error);
            let response = SaslAuthenticateResponse {
                error_code: ErrorCode::SaslAuthenticationFailed.code(),
                error_message: Some(&message),
                ..Default::default()
            };
            call.request.head.output(|writer, version| response.encode(writer, version))
        }
    };
    let reason = format!("{}: {error}", offered.mechanism.name());
    fail(call, output, &reason)
}

/// What the client is told, in Kafka's words.
fn message(mechanism: Mechanism, error: &SaslError) -> String {
    match (mechanism, error) {
        (Mechanism::Plain, SaslError::Credentials) => {
            "Authentication failed: Invalid username or password".to_owned()
        }
        (_, SaslError::Token(_)) => TOKEN_REFUSED.to_owned(),
        (_, SaslError::AuthorizationId) => "Authentication failed: Client requested an \
             authorization id that is different from username"
            .to_owned(),
        (mechanism, _) => format!(
            "Authentication failed during authentication due to invalid credentials with SASL \
             mechanism {}",
            mechanism.name()
        ),
    }
}

/// Ends a login that has failed: `output` is sent after the delay, then the connection is closed.
pub(crate) fn fail(call: &mut Call<'_, '_>, output: Output, reason: &str) -> Flow {
    call.broker.login_failed(&call.connection.peer, reason);
    let delay_ms = call.broker.settings.load().failed_authentication_delay_ms;
    call.wait(Box::new(FailedLogin(output)), (delay_ms, None));
    Flow::Go
}

/// A login that has failed and waits to be answered.
#[derive(Debug)]
struct FailedLogin(Output);

impl DelayedOperation for FailedLogin {
    fn try_complete(
        self: Box<Self>,
        _: &mut DelayedContext<'_>,
        is_late: bool,
    ) -> OperationProgress {
        match is_late {
            true => OperationProgress::Ends(self.0),
            false => OperationProgress::Waits(self),
        }
    }

    fn cancel(&self, _: &Broker, _: usize, _: DelayedId) {}
}
