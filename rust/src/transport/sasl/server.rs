//! A broker's side of one login.

use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::bearer::{self, BearerMessage};
use super::delegation::DelegationTokens;
use super::plain::PlainMessage;
use super::scram::{self, ClientFinal, ClientFirst, ScramHash, ServerFirst};
use super::tokens::{TokenError, TokenRules};
use super::users::{PlainUsers, ScramCredential, ScramUsers};
use super::{Mechanism, SaslError};

/// The login of one connection, between its tokens.
#[derive(Debug)]
pub enum ServerExchange {
    /// PLAIN: the token has not come yet.
    Plain,
    /// SCRAM: the first message has not come yet.
    Scram(ScramHash),
    /// SCRAM: the last message has not come yet.
    ScramChallenged(Box<Challenge>),
    /// OAUTHBEARER: the token has not come yet.
    Bearer,
    /// OAUTHBEARER: the token is refused, and the client has to answer that.
    BearerRefused(TokenError),
}

/// What a broker remembers between the two messages of a SCRAM client.
#[derive(Debug)]
pub struct Challenge {
    hash: ScramHash,
    user: String,
    credential: Arc<ScramCredential>,
    is_known: bool,
    /// Of a login by delegation token: when the token expires.
    expires_ms: Option<i64>,
    header: String,
    /// The client's nonce and the broker's.
    nonce: String,
    /// The client's first message without its header, and the broker's.
    said: String,
}

/// The result of one token.
#[derive(Debug)]
pub enum ServerStep {
    /// The client must answer this token.
    Challenge(Vec<u8>, ServerExchange),
    /// The client is this user; it gets a last token.
    Authenticated {
        /// The name.
        user: String,
        /// The last token.
        token: Vec<u8>,
        /// When its token ends, in milliseconds since 1970; `None`: it has none that does.
        ends_ms: Option<i64>,
        /// Whether that is a delegation token.
        is_delegated: bool,
    },
}

/// What a login is checked against.
#[derive(Clone, Copy, Debug)]
pub struct KnownUsers<'a> {
    /// The users of the listener that log in by PLAIN.
    pub plain: &'a PlainUsers,
    /// The users that log in by SCRAM.
    pub scram: &'a ScramUsers,
    /// The delegation tokens; `None`: there are none.
    pub delegation: Option<&'a DelegationTokens>,
    /// Random bytes, the same as long as the broker runs.
    pub secret: &'a [u8],
    /// Which tokens of OAUTHBEARER the listener accepts; `None`: none.
    pub tokens: Option<&'a TokenRules>,
    /// Milliseconds since 1970.
    pub now_ms: i64,
}

impl ServerExchange {
    /// A new login.
    pub fn begin(mechanism: Mechanism) -> Self {
        match mechanism {
            Mechanism::Plain => Self::Plain,
            Mechanism::Scram(hash) => Self::Scram(hash),
            Mechanism::OauthBearer => Self::Bearer,
        }
    }

    /// Takes the client's next token.
    pub fn step(self, token: &[u8], users: KnownUsers<'_>) -> Result<ServerStep, SaslError> {
        match self {
            Self::Plain => {
                let PlainMessage { authorization_id, user, password } = PlainMessage::read(token)?;
                if !users.plain.is_password(user, password) {
                    return Err(SaslError::Credentials);
                }
                if !authorization_id.is_empty() && authorization_id != user {
                    return Err(SaslError::AuthorizationId);
                }
                Ok(ServerStep::Authenticated {
                    user: user.to_owned(),
                    token: Vec::new(),
                    ends_ms: None,
                    is_delegated: false,
                })
            }
            Self::Scram(hash) => challenge(hash, token, users),
            Self::ScramChallenged(challenge) => challenge.check(token, users.now_ms),
            Self::Bearer => check_bearer(token, users),
            Self::BearerRefused(error) => Err(SaslError::Token(error)),
        }
    }
}

fn check_bearer(message: &[u8], users: KnownUsers<'_>) -> Result<ServerStep, SaslError> {
    let BearerMessage { authorization_id, token } = BearerMessage::read(message)?;
    let rules = users.tokens.ok_or(SaslError::Credentials)?;
    match rules.check(token, users.now_ms) {
        Ok(accepted) if authorization_id.is_some_and(|id| id != accepted.user) => {
            Err(SaslError::AuthorizationId)
        }
        Ok(accepted) => Ok(ServerStep::Authenticated {
            user: accepted.user,
            token: Vec::new(),
            ends_ms: Some(accepted.ends_ms),
            is_delegated: false,
        }),
        Err(error) => Ok(ServerStep::Challenge(
            bearer::TOKEN_REFUSED.as_bytes().to_vec(),
            ServerExchange::BearerRefused(error),
        )),
    }
}

fn challenge(
    hash: ScramHash,
    token: &[u8],
    users: KnownUsers<'_>,
) -> Result<ServerStep, SaslError> {
    let first = ClientFirst::read(token)?;
    if first.authorization_id.is_some_and(|id| id != first.user) {
        return Err(SaslError::AuthorizationId);
    }
    let own = scram::nonce();
    if own.is_empty() {
        return Err(SaslError::Malformed("the system has no random bytes"));
    }
    let nonce = format!("{}{own}", first.nonce);
    let known = match first.is_token {
        true => KnownCredential::of_token(&first.user, hash, users),
        false => KnownCredential::of_user(first.user, hash, users),
    };
    let KnownCredential { user, credential, is_known, expires_ms } = known;
    let salt = credential.salt.clone();
    let answer = ServerFirst { nonce: &nonce, salt, iterations: credential.iterations }.write();
    let said = format!("{},{answer}", first.bare);
    let header = first.header.to_owned();
    let challenge = Challenge { hash, user, credential, is_known, expires_ms, header, nonce, said };
    Ok(ServerStep::Challenge(
        answer.into_bytes(),
        ServerExchange::ScramChallenged(Box::new(challenge)),
    ))
}

/// What a login by SCRAM has to prove, and as whom it then logs in.
struct KnownCredential {
    user: String,
    credential: Arc<ScramCredential>,
    /// Whether there is such a user or token.
    is_known: bool,
    expires_ms: Option<i64>,
}

impl KnownCredential {
    fn of_user(user: String, hash: ScramHash, users: KnownUsers<'_>) -> Self {
        let (credential, is_known) = users.scram.find(&user, hash, users.secret);
        Self { user, credential, is_known, expires_ms: None }
    }

    /// A delegation token; the client is its owner.
    fn of_token(id: &str, hash: ScramHash, users: KnownUsers<'_>) -> Self {
        let none = DelegationTokens::default();
        let tokens = users.delegation.unwrap_or(&none);
        let (credential, token) = tokens.find(id, hash, (users.secret, users.now_ms));
        let user = token.map(|token| token.owner.clone()).unwrap_or_default();
        let expires_ms = token.map_or(users.now_ms, |token| token.ends_ms);
        Self { user, credential, is_known: token.is_some(), expires_ms: Some(expires_ms) }
    }
}

impl Challenge {
    fn check(self, token: &[u8], now_ms: i64) -> Result<ServerStep, SaslError> {
        let last = ClientFinal::read(token)?;
        if last.nonce != self.nonce {
            return Err(SaslError::Malformed("the nonce is another login's"));
        }
        if last.header != self.header.as_bytes() {
            return Err(SaslError::Malformed("the header is not that of the first message"));
        }
        let Self { hash, credential, .. } = &self;
        let said = format!("{},{}", self.said, last.without_proof);
        let signature = hash.hmac(&credential.stored_key, said.as_bytes());
        let key = hash.hash(&scram::xor(&last.proof, &signature));
        let is_right =
            last.proof.len() == hash.bytes() && bool::from(key.ct_eq(&credential.stored_key));
        let is_over = self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms);
        if !(is_right & self.is_known & !is_over) {
            return Err(SaslError::Credentials);
        }
        let signature = hash.hmac(&credential.server_key, said.as_bytes());
        let token = scram::server_final(&signature).into_bytes();
        let is_delegated = self.expires_ms.is_some();
        Ok(ServerStep::Authenticated {
            user: self.user,
            token,
            ends_ms: self.expires_ms,
            is_delegated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::sasl::{
        BearerToken, ClientExchange, DelegationToken, SaslLogin, TokenSource,
    };
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    const HASHES: [ScramHash; 2] = [ScramHash::Sha256, ScramHash::Sha512];

    fn credential(hash: ScramHash, password: &str) -> ScramCredential {
        ScramCredential::of_password(hash, password.as_bytes(), (b"some salt".to_vec(), 4096))
    }

    fn users() -> (PlainUsers, ScramUsers) {
        let plain = [("alice".to_owned(), "secret".to_owned())].into_iter().collect();
        let scram = HASHES.map(|hash| ("alice".to_owned(), hash, credential(hash, "secret")));
        (plain, scram.into_iter().collect())
    }

    fn known<'a>(plain: &'a PlainUsers, scram: &'a ScramUsers) -> KnownUsers<'a> {
        KnownUsers { plain, scram, delegation: None, secret: b"s", tokens: None, now_ms: 0 }
    }

    /// The mechanisms that ask for a password.
    fn by_password() -> impl Iterator<Item = Mechanism> {
        Mechanism::ALL.into_iter().filter(|it| *it != Mechanism::OauthBearer)
    }

    /// Both sides of a login.
    fn log_in(mechanism: Mechanism, user: &str, password: &str) -> Result<String, SaslError> {
        let (plain, scram) = users();
        let known = known(&plain, &scram);
        let login = SaslLogin::by_password(mechanism, user.to_owned(), password.to_owned());
        let (mut token, mut client) = login.begin()?;
        let mut server = ServerExchange::begin(mechanism);
        loop {
            match server.step(&token, known)? {
                ServerStep::Challenge(answer, next) => {
                    server = next;
                    let (next, state) = client.step(&answer)?;
                    (token, client) = (next.unwrap_or_default(), state);
                }
                ServerStep::Authenticated { user, token, .. } => {
                    assert!(client.step(&token)?.1.is_done());
                    return Ok(user);
                }
            }
        }
    }

    #[test]
    fn each_mechanism_lets_in_the_right_password_alone() {
        for mechanism in by_password() {
            assert_eq!(log_in(mechanism, "alice", "secret").as_deref(), Ok("alice"));
            for (user, password) in [("alice", "Secret"), ("bob", "secret"), ("alic", "esecret")] {
                let refused = log_in(mechanism, user, password);
                assert_eq!(refused, Err(SaslError::Credentials), "{} {user}", mechanism.name());
            }
        }
    }

    #[test]
    fn nobody_logs_in_for_somebody_else() {
        let (plain, scram) = users();
        let known = known(&plain, &scram);
        let refused = |mechanism, token: &[u8]| {
            ServerExchange::begin(mechanism).step(token, known).unwrap_err()
        };
        assert_eq!(refused(Mechanism::Plain, b"admin\0alice\0secret"), SaslError::AuthorizationId);
        for hash in HASHES {
            let token = b"n,a=admin,n=alice,r=x";
            assert_eq!(refused(Mechanism::Scram(hash), token), SaslError::AuthorizationId);
        }
    }

    #[test]
    fn a_last_message_of_scram_answers_its_own_challenge_alone() {
        let (plain, scram) = users();
        let known = known(&plain, &scram);
        let mechanism = Mechanism::Scram(ScramHash::Sha256);
        let login = SaslLogin::by_password(mechanism, "alice".to_owned(), "secret".to_owned());
        let (first, client) = login.begin().unwrap();
        let challenge = |first: &[u8]| {
            let begun = ServerExchange::begin(mechanism).step(first, known).unwrap();
            let ServerStep::Challenge(answer, next) = begun else { panic!("no challenge") };
            (answer, next)
        };
        let (answer, server) = challenge(&first);
        let (_, replayed) = challenge(&first);
        let last = client.step(&answer).unwrap().0.unwrap();
        assert!(replayed.step(&last, known).is_err(), "replayed");

        let text = String::from_utf8(last.clone()).unwrap();
        let mut spoilt: Vec<String> = vec![
            text.replacen("c=biws", "c=eSws", 1),
            text.replacen("c=biws,", "", 1),
            text.replacen("r=", "r=x", 1),
            text.replacen(",p=", "x,p=", 1),
            text.replacen(",r=", ",x=,r=", 1),
            text.rsplit_once(",p=").unwrap().0.to_owned(),
        ];
        spoilt.extend((1..text.len()).map(|end| text[..end].to_owned()));
        for bad in spoilt {
            let (answer, server) = challenge(&first);
            let theirs = String::from_utf8(answer).unwrap();
            let nonce =
                |text: &str| text.split(',').find_map(|p| p.strip_prefix("r=").map(str::to_owned));
            let bad = match (nonce(&text), nonce(&theirs)) {
                (Some(old), Some(new)) => bad.replace(&old, &new),
                _ => bad,
            };
            assert!(server.step(bad.as_bytes(), known).is_err(), "{bad}");
        }
        assert!(matches!(
            server.step(&last, known),
            Ok(ServerStep::Authenticated { user, .. }) if user == "alice"
        ));
    }

    /// Changes the header and the nonce of a last message.
    type Change<'a> = &'a dyn Fn(&str, &str) -> (String, String);

    /// The broker's signature check alone would let these in: they are signed as they are.
    #[test]
    fn cve_2024_56128_a_nonce_or_header_that_is_signed_but_another_is_refused() {
        let (plain, scram) = users();
        let known = known(&plain, &scram);
        for hash in HASHES {
            let answer = |change: Change<'_>| {
                let first = "n=alice,r=mine";
                let begun = ServerExchange::begin(Mechanism::Scram(hash))
                    .step(format!("n,,{first}").as_bytes(), known)
                    .unwrap();
                let ServerStep::Challenge(challenge, server) = begun else {
                    panic!("no challenge")
                };
                let challenge = String::from_utf8(challenge).unwrap();
                let asked = ServerFirst::read(challenge.as_bytes(), "mine").unwrap();
                let (header, nonce) = change("n,,", asked.nonce);
                let unsigned = ClientFinal::without_proof(&header, &nonce);
                let salted = hash.salted_password(b"secret", &asked.salt, asked.iterations);
                let key = hash.client_key(&salted);
                let said = format!("{first},{challenge},{unsigned}");
                let signature = hash.hmac(&hash.hash(&key), said.as_bytes());
                let last = ClientFinal::write(&unsigned, &scram::xor(&key, &signature));
                server.step(last.as_bytes(), known)
            };
            let own = |header: &str, nonce: &str| (header.to_owned(), nonce.to_owned());
            assert!(matches!(answer(&own), Ok(ServerStep::Authenticated { .. })));
            let wrong: [Change<'_>; 6] = [
                &|header, _| own(header, "mine"),
                &|header, nonce| own(header, nonce.strip_prefix("mine").unwrap()),
                &|header, nonce| own(header, &format!("{nonce}x")),
                &|header, nonce| own(header, nonce.get(..nonce.len() - 1).unwrap()),
                &|_, nonce| own("y,,", nonce),
                &|_, nonce| own("n,a=bob,", nonce),
            ];
            for (nth, change) in wrong.into_iter().enumerate() {
                assert!(matches!(answer(change), Err(SaslError::Malformed(_))), "{nth}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_refused(token in ".{0,80}", raw: Vec<u8>, nth in 0..Mechanism::ALL.len()) {
            let (plain, scram) = users();
            let known = known(&plain, &scram);
            let mechanism = Mechanism::ALL[nth];
            for bytes in [token.as_bytes(), &raw] {
                let step = ServerExchange::begin(mechanism).step(bytes, known);
                let passed = matches!(step, Ok(ServerStep::Authenticated { .. }));
                proptest::prop_assert!(!passed);
                let begun = ServerExchange::begin(mechanism).step(b"n,,n=alice,r=x", known);
                if let Ok(ServerStep::Challenge(_, next)) = begun {
                    proptest::prop_assert!(next.step(bytes, known).is_err());
                }
            }
        }
    }

    /// A login at these times by the token `t` of alice, whose HMAC is `hmac` and which ends at 10.
    fn log_in_by_token(
        hash: ScramHash,
        (id, hmac): (&str, &[u8]),
        now_ms: [i64; 2],
    ) -> Result<(String, Option<i64>, bool), SaslError> {
        let (plain, scram) = users();
        let token = DelegationToken::new("alice".to_owned(), b"hmac", 10);
        let tokens = DelegationTokens::default().changed([("t".to_owned(), Some(token))]);
        let [first_ms, last_ms] = now_ms;
        let at = |now_ms| KnownUsers { delegation: Some(&tokens), now_ms, ..known(&plain, &scram) };
        let login =
            SaslLogin::by_delegation_token(hash, id.to_owned(), BASE64_STANDARD.encode(hmac));
        let (first, client) = login.begin()?;
        let begun = ServerExchange::begin(Mechanism::Scram(hash)).step(&first, at(first_ms))?;
        let ServerStep::Challenge(answer, server) = begun else { panic!("no challenge") };
        let (last, client) = client.step(&answer)?;
        match server.step(&last.unwrap(), at(last_ms))? {
            ServerStep::Authenticated { user, token, ends_ms, is_delegated } => {
                assert!(client.step(&token)?.1.is_done());
                Ok((user, ends_ms, is_delegated))
            }
            ServerStep::Challenge(..) => panic!("another challenge"),
        }
    }

    #[test]
    fn a_delegation_token_lets_in_as_its_owner_until_it_expires() {
        for hash in HASHES {
            let found = log_in_by_token(hash, ("t", b"hmac"), [9, 9]);
            assert_eq!(found, Ok(("alice".to_owned(), Some(10), true)));
            let wrong: [(&str, &[u8], [i64; 2]); 5] = [
                ("t", b"hmac", [10, 10]),
                ("t", b"hmac", [9, 10]),
                ("t", b"another", [9, 9]),
                ("alice", b"hmac", [9, 9]),
                ("", b"", [9, 9]),
            ];
            for (id, hmac, now_ms) in wrong {
                let refused = log_in_by_token(hash, (id, hmac), now_ms);
                assert!(refused.is_err(), "{id} {now_ms:?}");
            }
            let secret = BASE64_STANDARD.encode(b"hmac");
            assert_eq!(
                log_in(Mechanism::Scram(hash), "t", &secret),
                Err(SaslError::Credentials),
                "a token is no user"
            );
        }
    }

    #[test]
    fn a_user_does_not_log_in_as_a_token() {
        for hash in HASHES {
            let refused = log_in_by_token(hash, ("alice", b"secret"), [9, 9]);
            assert_eq!(refused, Err(SaslError::Credentials));
        }
    }

    #[derive(Debug)]
    struct Fixed(&'static str);

    impl TokenSource for Fixed {
        fn token(&self) -> Result<BearerToken, String> {
            Ok(BearerToken { text: self.0.to_owned(), extensions: Vec::new() })
        }
    }

    #[test]
    fn a_refused_token_is_answered_by_one_byte_and_then_the_login_has_failed() {
        let (plain, scram, rules) =
            (PlainUsers::default(), ScramUsers::default(), TokenRules::default());
        let known = KnownUsers { tokens: Some(&rules), ..known(&plain, &scram) };
        let (message, client) = SaslLogin::by_tokens(Arc::new(Fixed("a.b.c"))).begin().unwrap();
        let step = ServerExchange::begin(Mechanism::OauthBearer).step(&message, known).unwrap();
        let ServerStep::Challenge(answer, server) = step else { panic!("no challenge") };
        assert_eq!(answer, br#"{"status":"invalid_token"}"#);
        let (last, client) = client.step(&answer).unwrap();
        assert_eq!(last.as_deref(), Some(&b"\x01"[..]));
        assert_eq!(server.step(b"\x01", known).unwrap_err(), SaslError::Token(TokenError::Form));
        assert!(client.step(b"").is_err(), "a broker that changes its mind is not believed");
    }

    #[test]
    fn a_listener_without_rules_accepts_no_token() {
        let (plain, scram) = (PlainUsers::default(), ScramUsers::default());
        let message = b"n,,\x01auth=Bearer a.b.c\x01\x01";
        let step =
            ServerExchange::begin(Mechanism::OauthBearer).step(message, known(&plain, &scram));
        assert_eq!(step.unwrap_err(), SaslError::Credentials);
    }

    #[test]
    fn the_example_of_rfc_7677_holds() {
        let hash = ScramHash::Sha256;
        let nonce = "rOprNGfwEbeRWgbNEkqO";
        let login =
            SaslLogin::by_password(Mechanism::Scram(hash), "user".to_owned(), "pencil".to_owned());
        let client = ClientExchange::with_nonce(&login, hash, nonce);
        let answer = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (last, client) = client.step(answer.as_bytes()).unwrap();
        assert_eq!(
            String::from_utf8(last.unwrap()).unwrap(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        let proof = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert!(client.step(proof).unwrap().1.is_done());
    }

    #[test]
    fn a_broker_that_does_not_know_the_password_is_found_out() {
        let hash = ScramHash::Sha512;
        let login =
            SaslLogin::by_password(Mechanism::Scram(hash), "user".to_owned(), "pencil".to_owned());
        let client = ClientExchange::with_nonce(&login, hash, "mine");
        let (_, client) = client.step(b"r=mineyours,s=AAAA,i=4096").unwrap();
        assert!(client.step(b"v=AAAA").is_err());
    }
}
