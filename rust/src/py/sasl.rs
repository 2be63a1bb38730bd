//! Converts what a broker knows of its users from Python's values.
//!
//! Threads: attached.

use std::collections::HashMap;

use pyo3::prelude::*;

use super::errors::config_error;
use crate::broker::{ListenerLogins, OfferedMechanism};
use crate::transport::sasl::{Mechanism, ScramCredential, ScramHash, ScramUsers};

/// The mechanisms of a listener, each with the milliseconds that its logins last, and the users of
/// PLAIN with their passwords.
pub(super) type LoginRows = (Vec<(String, i64)>, HashMap<String, String>);

/// A user, a mechanism, and salt, stored key, server key and iterations.
type ScramRow = (String, String, (Vec<u8>, Vec<u8>, Vec<u8>, u32));

/// What a listener asks of its clients.
pub(super) fn listener_logins(
    py: Python<'_>,
    offered: Vec<(String, i64)>,
    plain_users: HashMap<String, String>,
) -> PyResult<ListenerLogins> {
    let row = |(name, max_reauth_ms): (String, i64)| {
        Ok(OfferedMechanism { mechanism: mechanism(py, &name)?, max_reauth_ms })
    };
    Ok(ListenerLogins {
        offered: offered.into_iter().map(row).collect::<PyResult<_>>()?,
        plain_users: plain_users.into_iter().collect(),
    })
}

/// The SCRAM users of a delta.
pub(super) fn scram_users(py: Python<'_>, rows: Vec<ScramRow>) -> PyResult<ScramUsers> {
    let row = |(user, name, (salt, stored_key, server_key, iterations)): ScramRow| {
        let credential = ScramCredential { salt, stored_key, server_key, iterations };
        Ok((user, scram_hash(py, &name)?, credential))
    };
    rows.into_iter().map(row).collect()
}

fn mechanism(py: Python<'_>, name: &str) -> PyResult<Mechanism> {
    let unknown = || config_error(py, &format!("{name} is no mechanism of SASL that krust has"));
    Mechanism::named(name).ok_or_else(unknown)
}

fn scram_hash(py: Python<'_>, name: &str) -> PyResult<ScramHash> {
    match mechanism(py, name)? {
        Mechanism::Scram(hash) => Ok(hash),
        Mechanism::Plain => Err(config_error(py, &"PLAIN is no mechanism of SCRAM")),
    }
}
