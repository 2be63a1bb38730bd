//! Delegation tokens (KIP-48): logins by SCRAM in the name of a token's owner.
//!
//! The user name is the token's id, the password its HMAC in base64. The credential of a mechanism
//! is derived at the first login by it, because that costs milliseconds, and kept until the token
//! goes. Its salt is made of the broker's random `secret`, for unknown and expired ids too, so a
//! challenge does not tell whether there is such a token. Ids are random; how long a first login by
//! one takes does tell, and is not hidden.
//! Threads: immutable, but for credentials that are derived once; swapped as a whole.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ahash::HashMap;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::scram::{MIN_ITERATIONS, ScramHash};
use super::users::{self, ScramCredential};

/// One token.
#[derive(Clone)]
pub struct DelegationToken {
    /// The name of its owner, as whom its bearers log in.
    pub owner: String,
    /// When it expires, in milliseconds since 1970.
    pub ends_ms: i64,
    secret: TokenSecret,
}

/// An HMAC in base64, and the credentials that were derived from it.
#[derive(Clone)]
struct TokenSecret {
    password: Arc<str>,
    credentials: Arc<[OnceLock<Arc<ScramCredential>>; 2]>,
}

impl DelegationToken {
    /// A token with this HMAC.
    pub fn new(owner: String, hmac: &[u8], ends_ms: i64) -> Self {
        let password = BASE64_STANDARD.encode(hmac).into();
        Self { owner, ends_ms, secret: TokenSecret { password, credentials: Arc::default() } }
    }

    /// What proves its HMAC.
    fn credential(&self, hash: ScramHash, salt: Vec<u8>) -> Arc<ScramCredential> {
        let [sha256, sha512] = &*self.secret.credentials;
        let kept = match hash {
            ScramHash::Sha256 => sha256,
            ScramHash::Sha512 => sha512,
        };
        let derive = || {
            let password = self.secret.password.as_bytes();
            Arc::new(ScramCredential::of_password(hash, password, (salt, MIN_ITERATIONS)))
        };
        Arc::clone(kept.get_or_init(derive))
    }
}

impl fmt::Debug for DelegationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DelegationToken({} until {}, [hidden])", self.owner, self.ends_ms)
    }
}

/// All tokens, by id.
#[derive(Clone, Debug, Default)]
pub struct DelegationTokens(HashMap<String, DelegationToken>);

impl DelegationTokens {
    /// The tokens after these changes; `None`: the token is gone.
    pub fn changed<I>(&self, changes: I) -> Self
    where
        I: IntoIterator<Item = (String, Option<DelegationToken>)>,
    {
        let mut tokens = self.0.clone();
        for (id, token) in changes {
            let before = tokens.remove(&id);
            let Some(mut token) = token else { continue };
            if let Some(before) = before
                && before.secret.password == token.secret.password
            {
                token.secret = before.secret;
            }
            tokens.insert(id, token);
        }
        Self(tokens)
    }

    /// The credential of a token, and the token. For an unknown or expired one it is a credential
    /// that nothing fits, made of `secret`, which nobody else knows.
    pub(super) fn find(
        &self,
        id: &str,
        hash: ScramHash,
        (secret, now_ms): (&[u8], i64),
    ) -> (Arc<ScramCredential>, Option<&DelegationToken>) {
        let made_up = users::unfit(&format!("token {id}"), hash, (secret, users::KAFKAS));
        match self.0.get(id).filter(|token| token.ends_ms > now_ms) {
            Some(token) => (token.credential(hash, made_up.salt), Some(token)),
            None => (Arc::new(made_up), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: ScramHash = ScramHash::Sha512;

    fn tokens(hmac: &[u8], ends_ms: i64) -> DelegationTokens {
        let token = DelegationToken::new("alice".to_owned(), hmac, ends_ms);
        DelegationTokens::default().changed([("t".to_owned(), Some(token))])
    }

    #[test]
    fn an_unknown_and_an_expired_token_are_challenged_like_a_known_one() {
        let known = tokens(b"hmac", 10);
        let salt = |tokens: &DelegationTokens, now_ms| {
            let (credential, found) = tokens.find("t", HASH, (b"secret", now_ms));
            (credential.salt.clone(), credential.iterations, found.is_some())
        };
        let (of_known, iterations, is_known) = salt(&known, 9);
        assert!(is_known && iterations == MIN_ITERATIONS && of_known.len() == 25);
        for (tokens, now_ms) in [(&known, 10), (&DelegationTokens::default(), 0)] {
            assert_eq!(salt(tokens, now_ms), (of_known.clone(), iterations, false));
        }
        assert_ne!(known.find("t", HASH, (b"other", 10)).0.salt, of_known);
    }

    #[test]
    fn a_renewed_token_keeps_its_credentials_and_a_token_that_is_gone_is_unknown() {
        let before = tokens(b"hmac", 10);
        let (credential, _) = before.find("t", HASH, (b"secret", 0));
        let renewed = DelegationToken::new("alice".to_owned(), b"hmac", 20);
        let after = before.changed([("t".to_owned(), Some(renewed))]);
        let (kept, token) = after.find("t", HASH, (b"secret", 15));
        assert!(Arc::ptr_eq(&credential, &kept) && token.is_some());
        let other = DelegationToken::new("alice".to_owned(), b"another", 20);
        let replaced = after.changed([("t".to_owned(), Some(other))]);
        assert!(*replaced.find("t", HASH, (b"secret", 15)).0 != *kept);
        let gone = after.changed([("t".to_owned(), None)]);
        assert!(gone.find("t", HASH, (b"secret", 15)).1.is_none());
    }

    #[test]
    fn hmacs_are_not_shown() {
        let shown = format!("{:?}", tokens(b"hmac", 10));
        assert!(shown.contains("alice") && !shown.contains(&BASE64_STANDARD.encode(b"hmac")));
    }
}
