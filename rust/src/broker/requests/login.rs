//! The login of one connection on a listener with SASL (KIP-43, KIP-152, KIP-368).
//!
//! Before it only ApiVersions, SaslHandshake and SaslAuthenticate are served. SaslHandshake chooses
//! a mechanism. After version 0 the tokens come as frames of their own (Kafka 0.9 and 0.10); after
//! version 1 in SaslAuthenticate. A login may end (`connections.max.reauth.ms`): then the client
//! must log in again, as the same user, before it asks for anything else.
//! Threads: owned by the connection's network thread.

use std::sync::Arc;

use crate::broker::requests::apis;
use crate::broker::requests::head::{Head, Request};
use crate::broker::state::logins::{ListenerLogins, OfferedMechanism};
use crate::protocol::{api_versions, sasl_authenticate, sasl_handshake};
use crate::transport::sasl::ServerExchange;

/// How the tokens of a login come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenFrames {
    /// Each is a frame (after SaslHandshake v0).
    Raw,
    /// In SaslAuthenticate requests.
    Requests,
}

/// A login that goes on.
#[derive(Debug)]
pub(crate) struct OngoingLogin {
    pub(crate) offered: OfferedMechanism,
    pub(crate) exchange: ServerExchange,
    pub(crate) frames: TokenFrames,
}

/// The login of a connection.
#[derive(Debug)]
pub(crate) struct Login {
    /// What its listener asks.
    pub(crate) listener: Arc<ListenerLogins>,
    /// Who it is, by which mechanism; `None`: nobody yet.
    pub(crate) user: Option<(Arc<str>, OfferedMechanism)>,
    /// Whether it logged in by a delegation token.
    pub(crate) is_delegated: bool,
    /// When it must log in again, in monotonic milliseconds.
    pub(crate) ends_ms: Option<i64>,
    pub(crate) ongoing: Option<OngoingLogin>,
}

impl Login {
    pub(crate) fn new(listener: Arc<ListenerLogins>) -> Self {
        Self { listener, user: None, is_delegated: false, ends_ms: None, ongoing: None }
    }

    /// The request that a token in a frame of its own stands for; `None`: the frame is a request.
    pub(crate) fn raw_token<'f>(&self, frame: &'f [u8]) -> Option<Request<'f>> {
        self.ongoing.as_ref().filter(|login| login.frames == TokenFrames::Raw)?;
        let api = apis::find(sasl_authenticate::KEY)?;
        let head = Head { api, version: 0, correlation_id: 0, throttle_time_ms: 0 };
        Some(Request { head, client_id: None, size: frame.len(), body: frame })
    }

    /// Whether a request for an API may be answered at `now_ms`.
    pub(crate) fn admits(&self, key: i16, now_ms: impl FnOnce() -> i64) -> bool {
        let is_over = || self.ends_ms.is_some_and(|ends_ms| now_ms() >= ends_ms);
        is_part(key) || (self.user.is_some() && !is_over())
    }
}

/// Whether an API is served before a login.
pub(crate) fn is_part(key: i16) -> bool {
    [api_versions::KEY, sasl_handshake::KEY, sasl_authenticate::KEY].contains(&key)
}
