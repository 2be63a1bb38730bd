//! OAUTHBEARER (RFC 7628): one message, `n,[a=authorization id],` ^A `auth=Bearer TOKEN` ^A,
//! further `key=value` ^A (KIP-342's extensions), ^A. A broker that refuses the token says why in
//! JSON; the client answers with one ^A, and the login has failed.

use super::{SaslError, scram};

/// What ends each part of a message; alone, a client's answer to a refusal.
pub(super) const END: u8 = 1;

/// What a broker says of every token that it refuses, so that a client learns no more.
pub const TOKEN_REFUSED: &str = r#"{"status":"invalid_token"}"#;

/// The parts of a client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BearerMessage<'a> {
    /// Who the client wants to act for; `None`: the token's user.
    pub(super) authorization_id: Option<String>,
    pub(super) token: &'a str,
}

impl<'a> BearerMessage<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, SaslError> {
        let text = str::from_utf8(message).ok().filter(|text| text.is_ascii());
        let (header, parts) = text
            .and_then(|text| text.strip_suffix("\x01\x01"))
            .and_then(|text| text.split_once('\x01'))
            .ok_or(SaslError::Malformed("the message has no parts that end with 0x01"))?;
        let authorization_id = header
            .strip_prefix("n,")
            .and_then(|rest| rest.strip_suffix(','))
            .and_then(authorization_id)
            .ok_or(SaslError::Malformed("the message does not begin with n,,"))?;
        let mut token = None;
        for part in parts.split('\x01') {
            let (key, value) = part
                .split_once('=')
                .filter(|(key, value)| is_key(key) && is_value(value))
                .ok_or(SaslError::Malformed("a part of the message is not key=value"))?;
            if key == "auth" && token.replace(value).is_some() {
                return Err(SaslError::Malformed("the message has two tokens"));
            }
        }
        let token =
            token.and_then(bearer).ok_or(SaslError::Malformed("there is no Bearer token"))?;
        Ok(Self { authorization_id, token })
    }
}

/// The message of a client that logs in by a token. It acts for the token's user.
pub(super) fn write(token: &str, extensions: &[(String, String)]) -> Result<Vec<u8>, SaslError> {
    if !is_token(token) {
        return Err(SaslError::Malformed("the token has characters that no token has"));
    }
    let mut message = format!("n,,\x01auth=Bearer {token}\x01");
    for (key, value) in extensions {
        if key == "auth" || !is_key(key) || !is_value(value) {
            return Err(SaslError::Malformed(
                "an extension's key is not of letters, or its value not of printable characters",
            ));
        }
        message.push_str(&format!("{key}={value}\x01"));
    }
    message.push('\x01');
    Ok(message.into_bytes())
}

/// The authorization id of a header: `` or `a=NAME`. `None`: it is none.
fn authorization_id(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let name = text.strip_prefix("a=").filter(|name| !name.is_empty() && !name.contains(','))?;
    scram::unquoted(name).map(Some)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_start_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token(token)).then_some(token)
}

/// Whether a text may be a token (RFC 6750: `b64token`).
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    let bare = text.trim_end_matches('=');
    !bare.is_empty() && bare.bytes().all(is_part)
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_value(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic() || b" \t\r\n".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_message_is_read_back() {
        let extensions = [("traceId".to_owned(), "1 2".to_owned())];
        let message = write("a.b-c.d_e", &extensions).unwrap();
        assert_eq!(message, b"n,,\x01auth=Bearer a.b-c.d_e\x01traceId=1 2\x01\x01");
        let read = BearerMessage::read(&message).unwrap();
        assert_eq!(read, BearerMessage { authorization_id: None, token: "a.b-c.d_e" });
        let named = BearerMessage::read(b"n,a=a=2Cb,\x01auth=bearer  t\x01\x01").unwrap();
        assert_eq!(named.authorization_id.as_deref(), Some("a,b"));
        assert_eq!(named.token, "t");
    }

    #[test]
    fn a_message_with_parts_of_another_form_is_refused() {
        for bad in [
            &b""[..],
            b"\x01",
            b"n,,\x01\x01",
            b"n,,\x01auth=Bearer t\x01",
            b"n,,\x01auth=Bearer \x01\x01",
            b"n,,\x01auth=Basic t\x01\x01",
            b"n,,\x01auth=Bearer t\x01auth=Bearer t\x01\x01",
            b"n,,\x01auth=Bearer t\x011x=y\x01\x01",
            b"n,,\x01auth=Bearer t\x01x=\x01\x01",
            b"n,,\x01x=y\x01\x01",
            b"y,,\x01auth=Bearer t\x01\x01",
            b"n,a=,\x01auth=Bearer t\x01\x01",
            b"n,a=x=,\x01auth=Bearer t\x01\x01",
            b"n,a=x,y,\x01auth=Bearer t\x01\x01",
            b"n,,\x01auth=Bearer \xff\x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
        ] {
            assert!(BearerMessage::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_token_or_an_extension_that_would_spoil_the_message_is_not_sent() {
        for token in ["", "a b", "a\x01b", "=", "a=b"] {
            assert!(write(token, &[]).is_err(), "{token:?}");
        }
        for (key, value) in [("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "\x01")] {
            let extension = (key.to_owned(), value.to_owned());
            assert!(write("t", &[extension]).is_err(), "{key:?}={value:?}");
        }
    }
}
