//! Tokens of SASL, at both ends of a login: no bytes may panic, and none but the right ones let
//! anybody in.

#![no_main]

use krust::transport::sasl::{
    KnownUsers, Mechanism, PlainUsers, SaslLogin, ScramUsers, ServerExchange, ServerStep,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (plain, scram) = (PlainUsers::default(), ScramUsers::default());
    let (secret, tokens, now_ms) = (b"secret", None, 0);
    let (plain, scram) = (&plain, &scram);
    let known = KnownUsers { plain, scram, delegation: None, secret, tokens, now_ms };
    for mechanism in Mechanism::ALL {
        let first = ServerExchange::begin(mechanism).step(bytes, known);
        assert!(!matches!(first, Ok(ServerStep::Authenticated { .. })));
        let begun = ServerExchange::begin(mechanism).step(b"n,,n=alice,r=nonce", known);
        if let Ok(ServerStep::Challenge(_, exchange)) = begun {
            assert!(exchange.step(bytes, known).is_err());
        }
        let (user, password) = ("alice".to_owned(), "password".to_owned());
        let login = SaslLogin::by_password(mechanism, user, password);
        if let Ok((_, exchange)) = login.begin() {
            let _ = exchange.step(bytes);
        }
    }
});
