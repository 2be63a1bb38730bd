//! On a listener with SASL a client is nobody until it has logged in, and is answered nothing but
//! its login.

use krust::broker::quotas::{EntityName, QuotaEntity, QuotaLimits};
use krust::broker::{ClientProof, Flow, ListenerLogins, MetadataDelta, OfferedMechanism};
use krust::protocol::create_delegation_token::CreateDelegationTokenRequest;
use krust::protocol::metadata::MetadataRequest;
use krust::protocol::produce::ProduceResponse;
use krust::protocol::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use krust::protocol::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use krust::protocol::{
    api_versions, create_delegation_token, metadata, sasl_authenticate, sasl_handshake,
};
use krust::transport::sasl::{DelegationToken, Mechanism, SaslLogin, ScramCredential, ScramHash};
use krust::wire::Reader;

use crate::double::{Conn, Frame, Made, NOW_MS, TestBroker, frame, raw};
use crate::records::{TOPIC, batch, produce};

const UNSUPPORTED_MECHANISM: i16 = 33;
const ILLEGAL_STATE: i16 = 34;
const FAILED: i16 = 58;
/// `connection.failed.authentication.delay.ms`.
const DELAY_MS: i64 = 100;
/// `connections.max.reauth.ms` of PLAIN.
const LASTS_MS: i64 = 10_000;
const STORED_KEY: &str = "bbe88bb3da86e31a73f27e22045265cdefdf54e8cfda386a4085f1fcd0221524";
const SERVER_KEY: &str = "7a5421e304f8f1ea5e669c170719628487629be044923a77b1400577f202cb22";
const PLAIN: &[u8] = b"\0alice\0secret";

/// A broker whose only listener offers PLAIN and SCRAM-SHA-256.
fn fixture(max_reauth_ms: i64) -> TestBroker {
    let mut fixture = TestBroker::new();
    fixture.topic(TOPIC, Made::default());
    let offered = [Mechanism::Plain, Mechanism::Scram(ScramHash::Sha256)];
    let logins = ListenerLogins {
        offered: offered.map(|mechanism| OfferedMechanism { mechanism, max_reauth_ms }).to_vec(),
        plain_users: [("alice", "secret"), ("bob", "builder")]
            .map(|(user, password)| (user.to_owned(), password.to_owned()))
            .into_iter()
            .collect(),
        tokens: None,
    };
    fixture.broker.set_logins([("PLAINTEXT".into(), logins.into())].into_iter().collect());
    fixture
}

fn handshake(version: i16, mechanism: &str) -> Frame {
    frame(sasl_handshake::KEY, version, |writer, version| {
        SaslHandshakeRequest { mechanism }.encode(writer, version);
    })
}

fn token(bytes: &[u8]) -> Frame {
    frame(sasl_authenticate::KEY, 1, |writer, version| {
        SaslAuthenticateRequest { auth_bytes: bytes }.encode(writer, version);
    })
}

fn metadata() -> Frame {
    frame(metadata::KEY, 1, |writer, version| {
        MetadataRequest { topics: Some(Vec::new()), ..Default::default() }.encode(writer, version);
    })
}

/// The error of a SaslHandshake, and the mechanisms that it names.
fn choose(fixture: &mut TestBroker, conn: &mut Conn, version: i16, name: &str) -> i16 {
    let asked = handshake(version, name);
    let reply = fixture.ask(conn, &asked);
    let response = SaslHandshakeResponse::decode(&mut Reader::new(&reply), version).unwrap();
    response.error_code
}

/// The error, the token and the lifetime of a SaslAuthenticate that is answered at once.
fn authenticate(fixture: &mut TestBroker, conn: &mut Conn, bytes: &[u8]) -> (i16, Vec<u8>, i64) {
    let reply = fixture.ask(conn, &token(bytes));
    let response = SaslAuthenticateResponse::decode(&mut Reader::new(&reply), 1).unwrap();
    (response.error_code, response.auth_bytes.to_vec(), response.session_lifetime_ms)
}

/// Logs in as alice.
fn logged_in(fixture: &mut TestBroker) -> Conn {
    let mut conn = fixture.connect();
    assert_eq!(choose(fixture, &mut conn, 1, "PLAIN"), 0);
    assert_eq!(authenticate(fixture, &mut conn, PLAIN).0, 0);
    conn
}

fn is_served(fixture: &mut TestBroker, conn: &mut Conn) -> bool {
    fixture.event(conn, &[metadata().bytes]);
    let is_served = conn.flow == Flow::Go && !conn.sent.is_empty();
    conn.sent.clear();
    is_served
}

#[test]
fn nothing_is_answered_before_the_login_but_the_versions_of_apis() {
    let mut fixture = fixture(0);
    let mut conn = fixture.connect();
    let versions = raw(api_versions::KEY, 0, b"");
    assert!(!fixture.ask(&mut conn, &versions).is_empty());
    assert!(!is_served(&mut fixture, &mut conn));
    assert_eq!(conn.flow, Flow::Close);

    for key in 0..100 {
        let mut conn = fixture.connect();
        if [api_versions::KEY, sasl_handshake::KEY].contains(&key) {
            continue;
        }
        fixture.event(&mut conn, &[raw(key, 0, b"\0\0\0\0\0\0\0\0\0\0\0\0").bytes]);
        assert!(conn.flow == Flow::Close, "API {key} before a login");
    }
}

#[test]
fn a_client_that_has_logged_in_is_served() {
    let mut fixture = fixture(0);
    let mut conn = logged_in(&mut fixture);
    assert!(is_served(&mut fixture, &mut conn));
    assert_eq!(choose(&mut fixture, &mut conn, 1, "PLAIN"), ILLEGAL_STATE);
    assert_eq!(authenticate(&mut fixture, &mut conn, PLAIN).0, ILLEGAL_STATE);
    assert!(is_served(&mut fixture, &mut conn));
}

#[test]
fn a_request_in_the_middle_of_a_login_ends_the_connection() {
    for asked in [metadata(), handshake(1, "PLAIN")] {
        let mut fixture = fixture(0);
        let mut conn = fixture.connect();
        assert_eq!(choose(&mut fixture, &mut conn, 1, "PLAIN"), 0);
        fixture.event(&mut conn, &[asked.bytes]);
        assert_eq!(conn.flow, Flow::Close);
    }
}

#[test]
fn a_login_without_a_mechanism_is_refused() {
    let mut fixture = fixture(0);
    let mut conn = fixture.connect();
    assert_eq!(authenticate(&mut fixture, &mut conn, PLAIN).0, ILLEGAL_STATE);
    assert_eq!(conn.flow, Flow::Close);
}

#[test]
fn a_login_that_fails_is_answered_late_and_ends_the_connection() {
    for bad in [&b"\0alice\0wrong"[..], b"\0eve\0secret", b"bob\0alice\0secret", b"?", b""] {
        let mut fixture = fixture(0);
        let mut conn = fixture.connect();
        assert_eq!(choose(&mut fixture, &mut conn, 1, "PLAIN"), 0);
        // What the client sends after it waits too.
        fixture.event(&mut conn, &[token(bad).bytes, metadata().bytes]);
        fixture.clock.advance(DELAY_MS - 1);
        fixture.turn(&mut [&mut conn]);
        assert!(conn.sent.is_empty() && conn.is_waiting(), "{bad:?} is answered at once");
        fixture.clock.advance(1);
        fixture.turn(&mut [&mut conn]);
        let reply = conn.reply(&token(bad));
        let response = SaslAuthenticateResponse::decode(&mut Reader::new(&reply), 1).unwrap();
        assert_eq!((response.error_code, conn.flow), (FAILED, Flow::Close));
        assert_eq!(fixture.broker.failed_logins(), 1);
    }
}

#[test]
fn a_mechanism_that_is_not_offered_is_answered_with_those_that_are() {
    for name in ["GSSAPI", "SCRAM-SHA-512", "plain", ""] {
        let mut fixture = fixture(0);
        let mut conn = fixture.connect();
        fixture.event(&mut conn, &[handshake(1, name).bytes]);
        fixture.clock.advance(DELAY_MS);
        fixture.turn(&mut [&mut conn]);
        let reply = conn.reply(&handshake(1, name));
        let response = SaslHandshakeResponse::decode(&mut Reader::new(&reply), 1).unwrap();
        assert_eq!(response.error_code, UNSUPPORTED_MECHANISM);
        assert_eq!(response.mechanisms, ["PLAIN", "SCRAM-SHA-256"]);
        assert_eq!(conn.flow, Flow::Close);
    }
}

#[test]
fn after_version_0_the_tokens_are_frames_of_their_own() {
    let mut fixture = fixture(0);
    let mut conn = fixture.connect();
    assert_eq!(choose(&mut fixture, &mut conn, 0, "PLAIN"), 0);
    fixture.event(&mut conn, &[PLAIN.to_vec()]);
    assert_eq!(std::mem::take(&mut conn.sent), [0; 4], "an empty token");
    assert!(is_served(&mut fixture, &mut conn));

    let mut conn = fixture.connect();
    assert_eq!(choose(&mut fixture, &mut conn, 0, "PLAIN"), 0);
    fixture.event(&mut conn, &[b"\0alice\0wrong".to_vec()]);
    fixture.clock.advance(DELAY_MS);
    fixture.turn(&mut [&mut conn]);
    assert!(conn.sent.is_empty() && conn.flow == Flow::Close);
}

#[test]
fn a_user_of_scram_logs_in_as_soon_as_the_image_has_it() {
    let hash = ScramHash::Sha256;
    let mut fixture = fixture(0);
    let mechanism = Mechanism::Scram(hash);
    let login = SaslLogin::by_password(mechanism, "carl".to_owned(), "pencil".to_owned());
    // The keys of the password with this salt, as hashlib makes them.
    let credential = ScramCredential {
        salt: b"salt".to_vec(),
        stored_key: from_hex(STORED_KEY),
        server_key: from_hex(SERVER_KEY),
        iterations: 4096,
    };
    for known in [false, true] {
        if known {
            let users = [("carl".to_owned(), hash, credential.clone())].into_iter().collect();
            fixture.apply(MetadataDelta { scram: Some(users), ..MetadataDelta::default() });
        }
        let mut conn = fixture.connect();
        assert_eq!(choose(&mut fixture, &mut conn, 1, "SCRAM-SHA-256"), 0);
        let (first, exchange) = login.begin().unwrap();
        let (code, answer, _) = authenticate(&mut fixture, &mut conn, &first);
        assert_eq!(code, 0, "an unknown user is not told so at once");
        let (last, exchange) = exchange.step(&answer).unwrap();
        fixture.event(&mut conn, &[token(&last.unwrap()).bytes]);
        fixture.clock.advance(DELAY_MS);
        fixture.turn(&mut [&mut conn]);
        let reply = conn.reply(&token(b""));
        let response = SaslAuthenticateResponse::decode(&mut Reader::new(&reply), 1).unwrap();
        assert_eq!(response.error_code, if known { 0 } else { FAILED });
        assert_eq!(exchange.step(response.auth_bytes).is_ok(), known);
        assert_eq!(conn.flow == Flow::Go && is_served(&mut fixture, &mut conn), known);
    }
}

/// Has the broker know the delegation token `t` of alice, until a time; `None`: no more.
fn set_token(fixture: &mut TestBroker, ends_ms: Option<i64>) {
    let token = |ends_ms| DelegationToken::new("alice".to_owned(), b"hmac", ends_ms);
    let tokens = vec![("t".to_owned(), ends_ms.map(token))];
    fixture.apply(MetadataDelta { tokens, ..MetadataDelta::default() });
}

/// Logs in by the token: for how long; `None`: it is refused, like an unknown user.
fn log_in_by_token(fixture: &mut TestBroker, conn: &mut Conn) -> Option<i64> {
    let hmac = "aG1hYw==".to_owned();
    let login = SaslLogin::by_delegation_token(ScramHash::Sha256, "t".to_owned(), hmac);
    assert_eq!(choose(fixture, conn, 1, "SCRAM-SHA-256"), 0);
    let (first, exchange) = login.begin().unwrap();
    let (code, answer, _) = authenticate(fixture, conn, &first);
    assert_eq!(code, 0);
    let (last, _) = exchange.step(&answer).unwrap();
    fixture.event(conn, &[token(&last.unwrap()).bytes]);
    if conn.sent.is_empty() {
        fixture.clock.advance(DELAY_MS);
        fixture.turn(&mut [&mut *conn]);
    }
    let reply = conn.reply(&token(b""));
    let response = SaslAuthenticateResponse::decode(&mut Reader::new(&reply), 1).unwrap();
    assert!([0, FAILED].contains(&response.error_code));
    (response.error_code == 0).then_some(response.session_lifetime_ms)
}

#[test]
fn a_login_by_token_is_its_owners_and_ends_with_the_token() {
    let mut fixture = fixture(0);
    let mut conn = fixture.connect();
    assert_eq!(log_in_by_token(&mut fixture, &mut conn), None);
    let ends_ms = NOW_MS + LASTS_MS;
    set_token(&mut fixture, Some(ends_ms));
    let mut conn = fixture.connect();
    let lasts_ms = log_in_by_token(&mut fixture, &mut conn).unwrap();
    assert!((1..=LASTS_MS).contains(&lasts_ms));
    fixture.clock.advance(lasts_ms - 1);
    assert!(is_served(&mut fixture, &mut conn));
    set_token(&mut fixture, Some(ends_ms + 50));
    assert_eq!(log_in_by_token(&mut fixture, &mut conn), Some(51), "it was renewed");
    fixture.clock.advance(50);
    assert!(is_served(&mut fixture, &mut conn));
    fixture.clock.advance(1);
    assert!(!is_served(&mut fixture, &mut conn));
    let mut conn = fixture.connect();
    assert_eq!(log_in_by_token(&mut fixture, &mut conn), None, "it has expired");
    set_token(&mut fixture, Some(i64::MAX));
    let mut conn = fixture.connect();
    assert!(log_in_by_token(&mut fixture, &mut conn).is_some());
    set_token(&mut fixture, None);
    assert!(is_served(&mut fixture, &mut conn), "a connection that is open stays open");
    let mut conn = fixture.connect();
    assert_eq!(log_in_by_token(&mut fixture, &mut conn), None, "it is gone");
}

#[test]
fn the_policy_hears_how_a_client_proved_who_it_is() {
    let asked = frame(create_delegation_token::KEY, 3, |writer, version| {
        CreateDelegationTokenRequest::default().encode(writer, version);
    });
    let proof = |fixture: &mut TestBroker, conn: &mut Conn| {
        fixture.event(conn, std::slice::from_ref(&asked.bytes));
        let client = fixture.events().remove(0).client;
        (client.user.to_string(), client.proof)
    };
    let mut fixture = fixture(0);
    set_token(&mut fixture, Some(i64::MAX));
    let mut conn = logged_in(&mut fixture);
    assert_eq!(proof(&mut fixture, &mut conn), ("alice".to_owned(), ClientProof::Login));
    let mut conn = fixture.connect();
    assert!(log_in_by_token(&mut fixture, &mut conn).is_some());
    assert_eq!(proof(&mut fixture, &mut conn), ("alice".to_owned(), ClientProof::Token));
    let mut fixture = TestBroker::new();
    let mut conn = fixture.connect();
    assert_eq!(proof(&mut fixture, &mut conn), ("ANONYMOUS".to_owned(), ClientProof::Nothing));
}

#[test]
fn a_login_ends_and_the_same_user_may_log_in_again() {
    let mut fixture = fixture(LASTS_MS);
    let mut conn = fixture.connect();
    assert_eq!(choose(&mut fixture, &mut conn, 1, "PLAIN"), 0);
    assert_eq!(authenticate(&mut fixture, &mut conn, PLAIN).2, LASTS_MS);
    fixture.clock.advance(LASTS_MS - 1);
    assert!(is_served(&mut fixture, &mut conn));
    assert_eq!(choose(&mut fixture, &mut conn, 1, "PLAIN"), 0);
    assert_eq!(authenticate(&mut fixture, &mut conn, PLAIN), (0, Vec::new(), LASTS_MS));
    fixture.clock.advance(LASTS_MS - 1);
    assert!(is_served(&mut fixture, &mut conn));
    fixture.clock.advance(1);
    assert!(!is_served(&mut fixture, &mut conn), "its login has ended");
}

#[test]
fn a_connection_is_not_taken_over_by_another_user_or_mechanism() {
    let mut fixture = fixture(LASTS_MS);
    let mut conn = logged_in(&mut fixture);
    assert_eq!(choose(&mut fixture, &mut conn, 1, "PLAIN"), 0);
    fixture.event(&mut conn, &[token(b"\0bob\0builder").bytes]);
    fixture.clock.advance(DELAY_MS);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(conn.flow, Flow::Close);

    let mut conn = logged_in(&mut fixture);
    fixture.event(&mut conn, &[handshake(1, "SCRAM-SHA-256").bytes]);
    fixture.clock.advance(DELAY_MS);
    fixture.turn(&mut [&mut conn]);
    assert_eq!(conn.flow, Flow::Close);
}

#[test]
fn a_user_has_the_quotas_of_its_name() {
    let mut fixture = fixture(0);
    let owner =
        QuotaEntity { user: Some(EntityName::Is("alice".into())), ..QuotaEntity::default() };
    let limits = QuotaLimits { producer_byte_rate: Some(1.0), ..QuotaLimits::default() };
    fixture
        .apply(MetadataDelta { quotas: Some(vec![(owner, limits)]), ..MetadataDelta::default() });
    for (login, is_limited) in [(PLAIN, true), (b"\0bob\0builder", false)] {
        let mut conn = fixture.connect();
        assert_eq!(choose(&mut fixture, &mut conn, 1, "PLAIN"), 0);
        assert_eq!(authenticate(&mut fixture, &mut conn, login).0, 0);
        let asked = produce(7, 1, &batch(&["a record of some bytes"]));
        let reply = fixture.ask(&mut conn, &asked);
        let response = ProduceResponse::decode(&mut Reader::new(&reply), 7).unwrap();
        assert_eq!(response.throttle_time_ms > 0, is_limited);
    }
}

#[test]
fn a_connection_counts_as_unknown_until_it_has_logged_in() {
    let mut fixture = fixture(0);
    let mut conn = fixture.connect();
    assert!(!conn.is_authenticated(&fixture.broker));
    assert_eq!(choose(&mut fixture, &mut conn, 1, "PLAIN"), 0);
    assert!(!conn.is_authenticated(&fixture.broker));
    assert_eq!(authenticate(&mut fixture, &mut conn, PLAIN).0, 0);
    assert!(conn.is_authenticated(&fixture.broker));
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}
