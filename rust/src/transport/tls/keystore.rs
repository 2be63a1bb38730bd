//! The formats of key and trust stores: PEM, with the key encrypted or not, PKCS#12 and JKS.
//!
//! Pure: bytes and passwords in, keys and certificates out. The bytes are the operator's own files.

use p12_keystore::{KeyStore, Pkcs12Archive, Pkcs12ImportPolicy};
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::jks::{self, Jks};

/// How a PKCS#12 store begins: a sequence of a length in two bytes.
const DER_SEQUENCE: [u8; 2] = [0x30, 0x82];
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";

/// A private key with its certificate chain, the own certificate first.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The passwords of a store, as far as they are set.
#[derive(Clone, Copy, Default)]
pub(super) struct Passwords<'a> {
    /// Of the store as a whole.
    pub(super) store: Option<&'a str>,
    /// Of the key, in PEM and JKS.
    pub(super) key: Option<&'a str>,
}

/// The key and the chain in a store. The text of an error goes on after the store's name.
pub(super) fn identity(store: &[u8], passwords: Passwords<'_>) -> Result<Identity, String> {
    if store.starts_with(&jks::MAGIC) {
        let store = Jks::read(store, passwords.store)?;
        let (key, chain) = store.identity(passwords.key.or(passwords.store))?;
        let chain = chain.iter().map(|each| CertificateDer::from(each.to_vec())).collect();
        return Ok(Identity { chain, key: PrivatePkcs8KeyDer::from(key).into() });
    }
    if is_pem(store) {
        let chain = certificates_of_pem(store)?;
        return Ok(Identity { key: key_of_pem(store, passwords.key)?, chain });
    }
    let keystore = KeyStore::from_pkcs12(
        pkcs12(store)?,
        passwords.store.unwrap_or_default(),
        Pkcs12ImportPolicy::Strict,
    );
    let keystore = keystore.map_err(|error| unreadable(&error))?;
    let Some((_, chain)) = keystore.private_key_chain() else {
        return Err("has no private key with its certificate".to_owned());
    };
    let key = PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec());
    let chain = chain.certs().iter().map(|each| CertificateDer::from(each.as_der().to_vec()));
    Ok(Identity { chain: chain.collect(), key: key.into() })
}

/// The certificates in a store that are trusted: all of PEM; of PKCS#12 those that belong to no
/// key; of JKS what Java trusts.
pub(super) fn trusted(
    store: &[u8],
    passwords: Passwords<'_>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    if store.starts_with(&jks::MAGIC) {
        let store = Jks::read(store, passwords.store)?;
        return Ok(store.trusted().map(|each| CertificateDer::from(each.to_vec())).collect());
    }
    if is_pem(store) {
        return certificates_of_pem(store);
    }
    let archive = Pkcs12Archive::from_pkcs12(pkcs12(store)?, passwords.store.unwrap_or_default())
        .map_err(|error| unreadable(&error))?;
    let others = archive.certs.iter().filter(|bag| bag.local_key_id.is_none());
    Ok(others.map(|bag| CertificateDer::from(bag.cert.as_der().to_vec())).collect())
}

/// The certificates in a PEM text; at least one.
pub(super) fn certificates_of_pem(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| format!("is no valid PEM: {error}"))?;
    if found.is_empty() { Err("has no certificate".to_owned()) } else { Ok(found) }
}

/// The private key in a PEM text.
pub(super) fn key_of_pem(
    text: &[u8],
    password: Option<&str>,
) -> Result<PrivateKeyDer<'static>, String> {
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => encrypted_key(text, password),
        Err(error) => Err(format!("has no private key: {error}")),
    }
}

fn encrypted_key(text: &[u8], password: Option<&str>) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is not text".to_owned())?;
    let (begin, end) =
        (format!("-----BEGIN {ENCRYPTED}-----"), format!("-----END {ENCRYPTED}-----"));
    let section = text.find(&begin).zip(text.find(&end));
    let Some(section) = section.and_then(|(from, to)| text.get(from..to + end.len())) else {
        return Err("has no private key".to_owned());
    };
    let password = password.ok_or("has an encrypted key: set ssl.key.password")?;
    let (_, encoded) =
        pkcs8::Document::from_pem(section).map_err(|error| format!("is no valid PEM: {error}"))?;
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(encoded.as_bytes())
        .map_err(|error| format!("has an encrypted key that cannot be read: {error}"))?;
    let key = encrypted
        .decrypt(password)
        .map_err(|_| "has a key that ssl.key.password does not decrypt".to_owned())?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

fn pkcs12(store: &[u8]) -> Result<&[u8], String> {
    if store.starts_with(&jks::JCEKS_MAGIC) {
        let how =
            "keytool -importkeystore -srckeystore OLD -destkeystore NEW -deststoretype PKCS12";
        return Err(format!("is in the format JCEKS of Java 8; convert it: {how}"));
    }
    if store.starts_with(&DER_SEQUENCE) {
        return Ok(store);
    }
    Err("is neither PEM nor PKCS12 nor JKS".to_owned())
}

fn unreadable(error: &dyn std::fmt::Display) -> String {
    format!("cannot be read as PKCS12 (is its password right?): {error}")
}

fn is_pem(bytes: &[u8]) -> bool {
    bytes.windows(11).any(|window| window == b"-----BEGIN ")
}
