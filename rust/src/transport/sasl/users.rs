//! What a broker knows of its users: passwords for PLAIN, credentials for SCRAM.
//!
//! A credential proves a password and does not hold it (RFC 5802): whoever reads it cannot log in
//! with it, but may impersonate the broker. Neither is shown.

use std::fmt;
use std::sync::Arc;

use ahash::HashMap;
use subtle::ConstantTimeEq;

use super::Password;
use super::scram::{MIN_ITERATIONS, ScramHash};

/// The users of a listener that log in by PLAIN, by name (`user_NAME` of a JAAS string).
#[derive(Clone, Debug, Default)]
pub struct PlainUsers(HashMap<String, Password>);

impl FromIterator<(String, String)> for PlainUsers {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(users: I) -> Self {
        Self(users.into_iter().map(|(name, password)| (name, password.into())).collect())
    }
}

impl PlainUsers {
    /// Whether this is the user's password. The time it takes says nothing of the password, nor
    /// whether there is such a user.
    pub fn is_password(&self, user: &str, password: &str) -> bool {
        let known = self.0.get(user);
        let right = known.map_or(password, Password::text);
        let digest = |text: &str| ScramHash::Sha256.hash(text.as_bytes());
        let is_equal = bool::from(digest(right).ct_eq(&digest(password)));
        is_equal & known.is_some()
    }
}

/// What proves a user's password by one SCRAM mechanism.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    /// Random bytes.
    pub salt: Vec<u8>,
    /// The hash of the client's key.
    pub stored_key: Vec<u8>,
    /// The broker's key.
    pub server_key: Vec<u8>,
    /// How often the password was hashed.
    pub iterations: u32,
}

impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramCredential({} iterations, [hidden])", self.iterations)
    }
}

/// The SCRAM credentials of all users.
#[derive(Clone, Debug, Default)]
pub struct ScramUsers {
    known: HashMap<(String, ScramHash), Arc<ScramCredential>>,
}

impl FromIterator<(String, ScramHash, ScramCredential)> for ScramUsers {
    fn from_iter<I>(users: I) -> Self
    where
        I: IntoIterator<Item = (String, ScramHash, ScramCredential)>,
    {
        let row = |(user, hash, credential)| ((user, hash), Arc::new(credential));
        Self { known: users.into_iter().map(row).collect() }
    }
}

impl ScramUsers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The user's credential, and whether there is one. For an unknown user it is one that no
    /// password fits, the same each time: made of `secret`, which nobody else knows.
    pub(super) fn find(
        &self,
        user: &str,
        hash: ScramHash,
        secret: &[u8],
    ) -> (Arc<ScramCredential>, bool) {
        let made_up = unfit(user, hash, secret);
        match self.known.get(&(user.to_owned(), hash)) {
            Some(credential) => (Arc::clone(credential), true),
            None => (Arc::new(made_up), false),
        }
    }
}

/// The length of the salts that Kafka's tools make.
const SALT_BYTES: usize = 25;

fn unfit(user: &str, hash: ScramHash, secret: &[u8]) -> ScramCredential {
    let mut salt = hash.hmac(secret, user.as_bytes());
    salt.truncate(SALT_BYTES);
    let key = hash.hash(secret);
    ScramCredential { salt, stored_key: key.clone(), server_key: key, iterations: MIN_ITERATIONS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_password_of_a_known_user_fits() {
        let users: PlainUsers = [("alice".to_owned(), "secret".to_owned())].into_iter().collect();
        assert!(users.is_password("alice", "secret"));
        for (user, password) in [("alice", "Secret"), ("alice", ""), ("bob", "secret"), ("", "")] {
            assert!(!users.is_password(user, password), "{user} {password}");
        }
    }

    #[test]
    fn an_unknown_user_has_the_same_salt_each_time() {
        let users = ScramUsers::default();
        let salt = |user, secret: &[u8]| {
            let (credential, known) = users.find(user, ScramHash::Sha256, secret);
            assert!(!known);
            credential.salt.clone()
        };
        assert_eq!(salt("bob", b"1"), salt("bob", b"1"));
        assert_ne!(salt("bob", b"1"), salt("bob", b"2"));
        assert_ne!(salt("bob", b"1"), salt("eve", b"1"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let users: PlainUsers = [("alice".to_owned(), "canary".to_owned())].into_iter().collect();
        let credential = ScramCredential {
            salt: b"canary".to_vec(),
            stored_key: b"canary".to_vec(),
            server_key: b"canary".to_vec(),
            iterations: 4096,
        };
        let shown = format!("{users:?} {credential:?}");
        assert!(!shown.contains("canary") && !shown.contains("99, 97"), "{shown}");
    }
}
