//! OAUTHBEARER: messages, JWTs and key sets. No bytes may panic, and none but a token that a key of
//! the set has signed lets anybody in.

#![no_main]

use krust::transport::sasl::{
    BearerToken, KeySet, KnownUsers, Mechanism, PlainUsers, SaslLogin, ScramUsers, ServerExchange,
    ServerStep, TokenRules, TokenSource,
};
use libfuzzer_sys::fuzz_target;

/// A key of RFC 7517, whose private half no fuzzer finds.
const KEYS: &[u8] = br#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

#[derive(Debug)]
struct Given(String);

impl TokenSource for Given {
    fn token(&self) -> Result<BearerToken, String> {
        let (text, rest) = self.0.split_once('\n').unwrap_or((&self.0, "name=value"));
        let extension = rest.split_once('=').map(|(name, value)| (name.into(), value.into()));
        Ok(BearerToken { text: text.to_owned(), extensions: extension.into_iter().collect() })
    }
}

fuzz_target!(|bytes: &[u8]| {
    let _ = KeySet::read(bytes);
    let rules = TokenRules { user_claim: "sub".to_owned(), ..Default::default() };
    rules.keys.store(KeySet::read(KEYS).expect("a key").into());
    let (plain, scram) = (PlainUsers::default(), ScramUsers::default());
    let (plain, scram, secret, tokens) = (&plain, &scram, b"secret", Some(&rules));
    let known = KnownUsers { plain, scram, delegation: None, secret, tokens, now_ms: 0 };
    let message = [b"n,,\x01auth=Bearer ", bytes, b"\x01\x01"].concat();
    for message in [bytes, &message] {
        let step = ServerExchange::begin(Mechanism::OauthBearer).step(message, known);
        match step {
            Ok(ServerStep::Challenge(_, exchange)) => {
                assert!(exchange.step(bytes, known).is_err());
            }
            Ok(ServerStep::Authenticated { .. }) => panic!("a token without a signature"),
            Err(_) => {}
        }
    }
    let given = Given(String::from_utf8_lossy(bytes).into_owned());
    if let Ok((_, exchange)) = SaslLogin::by_tokens(std::sync::Arc::new(given)).begin() {
        let _ = exchange.step(bytes);
    }
});
