//! PLAIN (RFC 4616): one token, `[authorization id] NUL user NUL password`, in UTF-8.

use super::SaslError;

/// The parts of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PlainMessage<'a> {
    /// Who the client wants to act for; empty: itself.
    pub(super) authorization_id: &'a str,
    pub(super) user: &'a str,
    pub(super) password: &'a str,
}

impl<'a> PlainMessage<'a> {
    pub(super) fn read(token: &'a [u8]) -> Result<Self, SaslError> {
        let text =
            str::from_utf8(token).map_err(|_| SaslError::Malformed("the token is not UTF-8"))?;
        let mut parts = text.split('\0');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(authorization_id), Some(user), Some(password), None)
                if !user.is_empty() && !password.is_empty() =>
            {
                Ok(Self { authorization_id, user, password })
            }
            _ => Err(SaslError::Malformed("the token is not NUL user NUL password")),
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        [self.authorization_id, self.user, self.password].join("\0").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_three_parts_and_none_of_the_last_two_is_empty() {
        let message =
            PlainMessage { authorization_id: "", user: "alice", password: "open sesame é" };
        assert_eq!(message.write(), "\0alice\0open sesame é".as_bytes());
        assert!(PlainMessage::read(&message.write()).is_ok_and(|read| read == message));
        for bad in
            [&b""[..], b"alice", b"\0alice", b"\0alice\0", b"\0\0x", b"\0a\0b\0c", b"\0\xff\0x"]
        {
            assert!(PlainMessage::read(bad).is_err(), "{bad:?}");
        }
    }
}
