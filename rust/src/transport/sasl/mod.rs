//! SASL: the mechanisms by which a client proves to a broker who it is. Tokens in, tokens out.
//!
//! `server` is a broker's side of one login, `client` the other; `plain`, `scram` and `bearer` hold
//! the messages of the mechanisms, `users` and `delegation` what a broker knows of its users and of
//! its delegation tokens, `tokens` and `signatures` which tokens of OAuth it accepts.
//! Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER), KIP-12, KIP-43,
//!     KIP-48, KIP-84, KIP-255, KIP-768.
//! Not done: GSSAPI (Kerberos).

mod bearer;
mod client;
mod delegation;
mod plain;
mod scram;
mod server;
mod signatures;
mod tokens;
mod users;

use std::fmt;

use subtle::ConstantTimeEq;
use thiserror::Error;

pub use self::bearer::TOKEN_REFUSED;
pub use self::client::{BearerToken, ClientExchange, SaslLogin, TokenSource};
pub use self::delegation::{DelegationToken, DelegationTokens};
pub use self::scram::{MAX_ITERATIONS, MIN_ITERATIONS, ScramHash};
pub use self::server::{KnownUsers, ServerExchange, ServerStep};
pub use self::tokens::{KeySet, KeySetError, TokenError, TokenRules};
pub use self::users::{PlainUsers, ScramCredential, ScramUsers};

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// It sends its name and password as they are.
    Plain,
    /// It proves that it knows the password and does not send it.
    Scram(ScramHash),
    /// It shows a token that somebody else has signed for it.
    OauthBearer,
}

impl Mechanism {
    /// Every mechanism, in the order in which brokers list them.
    pub const ALL: [Self; 4] = [
        Self::Plain,
        Self::Scram(ScramHash::Sha256),
        Self::Scram(ScramHash::Sha512),
        Self::OauthBearer,
    ];

    /// The mechanism of a registered name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name() == name)
    }

    /// Its registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(ScramHash::Sha256) => "SCRAM-SHA-256",
            Self::Scram(ScramHash::Sha512) => "SCRAM-SHA-512",
            Self::OauthBearer => "OAUTHBEARER",
        }
    }
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SaslError {
    /// The user is unknown, or the password is wrong. Both look alike.
    #[error("invalid credentials")]
    Credentials,
    /// The client asked to act for another user than the one that logged in.
    #[error("the authorization id is not the user's name")]
    AuthorizationId,
    /// The token is no message of the mechanism.
    #[error("{0}")]
    Malformed(&'static str),
    /// The broker does not accept the client's OAuth token.
    #[error("{0}")]
    Token(TokenError),
    /// The client has no OAuth token to show.
    #[error("no token: {0}")]
    NoToken(String),
}

/// A password. It is not shown, and how long a comparison takes depends on the lengths alone.
#[derive(Clone)]
pub struct Password(String);

impl PartialEq for Password {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Password {}

impl Password {
    /// The password.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}
