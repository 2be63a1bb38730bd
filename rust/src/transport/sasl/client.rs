//! A client's side of one login.

use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::bearer;
use super::plain::PlainMessage;
use super::scram::{self, ClientFinal, ScramHash, ServerFirst};
use super::{Mechanism, Password, SaslError};

/// The header of a client that binds no channel and acts for itself.
const HEADER: &str = "n,,";

/// A token of OAUTHBEARER, and what the client tells the broker beside it.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken {
    /// The token.
    pub text: String,
    /// Names and values (KIP-342).
    pub extensions: Vec<(String, String)>,
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken([hidden])")
    }
}

/// Where a client gets its tokens. Each login asks, on the thread of its connection.
pub trait TokenSource: Send + Sync + fmt::Debug {
    /// A token that is valid now, or why there is none.
    fn token(&self) -> Result<BearerToken, String>;
}

/// How a client logs in (`sasl.mechanism`, and the name and password of `sasl.jaas.config`).
#[derive(Clone, Debug)]
pub struct SaslLogin {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The user's name; OAUTHBEARER has none.
    pub user: String,
    /// The user's password.
    pub password: Password,
    /// The tokens of OAUTHBEARER.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// Whether `user` is the id of a delegation token, and `password` its HMAC in base64.
    pub is_delegated: bool,
}

/// The login of one connection, between its tokens.
#[derive(Debug)]
pub enum ClientExchange {
    /// PLAIN: the token was sent.
    Plain,
    /// SCRAM: the first message was sent.
    ScramFirst(ScramFirst),
    /// SCRAM: the last message was sent. The broker must answer with this signature.
    ScramLast(String),
    /// OAUTHBEARER: the token was sent.
    Bearer,
    /// OAUTHBEARER: the broker has refused the token, and ends the login.
    BearerRefused,
    /// The login is over.
    Done,
}

/// What a client remembers of its first message.
#[derive(Debug)]
pub struct ScramFirst {
    hash: ScramHash,
    password: Password,
    nonce: String,
    bare: String,
}

impl SaslLogin {
    /// A login by a name and a password.
    pub fn by_password(mechanism: Mechanism, user: String, password: String) -> Self {
        Self { mechanism, user, password: password.into(), tokens: None, is_delegated: false }
    }

    /// A login by a delegation token: its id, and its HMAC in base64.
    pub fn by_delegation_token(hash: ScramHash, id: String, hmac: String) -> Self {
        Self { is_delegated: true, ..Self::by_password(Mechanism::Scram(hash), id, hmac) }
    }

    /// A login by tokens.
    pub fn by_tokens(tokens: Arc<dyn TokenSource>) -> Self {
        let (user, password) = (String::new(), String::new().into());
        let (mechanism, tokens) = (Mechanism::OauthBearer, Some(tokens));
        Self { mechanism, user, password, tokens, is_delegated: false }
    }

    /// Begins a login: the first token, and what comes after it.
    pub fn begin(&self) -> Result<(Vec<u8>, ClientExchange), SaslError> {
        match self.mechanism {
            Mechanism::Plain => {
                let (user, password) = (self.user.as_str(), self.password.text());
                let message = PlainMessage { authorization_id: "", user, password };
                Ok((message.write(), ClientExchange::Plain))
            }
            Mechanism::Scram(hash) => {
                let nonce = scram::nonce();
                if nonce.is_empty() {
                    return Err(SaslError::Malformed("the system has no random bytes"));
                }
                let first = ScramFirst::new(self, hash, nonce);
                let token = format!("{HEADER}{}", first.bare).into_bytes();
                Ok((token, ClientExchange::ScramFirst(first)))
            }
            Mechanism::OauthBearer => {
                let nothing = || SaslError::NoToken("nobody gives this client any".to_owned());
                let source = self.tokens.as_ref().ok_or_else(nothing)?;
                let BearerToken { text, extensions } =
                    source.token().map_err(SaslError::NoToken)?;
                Ok((bearer::write(&text, &extensions)?, ClientExchange::Bearer))
            }
        }
    }
}

impl ClientExchange {
    /// Takes the broker's next token. `Some`: the client must send this one.
    pub fn step(self, token: &[u8]) -> Result<(Option<Vec<u8>>, Self), SaslError> {
        match self {
            Self::Plain | Self::Done => Ok((None, Self::Done)),
            Self::ScramFirst(first) => first.answer(token),
            Self::Bearer if token.is_empty() => Ok((None, Self::Done)),
            Self::Bearer => Ok((Some(vec![bearer::END]), Self::BearerRefused)),
            Self::BearerRefused => Err(SaslError::Malformed("the broker refuses the token")),
            Self::ScramLast(signature) => match bool::from(token.ct_eq(signature.as_bytes())) {
                true => Ok((None, Self::Done)),
                false => Err(SaslError::Malformed("the broker does not know the password")),
            },
        }
    }

    #[cfg(test)]
    pub(super) fn with_nonce(login: &SaslLogin, hash: ScramHash, nonce: &str) -> Self {
        Self::ScramFirst(ScramFirst::new(login, hash, nonce.to_owned()))
    }

    /// Whether the login has succeeded.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

impl ScramFirst {
    fn new(login: &SaslLogin, hash: ScramHash, nonce: String) -> Self {
        let extension = if login.is_delegated { ",tokenauth=true" } else { "" };
        let bare = format!("n={},r={nonce}{extension}", scram::quoted(&login.user));
        Self { hash, password: login.password.clone(), nonce, bare }
    }

    fn answer(self, token: &[u8]) -> Result<(Option<Vec<u8>>, ClientExchange), SaslError> {
        let Self { hash, password, nonce, bare } = self;
        let answer = ServerFirst::read(token, &nonce)?;
        let password = password.text().as_bytes();
        let salted = hash.salted_password(password, &answer.salt, answer.iterations);
        let without_proof = ClientFinal::without_proof(HEADER, answer.nonce);
        let text = String::from_utf8_lossy(token);
        let said = format!("{bare},{text},{without_proof}");
        let client_key = hash.client_key(&salted);
        let signature = hash.hmac(&hash.hash(&client_key), said.as_bytes());
        let last = ClientFinal::write(&without_proof, &scram::xor(&client_key, &signature));
        let expected = hash.hmac(&hash.server_key(&salted), said.as_bytes());
        let expected = scram::server_final(&expected);
        Ok((Some(last.into_bytes()), ClientExchange::ScramLast(expected)))
    }
}
