//! Converts what a broker knows of its users from Python's values.
//!
//! Threads: attached.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;

use super::errors::config_error;
use krust::broker::{ListenerLogins, OfferedMechanism};
use krust::client;
use krust::transport::sasl::{
    BearerToken, DelegationToken, Mechanism, ScramCredential, ScramHash, ScramUsers, TokenRules,
    TokenSource,
};

/// The mechanisms of a listener, each with the milliseconds that its logins last; the users of
/// PLAIN with their passwords; which tokens log in.
pub(super) type LoginRows = (Vec<(String, i64)>, HashMap<String, String>, Option<TokenRow>);

/// The issuer, the audiences, the clock skew in milliseconds, and the claim with the user's name.
type TokenRow = (Option<String>, Vec<String>, i64, String);

/// A user, a mechanism, and salt, stored key, server key and iterations.
type ScramRow = (String, String, (Vec<u8>, Vec<u8>, Vec<u8>, u32));

/// The id of a delegation token, and its owner, its HMAC and when it expires; `None`: it is gone.
type DelegationRow = (String, Option<(String, Vec<u8>, i64)>);

/// What a listener asks of its clients.
pub(super) fn listener_logins(
    py: Python<'_>,
    (offered, plain_users, tokens): LoginRows,
) -> PyResult<ListenerLogins> {
    let row = |(name, max_reauth_ms): (String, i64)| {
        Ok(OfferedMechanism { mechanism: mechanism(py, &name)?, max_reauth_ms })
    };
    Ok(ListenerLogins {
        offered: offered.into_iter().map(row).collect::<PyResult<_>>()?,
        plain_users: plain_users.into_iter().collect(),
        tokens: tokens.map(|row| Arc::new(token_rules(row))),
    })
}

fn token_rules((issuer, audiences, skew_ms, user_claim): TokenRow) -> TokenRules {
    TokenRules { issuer, audiences, skew_ms, user_claim, ..Default::default() }
}

/// A Python function that returns a token and its extensions.
#[derive(Debug)]
struct PyTokenSource(Py<PyAny>);

impl TokenSource for PyTokenSource {
    fn token(&self) -> Result<BearerToken, String> {
        let ask = |py: Python<'_>| -> PyResult<BearerToken> {
            let (text, extensions) = self.0.bind(py).call0()?.extract()?;
            Ok(BearerToken { text, extensions })
        };
        Python::try_attach(|py| ask(py).map_err(|error| error.value(py).to_string()))
            .unwrap_or_else(|| Err("the interpreter has ended".to_owned()))
    }
}

/// Where a client gets its tokens from: what Python hands the core.
pub(super) fn token_source(function: Bound<'_, PyAny>) -> client::Result<Arc<dyn TokenSource>> {
    if function.is_callable() {
        return Ok(Arc::new(PyTokenSource(function.unbind())));
    }
    Err(client::Error::Invalid(TOKEN_NEEDED.to_owned()))
}

/// What a client by OAUTHBEARER without tokens is told.
pub(super) const TOKEN_NEEDED: &str = "a login by OAUTHBEARER needs sasl.oauthbearer.token: a \
    function that returns (token, when it expires in seconds since 1970), or a token";

/// The SCRAM users of a delta.
pub(super) fn scram_users(py: Python<'_>, rows: Vec<ScramRow>) -> PyResult<ScramUsers> {
    let row = |(user, name, (salt, stored_key, server_key, iterations)): ScramRow| {
        let credential = ScramCredential { salt, stored_key, server_key, iterations };
        Ok((user, scram_hash(py, &name)?, credential))
    };
    rows.into_iter().map(row).collect()
}

/// The delegation tokens of a delta.
pub(super) fn delegation_tokens(
    rows: Vec<DelegationRow>,
) -> Vec<(String, Option<DelegationToken>)> {
    let token = |(owner, hmac, ends_ms): (String, Vec<u8>, i64)| {
        DelegationToken::new(owner, &hmac, ends_ms)
    };
    rows.into_iter().map(|(id, row)| (id, row.map(token))).collect()
}

fn mechanism(py: Python<'_>, name: &str) -> PyResult<Mechanism> {
    let unknown = || config_error(py, &format!("{name} is no mechanism of SASL that krust has"));
    Mechanism::named(name).ok_or_else(unknown)
}

fn scram_hash(py: Python<'_>, name: &str) -> PyResult<ScramHash> {
    match mechanism(py, name)? {
        Mechanism::Scram(hash) => Ok(hash),
        other => Err(config_error(py, &format!("{} is no mechanism of SCRAM", other.name()))),
    }
}
