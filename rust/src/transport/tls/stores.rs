//! Reads keys and certificates from Kafka's settings (KIP-651); `ssl.key.location` and
//! `ssl.certificate.location` are librdkafka's.
//!
//! A store is a file or a text. `keystore` recognises a file's format by its content, so
//! `ssl.keystore.type` says nothing that is not known.
//! Threads: any. Files are read once, when the settings are.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use rustls::pki_types::CertificateDer;

use super::keystore::{self, Identity, Passwords};
use super::settings::TlsError;

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

/// The largest file that is read: a thousand authorities need a tenth of it.
const FILE_MAX: u64 = 16 << 20;

/// The own key and certificates; `None`: no setting names them.
pub(super) fn identity(settings: &TlsSettings) -> Result<Option<Identity>, TlsError> {
    let password = given(settings, "ssl.key.password");
    let name = "ssl.keystore.location";
    if let Some(path) = given(settings, name) {
        let store = given(settings, "ssl.keystore.password");
        let passwords = Passwords { store, key: password };
        let found = keystore::identity(&read(name, path)?, passwords);
        return found.map(Some).map_err(|what| TlsError::Store(format!("{name} = {path} {what}")));
    }
    let texts = ["ssl.keystore.key", "ssl.keystore.certificate.chain"];
    let files = ["ssl.key.location", "ssl.certificate.location"];
    for names in [texts, files] {
        let [key, chain] = names;
        let pem = match names.map(|name| given(settings, name)) {
            [None, None] => continue,
            [Some(_), None] => return Err(missing(key, chain)),
            [None, Some(_)] => return Err(missing(chain, key)),
            [Some(key), Some(chain)] if names == texts => [unescaped(key), unescaped(chain)],
            [Some(key_path), Some(chain_path)] => [read(key, key_path)?, read(chain, chain_path)?],
        };
        let [key_pem, chain_pem] = &pem;
        let key = keystore::key_of_pem(key_pem, password).map_err(|what| wrong(key, &what))?;
        let chain = keystore::certificates_of_pem(chain_pem).map_err(|what| wrong(chain, &what))?;
        return Ok(Some(Identity { chain, key }));
    }
    Ok(None)
}

/// The trusted certificates; `None`: no setting names them.
pub(super) fn trusted(
    settings: &TlsSettings,
) -> Result<Option<Vec<CertificateDer<'static>>>, TlsError> {
    let name = "ssl.truststore.certificates";
    if let Some(text) = given(settings, name) {
        let found = keystore::certificates_of_pem(&unescaped(text));
        return found.map(Some).map_err(|what| wrong(name, &what));
    }
    let name = "ssl.truststore.location";
    let Some(path) = given(settings, name) else { return Ok(None) };
    let store = given(settings, "ssl.truststore.password");
    let found = keystore::trusted(&read(name, path)?, Passwords { store, key: None });
    found.map(Some).map_err(|what| TlsError::Store(format!("{name} = {path} {what}")))
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

/// An error in a text, which is not shown, because it may be a key.
fn wrong(name: &str, what: &str) -> TlsError {
    TlsError::Store(format!("{name} {what}"))
}

/// A PEM text, in which `\n` may stand for the end of a line.
fn unescaped(text: &str) -> Vec<u8> {
    text.replace("\\n", "\n").into_bytes()
}

fn read(name: &str, path: &str) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
    let length = read.map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default().to_lowercase();
        TlsError::Store(format!("{name} = {path} cannot be read: {reason}"))
    })?;
    if u64::try_from(length).is_ok_and(|length| length <= FILE_MAX) {
        return Ok(bytes);
    }
    Err(TlsError::Store(format!("{name} = {path} is no store: it has more than {FILE_MAX} bytes")))
}
