//! The tokens of OAUTHBEARER: JWTs (RFC 7519) that are signed by a key of a JSON web key set.
//!
//! A token is accepted if a public key of the set has signed it by an algorithm of that key's type,
//! and its claims name a user, a time that is not over, and the issuer and the audience that the
//! listener asks for. So `none`, and an HMAC made with a public key, are refused before any
//! signature is checked. Times are milliseconds since 1970 and handed in.
//! Threads: any. The set is swapped as a whole.
//! Not done: encrypted tokens, headers that name keys (`jwk`, `jku`, `x5c`), scopes.

use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header, Validation};
use serde_json::{Map, Value};
use thiserror::Error;

use super::signatures;

/// A longer token is refused unread.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// The longest part of a key's name that is logged, in characters.
const SHOWN: usize = 40;

/// Why a token is refused. Clients are not told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It is too long.
    #[error("the token has more than {MAX_TOKEN_BYTES} bytes")]
    Length,
    /// It is no JWT, or by an algorithm that signs nothing.
    #[error("the token is no JWT, or not signed by RSA, ECDSA or EdDSA")]
    Form,
    /// Its key is in no set; `None`: it names none, and more or fewer than one would do.
    #[error("the token's key {0:?} is not in the key set")]
    Key(Option<String>),
    /// Its key is for another algorithm.
    #[error("the token's key does not sign by {0:?}")]
    Algorithm(Algorithm),
    /// The key did not sign it.
    #[error("the token's signature is wrong")]
    Signature,
    /// A claim has another form, or is missing.
    #[error("the token's claim {0} is missing or has another form")]
    Claim(String),
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    TooEarly,
    /// Another issuer's.
    #[error("the token is from another issuer")]
    Issuer,
    /// It is for others.
    #[error("the token is for another audience")]
    Audience,
}

/// A key of a set.
#[derive(Debug)]
struct PublicKey {
    id: Option<String>,
    /// The one algorithm that it is for; `None`: each of its type.
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

/// The public keys that sign tokens (RFC 7517).
#[derive(Debug, Default)]
pub struct KeySet(Vec<PublicKey>);

/// Why bytes are no key set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeySetError {
    /// They are something else.
    #[error("it is no JSON object with a list `keys`")]
    Form,
    /// No key can be used.
    #[error("none of its {0} keys is a public key of RSA, P-256, P-384 or Ed25519 for signatures")]
    Empty(usize),
}

impl KeySet {
    /// Reads a key set. Keys that krust cannot use are left out.
    pub fn read(bytes: &[u8]) -> Result<Self, KeySetError> {
        let set: Value = serde_json::from_slice(bytes).map_err(|_| KeySetError::Form)?;
        let listed = set.get("keys").and_then(Value::as_array).ok_or(KeySetError::Form)?;
        let keys: Vec<_> = listed.iter().filter_map(PublicKey::read).collect();
        if keys.is_empty() { Err(KeySetError::Empty(listed.len())) } else { Ok(Self(keys)) }
    }

    /// How many keys can be used.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key that a header names, or the only one of its type if it names none.
    fn find(&self, header: &Header) -> Result<&PublicKey, TokenError> {
        let family = header.alg.family();
        let is_named = |key: &&PublicKey| header.kid.is_none() || key.id == header.kid;
        let mut named = self.0.iter().filter(is_named).filter(|key| key.key.family() == family);
        match (named.next(), named.next()) {
            (Some(key), None) => Ok(key),
            (Some(key), Some(_)) if header.kid.is_some() => Ok(key),
            _ => {
                let shown = header.kid.as_ref().map(|id| id.chars().take(SHOWN).collect());
                Err(TokenError::Key(shown))
            }
        }
    }
}

impl PublicKey {
    fn read(value: &Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        if jwk.common.public_key_use.is_some_and(|it| it != PublicKeyUse::Signature) {
            return None;
        }
        let algorithm = jwk.common.key_algorithm.map(Algorithm::try_from).transpose().ok()?;
        let key = signatures::decoding_key(&jwk.algorithm)?;
        let is_fit = algorithm.is_none_or(|it| it.family() == key.family());
        is_fit.then_some(Self { id: jwk.common.key_id, algorithm, key })
    }
}

/// Which tokens a listener accepts (`sasl.oauthbearer.*`).
#[derive(Debug, Default)]
pub struct TokenRules {
    /// `expected.issuer`; `None`: any.
    pub issuer: Option<String>,
    /// `expected.audience`: a token must be for one of them; empty: for anybody.
    pub audiences: Vec<String>,
    /// `clock.skew.seconds`.
    pub skew_ms: i64,
    /// `sub.claim.name`: the claim with the user's name.
    pub user_claim: String,
    /// The keys.
    pub keys: ArcSwap<KeySet>,
    /// How many tokens were refused because their key is not in the set.
    pub missing_keys: AtomicU64,
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcceptedToken {
    pub(super) user: String,
    pub(super) ends_ms: i64,
}

impl TokenRules {
    /// Checks a token at `now_ms`.
    pub(super) fn check(&self, token: &str, now_ms: i64) -> Result<AcceptedToken, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Length);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| TokenError::Form)?;
        if header.alg.family() == AlgorithmFamily::Hmac || header.crit.is_some() {
            return Err(TokenError::Form);
        }
        let keys = self.keys.load();
        let key = keys.find(&header).inspect_err(|_| {
            self.missing_keys.fetch_add(1, Ordering::Relaxed);
        })?;
        if key.algorithm.is_some_and(|algorithm| algorithm != header.alg) {
            return Err(TokenError::Algorithm(header.alg));
        }
        self.check_claims(&signed_claims(token, header.alg, &key.key)?, now_ms)
    }

    fn check_claims(
        &self,
        claims: &Map<String, Value>,
        now_ms: i64,
    ) -> Result<AcceptedToken, TokenError> {
        let ends_ms = time_ms(claims, "exp")?.ok_or_else(|| TokenError::Claim("exp".into()))?;
        let issued_ms = time_ms(claims, "iat")?.ok_or_else(|| TokenError::Claim("iat".into()))?;
        let begins_ms = time_ms(claims, "nbf")?.unwrap_or(issued_ms);
        if now_ms.saturating_sub(self.skew_ms) >= ends_ms {
            return Err(TokenError::Expired);
        }
        if now_ms.saturating_add(self.skew_ms) < begins_ms.max(issued_ms) {
            return Err(TokenError::TooEarly);
        }
        let issuer = claims.get("iss").and_then(Value::as_str);
        if self.issuer.is_some() && issuer != self.issuer.as_deref() {
            return Err(TokenError::Issuer);
        }
        if !(self.audiences.is_empty() || self.is_audience(claims.get("aud"))) {
            return Err(TokenError::Audience);
        }
        let is_name = |name: &&str| !name.is_empty() && !name.contains(char::is_control);
        let user = claims.get(&self.user_claim).and_then(Value::as_str).filter(is_name);
        let user = user.ok_or_else(|| TokenError::Claim(self.user_claim.clone()))?.to_owned();
        Ok(AcceptedToken { user, ends_ms })
    }

    fn is_audience(&self, claim: Option<&Value>) -> bool {
        let is_one = |value: &Value| {
            value.as_str().is_some_and(|name| self.audiences.iter().any(|known| known == name))
        };
        match claim {
            Some(Value::Array(names)) => names.iter().any(is_one),
            Some(name) => is_one(name),
            None => false,
        }
    }
}

/// The claims of a token, if the key has signed them.
fn signed_claims(
    token: &str,
    algorithm: Algorithm,
    key: &DecodingKey,
) -> Result<Map<String, Value>, TokenError> {
    signatures::install();
    let mut rules = Validation::new(algorithm);
    rules.required_spec_claims.clear();
    (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
    let data = jsonwebtoken::decode(token, key, &rules).map_err(|error| match error.kind() {
        jsonwebtoken::errors::ErrorKind::Json(_) => TokenError::Form,
        _ => TokenError::Signature,
    })?;
    Ok(data.claims)
}

/// A claim in seconds since 1970, as milliseconds.
fn time_ms(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, TokenError> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let wrong = || TokenError::Claim(name.to_owned());
    match value.as_i64() {
        Some(seconds) => Ok(Some(seconds.saturating_mul(1000))),
        // As a fraction, or beyond the range, where it saturates.
        None => value.as_f64().map(|seconds| Some((seconds * 1000.0) as i64)).ok_or_else(wrong),
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use ring::{hmac, signature};
    use serde_json::json;

    use super::*;

    const NOW_S: i64 = 1_800_000_000;

    enum Signer {
        Ec(EcdsaKeyPair),
        Ed(Ed25519KeyPair),
    }

    impl Signer {
        fn ec() -> Self {
            let (rules, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
            let key = EcdsaKeyPair::generate_pkcs8(rules, &random).unwrap();
            Self::Ec(EcdsaKeyPair::from_pkcs8(rules, key.as_ref(), &random).unwrap())
        }

        fn ed() -> Self {
            let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
            Self::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
        }

        fn public(&self) -> &[u8] {
            match self {
                Self::Ec(key) => key.public_key().as_ref(),
                Self::Ed(key) => key.public_key().as_ref(),
            }
        }

        fn jwk(&self, id: &str) -> Value {
            match self {
                Self::Ec(_) => {
                    let (x, y) = self.public()[1..].split_at(32);
                    json!({"kty": "EC", "crv": "P-256", "kid": id, "x": coded(x), "y": coded(y)})
                }
                Self::Ed(_) => {
                    json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": coded(self.public())})
                }
            }
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let message = message(header, claims);
            let signature = match self {
                Self::Ec(key) => key.sign(&SystemRandom::new(), message.as_bytes()).unwrap(),
                Self::Ed(key) => key.sign(message.as_bytes()),
            };
            signed(&message, &signature)
        }
    }

    fn coded(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn message(header: &Value, claims: &Value) -> String {
        format!("{}.{}", coded(header.to_string().as_bytes()), coded(claims.to_string().as_bytes()))
    }

    fn signed(message: &str, signature: &signature::Signature) -> String {
        format!("{message}.{}", coded(signature.as_ref()))
    }

    fn claims() -> Value {
        json!({
            "sub": "alice", "iss": "https://issuer", "aud": ["other", "krust"],
            "iat": NOW_S, "exp": NOW_S + 60,
        })
    }

    fn rules(keys: &[Value]) -> TokenRules {
        TokenRules {
            issuer: Some("https://issuer".to_owned()),
            audiences: vec!["krust".to_owned()],
            skew_ms: 30_000,
            user_claim: "sub".to_owned(),
            keys: ArcSwap::from_pointee(
                KeySet::read(json!({"keys": keys}).to_string().as_bytes()).unwrap(),
            ),
            ..Default::default()
        }
    }

    fn check(rules: &TokenRules, token: &str) -> Result<AcceptedToken, TokenError> {
        rules.check(token, NOW_S * 1000)
    }

    #[test]
    fn a_token_that_a_key_of_the_set_has_signed_names_its_user_and_its_end() {
        let (ec, ed) = (Signer::ec(), Signer::ed());
        let rules = rules(&[ec.jwk("1"), ed.jwk("2")]);
        let accepted = AcceptedToken { user: "alice".to_owned(), ends_ms: (NOW_S + 60) * 1000 };
        let by_ec = ec.sign(&json!({"alg": "ES256", "kid": "1"}), &claims());
        assert_eq!(check(&rules, &by_ec), Ok(accepted.clone()));
        let by_ed = ed.sign(&json!({"alg": "EdDSA", "kid": "2"}), &claims());
        assert_eq!(check(&rules, &by_ed), Ok(accepted.clone()));
        let unnamed = ed.sign(&json!({"alg": "EdDSA"}), &claims());
        assert_eq!(check(&rules, &unnamed), Ok(accepted));
    }

    #[test]
    fn a_token_that_no_key_of_the_set_has_signed_is_refused() {
        let (ours, other) = (Signer::ec(), Signer::ec());
        let rules = rules(&[ours.jwk("1"), other.jwk("2")]);
        let header = json!({"alg": "ES256", "kid": "1"});
        let theirs = other.sign(&header, &claims());
        assert_eq!(check(&rules, &theirs), Err(TokenError::Signature));
        let unknown = other.sign(&json!({"alg": "ES256", "kid": "3"}), &claims());
        assert_eq!(check(&rules, &unknown), Err(TokenError::Key(Some("3".to_owned()))));
        let unnamed = other.sign(&json!({"alg": "ES256"}), &claims());
        assert_eq!(check(&rules, &unnamed), Err(TokenError::Key(None)));
        assert_eq!(rules.missing_keys.load(Ordering::Relaxed), 2);
        let token = ours.sign(&header, &claims());
        let (message, signature) = token.rsplit_once('.').unwrap();
        for bad in [format!("{message}."), format!("{message}.AAAA"), format!("{token}A")] {
            assert_eq!(check(&rules, &bad), Err(TokenError::Signature), "{bad}");
        }
        let changed = super::tests::message(&header, &json!({"sub": "admin"}));
        let changed = format!("{changed}.{signature}");
        assert_eq!(check(&rules, &changed), Err(TokenError::Signature));
    }

    #[test]
    fn algorithms_that_prove_nothing_are_refused() {
        let ours = Signer::ec();
        let rules = rules(&[ours.jwk("1")]);
        for alg in ["none", "None", "nOnE", "", "ES257"] {
            let message = message(&json!({"alg": alg, "kid": "1"}), &claims());
            for token in [format!("{message}."), format!("{message}.AAAA")] {
                assert_eq!(check(&rules, &token), Err(TokenError::Form), "{alg}");
            }
        }
        let message = message(&json!({"alg": "HS256", "kid": "1"}), &claims());
        let jwk = ours.jwk("1").to_string();
        for secret in [ours.public(), b"", jwk.as_bytes()] {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
            let token = format!("{message}.{}", coded(tag.as_ref()));
            assert_eq!(check(&rules, &token), Err(TokenError::Form));
        }
        let secret = json!({"kty": "oct", "kid": "1", "k": "AAAA"});
        let set = json!({"keys": [secret]}).to_string();
        assert_eq!(KeySet::read(set.as_bytes()).unwrap_err(), KeySetError::Empty(1));
    }

    #[test]
    fn keys_that_a_token_brings_along_and_unknown_critical_headers_count_for_nothing() {
        let (ours, theirs) = (Signer::ec(), Signer::ec());
        let rules = rules(&[ours.jwk("1")]);
        let header = json!({"alg": "ES256", "kid": "1", "jwk": theirs.jwk("1")});
        assert_eq!(check(&rules, &theirs.sign(&header, &claims())), Err(TokenError::Signature));
        let header = json!({"alg": "ES256", "kid": "1", "crit": ["b64"], "b64": false});
        assert_eq!(check(&rules, &ours.sign(&header, &claims())), Err(TokenError::Form));
    }

    #[test]
    fn a_key_signs_only_as_its_set_says() {
        let ours = Signer::ec();
        let with = |name: &str, value: &str| {
            let mut jwk = ours.jwk("1");
            jwk[name] = json!(value);
            json!({"keys": [jwk]}).to_string()
        };
        for (name, value) in [("use", "enc"), ("alg", "RS256"), ("alg", "ES512"), ("crv", "P-521")]
        {
            let read = KeySet::read(with(name, value).as_bytes());
            assert_eq!(read.unwrap_err(), KeySetError::Empty(1), "{name}={value}");
        }
        for (name, value) in [("use", "sig"), ("alg", "ES256")] {
            assert_eq!(KeySet::read(with(name, value).as_bytes()).unwrap().len(), 1, "{value}");
        }
        for bad in ["", "[]", "{}", r#"{"keys": {}}"#, "\u{feff}{}"] {
            assert_eq!(KeySet::read(bad.as_bytes()).unwrap_err(), KeySetError::Form, "{bad}");
        }
    }

    #[test]
    fn claims_of_another_form_time_issuer_or_audience_are_refused() {
        let ours = Signer::ed();
        let rules = rules(&[ours.jwk("1")]);
        let claim = |name: &str| TokenError::Claim(name.to_owned());
        for (name, value, expected) in [
            ("exp", json!(null), claim("exp")),
            ("exp", json!("1900000000"), claim("exp")),
            ("exp", json!(NOW_S - 30), TokenError::Expired),
            ("exp", json!(-1), TokenError::Expired),
            ("iat", json!(null), claim("iat")),
            ("iat", json!(NOW_S + 31), TokenError::TooEarly),
            ("nbf", json!(NOW_S + 31), TokenError::TooEarly),
            ("nbf", json!(1e300), TokenError::TooEarly),
            ("nbf", json!("soon"), claim("nbf")),
            ("iss", json!("https://issuer/"), TokenError::Issuer),
            ("iss", json!(["https://issuer"]), TokenError::Issuer),
            ("iss", json!(null), TokenError::Issuer),
            ("aud", json!("krus"), TokenError::Audience),
            ("aud", json!([]), TokenError::Audience),
            ("aud", json!({"krust": 1}), TokenError::Audience),
            ("aud", json!(null), TokenError::Audience),
            ("sub", json!(null), claim("sub")),
            ("sub", json!(""), claim("sub")),
            ("sub", json!(["alice"]), TokenError::Form),
            ("sub", json!("al\nice"), claim("sub")),
        ] {
            let mut wrong = claims();
            wrong[name] = value.clone();
            let token = ours.sign(&json!({"alg": "EdDSA", "kid": "1"}), &wrong);
            assert_eq!(check(&rules, &token), Err(expected), "{name}: {value}");
        }
    }

    #[test]
    fn the_clocks_may_differ_by_the_skew_and_times_may_be_fractions() {
        let ours = Signer::ed();
        let rules = rules(&[ours.jwk("1")]);
        for (name, value) in [
            ("exp", json!(NOW_S - 29)),
            ("exp", json!(1e300)),
            ("exp", json!(NOW_S as f64 + 0.5)),
            ("iat", json!(NOW_S + 30)),
            ("nbf", json!(NOW_S + 30)),
            ("aud", json!("krust")),
        ] {
            let mut right = claims();
            right[name] = value.clone();
            let token = ours.sign(&json!({"alg": "EdDSA", "kid": "1"}), &right);
            assert!(check(&rules, &token).is_ok(), "{name}: {value}");
        }
    }

    #[test]
    fn a_token_that_is_too_long_is_refused_unread() {
        let token = "a".repeat(MAX_TOKEN_BYTES + 1);
        assert_eq!(check(&TokenRules::default(), &token), Err(TokenError::Length));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_no_token_and_no_key_set(
            parts in proptest::collection::vec(".{0,40}", 0..5), raw: Vec<u8>, json in ".{0,60}",
        ) {
            let ours = Signer::ed();
            let rules = rules(&[ours.jwk("1")]);
            proptest::prop_assert!(check(&rules, &parts.join(".")).is_err());
            let coded: Vec<_> = parts.iter().map(|part| coded(part.as_bytes())).collect();
            proptest::prop_assert!(check(&rules, &coded.join(".")).is_err());
            proptest::prop_assert!(KeySet::read(&raw).is_err());
            proptest::prop_assert!(KeySet::read(json.as_bytes()).is_err());
        }
    }
}
