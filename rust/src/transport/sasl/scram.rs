//! SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the four messages and the arithmetic.
//!
//! ```text
//! client-first   n,,n=USER,r=NONCE[,extensions]
//! server-first   r=NONCE+SERVER'S,s=SALT,i=ITERATIONS
//! client-final   c=BASE64 OF THE HEADER "n,,",r=NONCE+SERVER'S,p=PROOF
//! server-final   v=SIGNATURE
//! ```
//! As in Kafka, names and passwords are taken as UTF-8 without SASLprep, and no channel is bound.
//! Kafka's extension `tokenauth=true` asks for a login by delegation token.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

use super::SaslError;

/// The fewest iterations that are accepted (KIP-84).
pub const MIN_ITERATIONS: u32 = 4096;
/// The most (KIP-554): a broker cannot have its clients compute for long.
pub const MAX_ITERATIONS: u32 = 16_384;
/// The longest nonce of a peer that is accepted, in bytes.
const MAX_NONCE: usize = 512;

/// The hash function of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScramHash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl ScramHash {
    /// How many bytes a hash has.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    pub(super) fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    pub(super) fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, bytes),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, bytes),
        }
    }

    /// The password, salted and hashed (`Hi` of RFC 5802).
    pub(super) fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.bytes()];
        match self {
            Self::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted),
            Self::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut salted),
        }
        salted
    }

    /// The client's key.
    pub(super) fn client_key(self, salted_password: &[u8]) -> Vec<u8> {
        self.hmac(salted_password, b"Client Key")
    }

    /// The broker's key.
    pub(super) fn server_key(self, salted_password: &[u8]) -> Vec<u8> {
        self.hmac(salted_password, b"Server Key")
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    // An HMAC takes a key of any length.
    M::new_from_slice(key).map_or_else(
        |_| Vec::new(),
        |mut mac| {
            mac.update(bytes);
            mac.finalize().into_bytes().to_vec()
        },
    )
}

/// Combines two byte strings of one length: a key with a signature gives a proof, a proof with the
/// signature gives the key.
pub(super) fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(one, other)| one ^ other).collect()
}

/// A new nonce: 24 characters.
pub(super) fn nonce() -> String {
    let mut bytes = [0; 18];
    // Without random bytes of the system no login is safe, so none succeeds: see `is_nonce`.
    match getrandom::fill(&mut bytes) {
        Ok(()) => BASE64_STANDARD.encode(bytes),
        Err(_) => String::new(),
    }
}

/// The client's first message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFirst<'a> {
    /// The header, with the comma after it.
    pub(super) header: &'a str,
    /// All that follows the header.
    pub(super) bare: &'a str,
    pub(super) authorization_id: Option<String>,
    pub(super) user: String,
    pub(super) nonce: &'a str,
    /// Whether the user logs in with a delegation token.
    pub(super) is_token: bool,
}

impl<'a> ClientFirst<'a> {
    pub(super) fn read(token: &'a [u8]) -> Result<Self, SaslError> {
        let bad = SaslError::Malformed("no first message of SCRAM");
        let text = str::from_utf8(token).map_err(|_| bad.clone())?;
        let (binding, rest) = text.split_once(',').ok_or(bad.clone())?;
        if !matches!(binding, "n" | "y") {
            return Err(SaslError::Malformed("channels cannot be bound"));
        }
        let (authorization, bare) = rest.split_once(',').ok_or(bad.clone())?;
        let authorization_id = match authorization.strip_prefix("a=") {
            Some(name) => Some(unquoted(name).ok_or(bad.clone())?),
            None if authorization.is_empty() => None,
            None => return Err(bad),
        };
        let header = text.get(..text.len() - bare.len()).ok_or(bad.clone())?;
        // A message that begins with m= needs an extension that nobody here knows.
        let mut attributes = bare.split(',');
        let user = attributes.next().and_then(|part| unquoted(part.strip_prefix("n=")?));
        let nonce = attributes.next().and_then(|part| part.strip_prefix("r="));
        match (user, nonce) {
            (Some(user), Some(nonce)) if is_nonce(nonce) && !user.is_empty() => Ok(Self {
                header,
                bare,
                authorization_id,
                user,
                nonce,
                is_token: attributes.any(|part| part.eq_ignore_ascii_case("tokenauth=true")),
            }),
            _ => Err(bad),
        }
    }
}

/// The broker's first message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFirst<'a> {
    pub(super) nonce: &'a str,
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
}

impl<'a> ServerFirst<'a> {
    /// Reads the answer to a first message with `nonce`.
    pub(super) fn read(token: &'a [u8], nonce: &str) -> Result<Self, SaslError> {
        let bad = SaslError::Malformed("no answer to the first message of SCRAM");
        let text = str::from_utf8(token).map_err(|_| bad.clone())?;
        let mut attributes = text.split(',');
        let theirs =
            attributes.next().and_then(|part| part.strip_prefix("r=")).ok_or(bad.clone())?;
        let salt = attributes.next().and_then(|part| part.strip_prefix("s="));
        let iterations = attributes.next().and_then(|part| part.strip_prefix("i="));
        let salt = salt.and_then(|salt| BASE64_STANDARD.decode(salt).ok()).ok_or(bad.clone())?;
        let iterations = iterations.and_then(|text| text.parse().ok()).ok_or(bad.clone())?;
        if !(theirs.starts_with(nonce) && theirs.len() > nonce.len() && is_nonce(theirs)) {
            return Err(SaslError::Malformed("the answer repeats another login's nonce"));
        }
        if salt.is_empty() || !(MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations) {
            return Err(SaslError::Malformed("the number of iterations is not 4096 to 16384"));
        }
        Ok(Self { nonce: theirs, salt, iterations })
    }

    pub(super) fn write(&self) -> String {
        let salt = BASE64_STANDARD.encode(&self.salt);
        format!("r={},s={salt},i={}", self.nonce, self.iterations)
    }
}

/// The client's last message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFinal<'a> {
    /// All but the proof.
    pub(super) without_proof: &'a str,
    /// The header of the first message.
    pub(super) header: Vec<u8>,
    pub(super) nonce: &'a str,
    pub(super) proof: Vec<u8>,
}

impl<'a> ClientFinal<'a> {
    pub(super) fn read(token: &'a [u8]) -> Result<Self, SaslError> {
        let bad = SaslError::Malformed("no last message of SCRAM");
        let text = str::from_utf8(token).map_err(|_| bad.clone())?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(bad.clone())?;
        let mut attributes = without_proof.split(',');
        let header =
            attributes.next().and_then(|part| part.strip_prefix("c=")).ok_or(bad.clone())?;
        let nonce =
            attributes.next().and_then(|part| part.strip_prefix("r=")).ok_or(bad.clone())?;
        let decoded = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| bad.clone());
        Ok(Self { without_proof, header: decoded(header)?, nonce, proof: decoded(proof)? })
    }

    /// The message without its proof.
    pub(super) fn without_proof(header: &str, nonce: &str) -> String {
        format!("c={},r={nonce}", BASE64_STANDARD.encode(header))
    }

    pub(super) fn write(without_proof: &str, proof: &[u8]) -> String {
        format!("{without_proof},p={}", BASE64_STANDARD.encode(proof))
    }
}

/// The broker's last message, which proves to the client that it is the right broker.
pub(super) fn server_final(signature: &[u8]) -> String {
    format!("v={}", BASE64_STANDARD.encode(signature))
}

/// A name as it is written in a message.
pub(super) fn quoted(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// The name that is written like this; `None`: it is no name.
pub(super) fn unquoted(quoted: &str) -> Option<String> {
    let mut parts = quoted.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = match part.get(..2)? {
            "2C" => (',', part.get(2..)?),
            "3D" => ('=', part.get(2..)?),
            _ => return None,
        };
        name.push(sign);
        name.push_str(rest);
    }
    (!name.contains('\0')).then_some(name)
}

/// Whether this can be a nonce: printable characters of ASCII without a comma.
fn is_nonce(text: &str) -> bool {
    let is_printable = |byte: u8| byte.is_ascii_graphic() && byte != b',';
    (1..=MAX_NONCE).contains(&text.len()) && text.bytes().all(is_printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_read_back() {
        for name in ["alice", "a,b=c", "=2C", "ünï"] {
            assert_eq!(unquoted(&quoted(name)).as_deref(), Some(name));
        }
        for bad in ["a=", "a=2", "a=2c", "a=zz", "a=é", "a\0"] {
            assert_eq!(unquoted(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_first_message_is_read_to_its_parts() {
        let first = ClientFirst::read(b"n,a=bob,n=al=2Cice,r=x/y,tokenauth=true").unwrap();
        assert_eq!(first.header, "n,a=bob,");
        assert_eq!(first.bare, "n=al=2Cice,r=x/y,tokenauth=true");
        assert_eq!((first.authorization_id.as_deref(), &*first.user), (Some("bob"), "al,ice"));
        assert!(first.nonce == "x/y" && first.is_token);
        let long = format!("n,,n=a,r={}", "x".repeat(MAX_NONCE + 1));
        for bad in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=a",
            "n,,n=,r=x",
            "n,,r=x,n=a",
            "n,,n=a,r=",
            "n,,m=x,n=a,r=x",
            "p=tls-unique,,n=a,r=x",
            "n,b,n=a,r=x",
            "n,,n=a,r=\u{e9}",
            &long,
        ] {
            assert!(ClientFirst::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_client_refuses_an_answer_to_another_login_and_work_without_end() {
        let read = |text: &str| ServerFirst::read(text.as_bytes(), "mine").map(|_| ());
        assert_eq!(read("r=mineyours,s=AAAA,i=4096"), Ok(()));
        for bad in [
            "r=mine,s=AAAA,i=4096",
            "r=yours,s=AAAA,i=4096",
            "r=mineyours,s=AAAA,i=4095",
            "r=mineyours,s=AAAA,i=16385",
            "r=mineyours,s=AAAA,i=-1",
            "r=mineyours,s=,i=4096",
            "r=mineyours,s=?,i=4096",
            "r=mineyours,i=4096",
            "e=other-error",
            "",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
