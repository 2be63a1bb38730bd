//! JKS, the format of keystores that `keytool` wrote by default until Java 8.
//!
//! Format: the magic number, a version (1 or 2), a count, that many entries, and the SHA-1 of the
//! password, `Mighty Aphrodite` and all bytes before. A password is hashed as UTF-16, the high byte
//! first. An entry is its kind, an alias, the time it was made, and:
//!     kind 1: a private key in an EncryptedPrivateKeyInfo, a count, and its certificates;
//!     kind 2: a trusted certificate.
//! A certificate has its type in front since version 2. Numbers have 4 bytes, times 8, texts 2 and
//! then as many as these say.
//! A key's cipher is Sun's own: a salt, the key XOR the SHA-1s that begin with the password and the
//! salt and go on with the password and the one before, and the SHA-1 of password and key.
//! Which passwords: a key's may be another than the store's. Without the store's, certificates are
//! read unchecked, as Java does.
//! Memory: a store's bytes are borrowed; what is made of them is as long as they are.
//! Not done: JCEKS, the other format of Java 8; its first bytes are known, so that errors name it.

use der::asn1::{ObjectIdentifier, OctetStringRef};
use der::{Decode, Reader, SliceReader};
use pkcs8::AlgorithmIdentifierRef;
use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;

/// How a store of this format begins.
pub(super) const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
/// The same of JCEKS.
pub(super) const JCEKS_MAGIC: [u8; 4] = [0xce, 0xce, 0xce, 0xce];
const PRIVATE_KEY: u32 = 1;
const CERTIFICATE: u32 = 2;
const SALTED_WITH: &[u8] = b"Mighty Aphrodite";
const SUN_KEY_PROTECTOR: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.42.2.17.1.1");
/// The bytes of a SHA-1, and of the salt before a key.
const DIGEST_LEN: usize = 20;
const DAMAGED: &str = "is a damaged JKS store";

/// What a store has.
pub(super) struct Jks<'a> {
    /// Each key with its certificates, the own one first, by its alias.
    keys: Vec<KeyEntry<'a>>,
    certificates: Vec<&'a [u8]>,
}

struct KeyEntry<'a> {
    alias: &'a [u8],
    /// An EncryptedPrivateKeyInfo.
    encrypted: &'a [u8],
    chain: Vec<&'a [u8]>,
}

impl<'a> Jks<'a> {
    /// Reads a store. Without a password nothing says that its bytes are those that were written.
    /// The text of an error goes on after the store's name.
    pub(super) fn read(store: &'a [u8], password: Option<&str>) -> Result<Self, String> {
        let (content, digest) = store.split_last_chunk::<DIGEST_LEN>().ok_or(DAMAGED)?;
        if let Some(password) = password {
            let hashed = sha1(&[&utf16(password), SALTED_WITH, content]);
            if !bool::from(hashed.ct_eq(digest)) {
                return Err("cannot be read as JKS: its password is wrong, or it is damaged".into());
            }
        }
        Self::entries(content)
    }

    fn entries(content: &'a [u8]) -> Result<Self, String> {
        let mut rest = Bytes(content.strip_prefix(&MAGIC).ok_or(DAMAGED)?);
        let version = rest.number()?;
        if !(1..=2).contains(&version) {
            return Err(format!("is a JKS store of version {version}: there are 1 and 2"));
        }
        let (mut keys, mut certificates) = (Vec::new(), Vec::new());
        for _ in 0..rest.number()? {
            let kind = rest.number()?;
            let alias = rest.text()?;
            let _made = rest.take(8)?;
            match kind {
                PRIVATE_KEY => {
                    let encrypted = rest.sized()?;
                    let mut chain = Vec::new();
                    for _ in 0..rest.number()? {
                        chain.push(rest.certificate(version)?);
                    }
                    keys.push(KeyEntry { alias, encrypted, chain });
                }
                CERTIFICATE => certificates.push(rest.certificate(version)?),
                _ => return Err(format!("{DAMAGED}: it has an entry of kind {kind}")),
            }
        }
        if rest.0.is_empty() { Ok(Self { keys, certificates }) } else { Err(DAMAGED.to_owned()) }
    }

    /// The key with the first alias, in PKCS#8, and its certificates.
    ///
    /// password  the key's own, or the store's; `None`: neither is set
    pub(super) fn identity(
        &self,
        password: Option<&str>,
    ) -> Result<(Vec<u8>, &[&'a [u8]]), String> {
        let found = self.keys.iter().min_by_key(|entry| entry.alias);
        let entry = found.filter(|entry| !entry.chain.is_empty());
        let entry = entry.ok_or("has no private key with its certificate")?;
        let password = password.ok_or("has an encrypted key: set ssl.keystore.password")?;
        Ok((decrypted(entry.encrypted, password)?, &entry.chain))
    }

    /// The certificates that Java trusts: those that stand for themselves, and the own one of each
    /// key.
    pub(super) fn trusted(&self) -> impl Iterator<Item = &'a [u8]> {
        let own = self.keys.iter().filter_map(|entry| entry.chain.first());
        self.certificates.iter().chain(own).copied()
    }
}

/// What has not been read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DAMAGED)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn text(&mut self) -> Result<&'a [u8], String> {
        let bytes = self.take(2)?;
        self.take(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Bytes with their length in front.
    fn sized(&mut self) -> Result<&'a [u8], String> {
        let length = self.number()?;
        self.take(usize::try_from(length).map_err(|_| DAMAGED)?)
    }

    fn certificate(&mut self, version: u32) -> Result<&'a [u8], String> {
        if version > 1 {
            let kind = self.text()?;
            if !matches!(kind, b"X.509" | b"X509") {
                let kind = String::from_utf8_lossy(kind.get(..32).unwrap_or(kind));
                return Err(format!("has a certificate of the type {kind:?}: it must be X.509"));
            }
        }
        self.sized()
    }
}

/// The private key in an EncryptedPrivateKeyInfo.
fn decrypted(encoded: &[u8], password: &str) -> Result<Vec<u8>, String> {
    let protected = protected(encoded).map_err(|_| format!("{DAMAGED}: its key cannot be read"))?;
    let Some(protected) = protected else {
        return Err("has a key with a cipher that is not Sun's for JKS".to_owned());
    };
    let parts = protected
        .split_first_chunk::<DIGEST_LEN>()
        .and_then(|(salt, rest)| rest.split_last_chunk::<DIGEST_LEN>().map(|it| (salt, it)));
    let (salt, (encrypted, check)) = parts.ok_or_else(|| format!("{DAMAGED}: its key is short"))?;
    let password = utf16(password);
    let mut pad = *salt;
    let mut key = Vec::with_capacity(encrypted.len());
    for block in encrypted.chunks(DIGEST_LEN) {
        pad = sha1(&[&password, &pad]);
        key.extend(block.iter().zip(pad).map(|(byte, mask)| byte ^ mask));
    }
    if bool::from(sha1(&[&password, &key]).ct_eq(check)) {
        Ok(key)
    } else {
        let what = "has a key with another password than the store's: set ssl.key.password to it";
        Err(what.to_owned())
    }
}

/// The bytes that Sun's cipher made; `None`: another did.
fn protected(encoded: &[u8]) -> Result<Option<&[u8]>, der::Error> {
    let mut reader = SliceReader::new(encoded)?;
    let (algorithm, bytes) = reader.sequence(|inner| {
        let algorithm = AlgorithmIdentifierRef::decode(inner)?.oid;
        Ok::<_, der::Error>((algorithm, <&OctetStringRef>::decode(inner)?.as_bytes()))
    })?;
    reader.finish()?;
    Ok((algorithm == SUN_KEY_PROTECTOR).then_some(bytes))
}

fn sha1(parts: &[&[u8]]) -> [u8; DIGEST_LEN] {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn utf16(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    /// `keytool -genkeypair -alias own -dname CN=own -keyalg EC -groupname secp256r1 -storetype JKS
    /// -storepass store-secret -keypass key-secret`, and its certificate imported as `other`.
    const MADE_BY_KEYTOOL: &str = concat!(
        "/u3+7QAAAAIAAAACAAAAAgAFb3RoZXIAAAGiIAaGGQAFWC41MDkAAAE6MIIBNjCB3KADAgECAgkAlJ056MXU",
        "JbMwCgYIKoZIzj0EAwIwDjEMMAoGA1UEAxMDb3duMCAXDTI2MTEyODAyNDAyNloYDzIxMjYxMTA0MDI0MDI2",
        "WjAOMQwwCgYDVQQDEwNvd24wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARfGZtrE0caPbsKHJG558yjGRWa",
        "fiqIdTTMQbRStge9vkVn8rVXZS1waxMLUkEe4iXfW6BhMIFcIhtKZJypWm9DoyEwHzAdBgNVHQ4EFgQUGXcl",
        "19W/tRGnsKzJ4RVbDL6vlA8wCgYIKoZIzj0EAwIDSQAwRgIhAOFdqoD/XCYohn90qnNqCwiv74WOFelc+Fzo",
        "Ky71oxP0AiEAjYJVXmm6IvdvEqRRUW0vzumQmrCP6EI/+0FdILiQyf4AAAABAANvd24AAAGiIAZ/fAAAAH8w",
        "fTAOBgorBgEEASoCEQEBBQAEa8WREsyFi/heUqjrY5jcwaJTITiF53BpqmMEqfJxmTOokOwjcPgvpLFvIhJW",
        "698FYcQ/bQaaF/zlxq19J3BgIQ4b/KVhLHasUlGlFp/TkCEBFfMmZJqarVcWR8PDgvBubuUvX6oqn48kmb3m",
        "AAAAAQAFWC41MDkAAAE6MIIBNjCB3KADAgECAgkAlJ056MXUJbMwCgYIKoZIzj0EAwIwDjEMMAoGA1UEAxMD",
        "b3duMCAXDTI2MTEyODAyNDAyNloYDzIxMjYxMTA0MDI0MDI2WjAOMQwwCgYDVQQDEwNvd24wWTATBgcqhkjO",
        "PQIBBggqhkjOPQMBBwNCAARfGZtrE0caPbsKHJG558yjGRWafiqIdTTMQbRStge9vkVn8rVXZS1waxMLUkEe",
        "4iXfW6BhMIFcIhtKZJypWm9DoyEwHzAdBgNVHQ4EFgQUGXcl19W/tRGnsKzJ4RVbDL6vlA8wCgYIKoZIzj0E",
        "AwIDSQAwRgIhAOFdqoD/XCYohn90qnNqCwiv74WOFelc+FzoKy71oxP0AiEAjYJVXmm6IvdvEqRRUW0vzumQ",
        "mrCP6EI/+0FdILiQyf6Qxk7B9HaFTEI14bLU+F2/LwceTQ==",
    );
    const STORE: Option<&str> = Some("store-secret");
    const KEY: Option<&str> = Some("key-secret");

    fn made_by_keytool() -> Vec<u8> {
        BASE64_STANDARD.decode(MADE_BY_KEYTOOL).unwrap()
    }

    /// A store with these entries, whose digest nothing checks.
    fn store(version: u32, count: u32, entries: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version.to_be_bytes(), count.to_be_bytes()].concat());
        bytes.extend(entries);
        bytes.extend([0; DIGEST_LEN]);
        bytes
    }

    /// The start of an entry named `a`.
    fn entry(kind: u32) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &[0, 1, b'a'], &[0; 8]].concat()
    }

    fn error<T>(read: Result<T, String>) -> String {
        read.err().unwrap()
    }

    #[test]
    fn what_keytool_wrote_is_read_by_its_two_passwords() {
        let bytes = made_by_keytool();
        let store = Jks::read(&bytes, STORE).unwrap();
        let (key, chain) = store.identity(KEY).unwrap();
        pkcs8::PrivateKeyInfoRef::try_from(&key[..]).unwrap();
        assert_eq!(chain.len(), 1);
        let trusted: Vec<_> = store.trusted().collect();
        assert_eq!(trusted, [chain[0], chain[0]]);
    }

    #[test]
    fn a_wrong_password_is_said_for_the_store_and_for_its_key() {
        let bytes = made_by_keytool();
        assert!(error(Jks::read(&bytes, Some("another"))).contains("its password is wrong"));
        let store = Jks::read(&bytes, None).unwrap();
        assert!(error(store.identity(STORE)).contains("set ssl.key.password"));
        assert!(error(store.identity(None)).contains("set ssl.keystore.password"));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_found_by_the_password() {
        let bytes = made_by_keytool();
        for length in 0..bytes.len() {
            assert!(Jks::read(&bytes[..length], STORE).is_err(), "{length}");
            let _ = Jks::read(&bytes[..length], None);
        }
        for place in 0..bytes.len() {
            for bit in [0x01, 0x80] {
                let mut changed = bytes.clone();
                changed[place] ^= bit;
                assert!(Jks::read(&changed, STORE).is_err(), "{place}");
                let _ = Jks::read(&changed, None).map(|store| store.identity(KEY).is_ok());
            }
        }
    }

    #[test]
    fn counts_and_lengths_beyond_the_end_are_damage() {
        let endless = u32::MAX.to_be_bytes();
        let key = [&entry(PRIVATE_KEY)[..], &[0; 4], &endless].concat();
        let certificate = [&entry(CERTIFICATE)[..], &endless].concat();
        for (version, count, entries) in
            [(2, u32::MAX, &[][..]), (2, 1, &key[..]), (1, 1, &certificate[..]), (1, 0, &[0][..])]
        {
            assert_eq!(error(Jks::read(&store(version, count, entries), None)), DAMAGED);
        }
        assert_eq!(error(Jks::read(&MAGIC, None)), DAMAGED);
    }

    #[test]
    fn what_the_format_does_not_have_is_named() {
        let other = [&entry(CERTIFICATE)[..], &[0, 3, b'P', b'G', b'P'], &[0; 4]].concat();
        assert!(error(Jks::read(&store(2, 1, &other), None)).contains("of the type \"PGP\""));
        assert!(error(Jks::read(&store(2, 1, &entry(3)), None)).contains("an entry of kind 3"));
        assert!(error(Jks::read(&store(3, 0, &[]), None)).contains("of version 3"));
    }

    #[test]
    fn certificates_of_version_1_have_no_type() {
        let bytes = store(1, 1, &[&entry(CERTIFICATE)[..], &[0, 0, 0, 1, 7]].concat());
        let trusted: Vec<_> = Jks::read(&bytes, None).unwrap().trusted().collect();
        assert_eq!(trusted, [&[7]]);
    }

    #[test]
    fn a_store_without_a_key_has_no_identity() {
        let bytes = store(2, 0, &[]);
        let store = Jks::read(&bytes, None).unwrap();
        assert!(error(store.identity(KEY)).contains("no private key with its certificate"));
    }

    #[test]
    fn a_key_with_another_cipher_or_too_few_bytes_is_refused() {
        let sun = [0x30, 0x0c, 0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x2a, 0x02, 0x11, 1, 1];
        let short = [&[0x30, 0x10][..], &sun, &[0x04, 0x00]].concat();
        assert!(error(decrypted(&short, "p")).contains("its key is short"));
        let mut other = short;
        other[15] = 2;
        assert!(error(decrypted(&other, "p")).contains("not Sun's"));
        assert!(error(decrypted(&[0x30], "p")).contains("its key cannot be read"));
    }
}
