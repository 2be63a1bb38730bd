//! Reads keys and certificates from Kafka's settings (KIP-651); `ssl.key.location` and
//! `ssl.certificate.location` are librdkafka's.
//!
//! A store is a file or a text. Files are recognised by their content: PEM, or the binary formats
//! of Java's keystores.
//! Threads: any. Files are read once, when the settings are.

use std::collections::HashMap;

use super::settings::{Identity, TlsError};

/// Settings of TLS by their names, without a listener's prefix. Unset ones are absent.
pub type TlsSettings = HashMap<String, String>;

/// The names that [`TlsSettings`] may have on both sides.
pub const KEYS: [&str; 16] = [
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.certificate.location",
    "enable.ssl.certificate.verification",
];

/// The own key and certificates; `None`: no setting names them.
pub(super) fn identity(settings: &TlsSettings) -> Result<Option<Identity>, TlsError> {
    if let Some(location) = given(settings, "ssl.keystore.location") {
        let pem = read(settings, "ssl.keystore.location", location, "ssl.keystore.type")?;
        return Ok(Some(Identity { chain_pem: pem.clone(), key_pem: pem }));
    }
    let part = |text: &str, file: &str| match (given(settings, text), given(settings, file)) {
        (Some(text), _) => Ok(Some(text.replace("\\n", "\n").into_bytes())),
        (None, Some(path)) => read(settings, file, path, "").map(Some),
        (None, None) => Ok(None),
    };
    let pairs = [
        (
            ("ssl.keystore.key", part("ssl.keystore.key", "")?),
            ("ssl.keystore.certificate.chain", part("ssl.keystore.certificate.chain", "")?),
        ),
        (
            ("ssl.key.location", part("", "ssl.key.location")?),
            ("ssl.certificate.location", part("", "ssl.certificate.location")?),
        ),
    ];
    for ((key_name, key), (chain_name, chain)) in pairs {
        match (key, chain) {
            (Some(key_pem), Some(chain_pem)) => return Ok(Some(Identity { chain_pem, key_pem })),
            (Some(_), None) => return Err(missing(key_name, chain_name)),
            (None, Some(_)) => return Err(missing(chain_name, key_name)),
            (None, None) => {}
        }
    }
    Ok(None)
}

/// The trusted certificates; `None`: no setting names them.
pub(super) fn trusted(settings: &TlsSettings) -> Result<Option<Vec<u8>>, TlsError> {
    if let Some(text) = given(settings, "ssl.truststore.certificates") {
        return Ok(Some(text.replace("\\n", "\n").into_bytes()));
    }
    let name = "ssl.truststore.location";
    let location = given(settings, name);
    location.map(|path| read(settings, name, path, "ssl.truststore.type")).transpose()
}

/// The items of a list; empty if it is unset.
pub(super) fn list(settings: &TlsSettings, name: &str) -> Vec<String> {
    let items = given(settings, name).unwrap_or_default().split(',').map(str::trim);
    items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// The value of a setting that is not empty.
pub(super) fn given<'a>(settings: &'a TlsSettings, name: &str) -> Option<&'a str> {
    settings.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn missing(given: &str, other: &str) -> TlsError {
    TlsError::Store(format!("{given} is set, and {other} is not"))
}

fn read(settings: &TlsSettings, name: &str, path: &str, kind: &str) -> Result<Vec<u8>, TlsError> {
    let bytes = std::fs::read(path).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default().to_lowercase();
        TlsError::Store(format!("{name} = {path} cannot be read: {reason}"))
    })?;
    if is_pem(&bytes) {
        return Ok(bytes);
    }
    let kind = given(settings, kind).unwrap_or("PEM");
    Err(TlsError::Store(format!("{name} = {path} is no PEM file (its type is {kind})")))
}

fn is_pem(bytes: &[u8]) -> bool {
    bytes.windows(11).any(|window| window == b"-----BEGIN ")
}
