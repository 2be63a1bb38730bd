//! What a broker knows of its users: passwords for PLAIN, credentials for SCRAM.
//!
//! A credential proves a password and does not hold it (RFC 5802): whoever reads it cannot log in
//! with it, but may impersonate the broker. Neither is shown.

use std::fmt;
use std::sync::Arc;

use ahash::{HashMap, RandomState};
use subtle::ConstantTimeEq;

use super::scram::{MIN_ITERATIONS, ScramHash};

/// The hash by which passwords are compared.
const DIGEST: ScramHash = ScramHash::Sha256;
const DIGEST_BYTES: usize = 32;

/// The users of a listener that log in by PLAIN, by name (`user_NAME` of a JAAS string).
#[derive(Clone, Debug, Default)]
pub struct PlainUsers(HashMap<String, PasswordDigest>);

/// The hash of a password. It is not shown.
#[derive(Clone)]
struct PasswordDigest(Vec<u8>);

impl PasswordDigest {
    fn of(password: &str) -> Self {
        Self(DIGEST.hash(password.as_bytes()))
    }
}

impl fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl FromIterator<(String, String)> for PlainUsers {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(users: I) -> Self {
        let row = |(name, password): (String, String)| (name, PasswordDigest::of(&password));
        Self(users.into_iter().map(row).collect())
    }
}

impl PlainUsers {
    /// Whether this is the user's password. The time it takes depends on the length of `password`
    /// alone: not on the user's password, nor on whether there is such a user.
    pub fn is_password(&self, user: &str, password: &str) -> bool {
        let known = self.0.get(user);
        let right = known.map_or(&[0; DIGEST_BYTES][..], |digest| &digest.0);
        let is_equal = bool::from(PasswordDigest::of(password).0.ct_eq(right));
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

impl ScramCredential {
    /// What proves this password, with a salt and a number of iterations.
    pub(super) fn of_password(
        hash: ScramHash,
        password: &[u8],
        (salt, iterations): (Vec<u8>, u32),
    ) -> Self {
        let salted = hash.salted_password(password, &salt, iterations);
        let stored_key = hash.hash(&hash.client_key(&salted));
        Self { salt, stored_key, server_key: hash.server_key(&salted), iterations }
    }
}

impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramCredential({} iterations, [hidden])", self.iterations)
    }
}

/// The SCRAM credentials of all users.
#[derive(Clone, Debug, Default)]
pub struct ScramUsers {
    /// In the order of their places. A lookup reads one credential, whether or not it is that of
    /// the user: the time to fetch it from memory would tell.
    known: HashMap<ScramHash, Vec<ScramUser>>,
    places: RandomState,
    /// The form of each credential, sorted; made-up ones have one of these.
    challenges: HashMap<ScramHash, Vec<ChallengeForm>>,
}

#[derive(Clone, Debug)]
struct ScramUser {
    /// The hash of the name.
    place: u64,
    name: String,
    credential: ScramCredential,
}

/// What a challenge shows of a credential besides the salt's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChallengeForm {
    salt_bytes: usize,
    iterations: u32,
}

impl FromIterator<(String, ScramHash, ScramCredential)> for ScramUsers {
    fn from_iter<I>(users: I) -> Self
    where
        I: IntoIterator<Item = (String, ScramHash, ScramCredential)>,
    {
        let mut found = Self::default();
        for (name, hash, credential) in users {
            let (salt_bytes, iterations) = (credential.salt.len(), credential.iterations);
            let form = ChallengeForm { salt_bytes, iterations };
            found.challenges.entry(hash).or_default().push(form);
            let place = found.places.hash_one(&*name);
            found.known.entry(hash).or_default().push(ScramUser { place, name, credential });
        }
        found.known.values_mut().for_each(|users| users.sort_unstable_by_key(|user| user.place));
        found.challenges.values_mut().for_each(|forms| forms.sort_unstable());
        found
    }
}

impl ScramUsers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The user's credential, and whether there is one. For an unknown user it is one that no
    /// password fits, made of `secret`, which nobody else knows. Its challenge has the form of some
    /// known user's, and is the same each time until users change.
    pub(super) fn find(
        &self,
        user: &str,
        hash: ScramHash,
        secret: &[u8],
    ) -> (Arc<ScramCredential>, bool) {
        let made_up = unfit(user, hash, (secret, self.form(user, hash, secret)));
        let place = self.places.hash_one(user);
        let users = self.known.get(&hash).map_or(&[][..], Vec::as_slice);
        let at = users.partition_point(|known| known.place < place);
        let Some(nearest) = users.get(at).or(users.last()) else {
            return (Arc::new(made_up), false);
        };
        let is_known = nearest.place == place && is_same(&nearest.name, user);
        let known = nearest.credential.clone();
        (Arc::new(if is_known { known } else { made_up }), is_known)
    }

    /// What the challenge of an unknown user looks like.
    fn form(&self, user: &str, hash: ScramHash, secret: &[u8]) -> ChallengeForm {
        let number = hash.hmac(secret, format!("form {user}").as_bytes());
        let number = number.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let forms = self.challenges.get(&hash).map_or(&[][..], Vec::as_slice);
        let nth = number.checked_rem(forms.len() as u64).and_then(|nth| usize::try_from(nth).ok());
        nth.and_then(|nth| forms.get(nth).copied()).unwrap_or(KAFKAS)
    }
}

/// Whether two texts are the same; reads both to the end of the shorter one.
fn is_same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    pairs.fold(one.len() == other.len(), |same, (one, other)| same & (one == other))
}

/// A challenge of a user that Kafka's tools made.
pub(super) const KAFKAS: ChallengeForm =
    ChallengeForm { salt_bytes: 25, iterations: MIN_ITERATIONS };

/// A credential that no password fits. Its salt is the same each time.
pub(super) fn unfit(
    user: &str,
    hash: ScramHash,
    (secret, form): (&[u8], ChallengeForm),
) -> ScramCredential {
    let mut salt = Vec::with_capacity(form.salt_bytes + hash.bytes());
    while salt.len() < form.salt_bytes {
        salt.extend(hash.hmac(secret, format!("salt {} {user}", salt.len()).as_bytes()));
    }
    salt.truncate(form.salt_bytes);
    let key = hash.hash(secret);
    ScramCredential { salt, stored_key: key.clone(), server_key: key, iterations: form.iterations }
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
    fn each_of_many_users_is_found_by_name() {
        let name = |nth: u32| format!("user-{nth}");
        let credential = |nth: u32| ScramCredential {
            salt: nth.to_be_bytes().to_vec(),
            stored_key: Vec::new(),
            server_key: Vec::new(),
            iterations: 4096,
        };
        let row = |nth| (name(nth), ScramHash::Sha256, credential(nth));
        let users: ScramUsers = (0..500).map(row).collect();
        let find = |nth, hash| users.find(&name(nth), hash, b"secret");
        for nth in 0..1_000 {
            let (found, is_known) = find(nth, ScramHash::Sha256);
            assert_eq!((is_known, *found == credential(nth)), (nth < 500, nth < 500), "{nth}");
            assert!(!find(nth, ScramHash::Sha512).1);
        }
    }

    #[test]
    fn cve_2021_38153_an_unknown_user_is_challenged_like_some_known_one() {
        let user = |name: &str, salt_bytes, iterations| {
            let (salt, key) = (vec![7; salt_bytes], vec![8; 64]);
            let credential =
                ScramCredential { salt, stored_key: key.clone(), server_key: key, iterations };
            (name.to_owned(), ScramHash::Sha512, credential)
        };
        let shown = |users: &ScramUsers, name: &str, hash| {
            let (credential, known) = users.find(name, hash, b"secret");
            assert!(!known);
            (credential.salt.len(), credential.iterations)
        };
        let users: ScramUsers = [user("alice", 200, 16_384)].into_iter().collect();
        assert_eq!(shown(&users, "bob", ScramHash::Sha512), (200, 16_384));
        assert_eq!(shown(&users, "bob", ScramHash::Sha256), (25, 4096));
        let rows = [user("alice", 200, 16_384), user("anna", 16, 8192), user("ada", 16, 8192)];
        let users: ScramUsers = rows.into_iter().collect();
        let names: Vec<_> = (0..100).map(|nth| format!("unknown {nth}")).collect();
        let of = |name: &String| shown(&users, name, ScramHash::Sha512);
        let forms: Vec<_> = names.iter().map(of).collect();
        assert_eq!(names.iter().map(of).collect::<Vec<_>>(), forms, "the same each time");
        let rare = forms.iter().filter(|form| **form == (200, 16_384)).count();
        assert!((10..60).contains(&rare), "{rare}");
        assert!(forms.iter().all(|form| [(200, 16_384), (16, 8192)].contains(form)));
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
