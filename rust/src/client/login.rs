//! The login of a connection on a listener with SASL (KIP-43, KIP-152, KIP-368).
//!
//! If the broker says for how long a login lasts, the connection logs in again before that time is
//! over, between two requests: it first receives the answers that are due.

use std::time::{Duration, Instant};

use super::connection::{ApiRequest, BrokerConnection};
use super::error::{Error, Result};
use super::options::Wait;
use crate::protocol::sasl_authenticate::{self, SaslAuthenticateRequest, SaslAuthenticateResponse};
use crate::protocol::sasl_handshake::{self, SaslHandshakeRequest, SaslHandshakeResponse};
use crate::transport::sasl::SaslLogin;
use crate::wire::Writer;

/// The errors of SaslHandshake.
const UNSUPPORTED_MECHANISM: i16 = 33;
const ILLEGAL_STATE: i16 = 34;

/// The part of a login's time after which the connection logs in again, in percent.
const RENEWED_AFTER: u32 = 85;

/// How a connection logs in, and when it must do so again.
#[derive(Debug)]
pub(super) struct ConnectionLogin {
    login: SaslLogin,
    due: Option<Instant>,
}

impl ConnectionLogin {
    pub(super) fn new(login: SaslLogin) -> Self {
        Self { login, due: None }
    }

    /// Whether the connection must log in again.
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some_and(|due| Instant::now() >= due)
    }
}

impl BrokerConnection {
    /// Logs in, if its options say how.
    pub(super) fn log_in(&mut self, wait: &Wait) -> Result<()> {
        let Some(ConnectionLogin { login, .. }) = &self.login else { return Ok(()) };
        let login = login.clone();
        let begun = Instant::now();
        let lasts_ms = match self.versions().pick(sasl_authenticate::KEY, i16::MAX) {
            Some(version) => {
                self.choose_mechanism(&login, 1, wait)?;
                self.exchange(&login, |connection, token| connection.ask(token, version, wait))?
            }
            None => {
                self.choose_mechanism(&login, 0, wait)?;
                self.exchange(&login, |connection, token| connection.ask_raw(token, wait))?
            }
        };
        let lasts = Duration::from_millis(u64::try_from(lasts_ms).unwrap_or(0));
        let due = (lasts_ms > 0).then(|| begun + lasts * RENEWED_AFTER / 100);
        self.login = Some(ConnectionLogin { login, due });
        Ok(())
    }

    fn choose_mechanism(&mut self, login: &SaslLogin, version: i16, wait: &Wait) -> Result<()> {
        let version = self.version(sasl_handshake::KEY, version)?;
        let mechanism = login.mechanism.name();
        let encode =
            |writer: &mut Writer| SaslHandshakeRequest { mechanism }.encode(writer, version);
        let key = sasl_handshake::KEY;
        let reply = self.call_now(&ApiRequest { key, version, encode: &encode }, wait)?;
        let response = SaslHandshakeResponse::decode(&mut reply.body(), version)
            .map_err(|error| self.bad(error))?;
        match response.error_code {
            0 => Ok(()),
            ILLEGAL_STATE => Err(self.refused("this listener has no logins".to_owned())),
            UNSUPPORTED_MECHANISM => {
                let offered = response.mechanisms.join(", ");
                Err(self.refused(format!("it offers {offered}, not {mechanism}")))
            }
            code => Err(Error::refused(code, "SaslHandshake")),
        }
    }

    /// Sends tokens and takes the broker's until the login has succeeded. Returns for how many
    /// milliseconds it lasts; 0: without end.
    fn exchange(
        &mut self,
        login: &SaslLogin,
        mut ask: impl FnMut(&mut Self, &[u8]) -> Result<(Vec<u8>, i64)>,
    ) -> Result<i64> {
        let failed =
            |connection: &Self, error: &dyn ToString| connection.refused(error.to_string());
        let (token, mut exchange) = login.begin().map_err(|error| failed(self, &error))?;
        let mut token = Some(token);
        let mut lasts_ms = 0;
        while let Some(sent) = token.take() {
            let (answer, lasts) = ask(self, &sent)?;
            lasts_ms = lasts;
            (token, exchange) = exchange.step(&answer).map_err(|error| failed(self, &error))?;
        }
        match exchange.is_done() {
            true => Ok(lasts_ms),
            false => Err(self.refused("it ended the login early".to_owned())),
        }
    }

    fn ask(&mut self, token: &[u8], version: i16, wait: &Wait) -> Result<(Vec<u8>, i64)> {
        let encode = |writer: &mut Writer| {
            SaslAuthenticateRequest { auth_bytes: token }.encode(writer, version);
        };
        let key = sasl_authenticate::KEY;
        let reply = self.call_now(&ApiRequest { key, version, encode: &encode }, wait)?;
        let response = SaslAuthenticateResponse::decode(&mut reply.body(), version)
            .map_err(|error| self.bad(error))?;
        if response.error_code != 0 {
            return Err(
                self.refused(response.error_message.unwrap_or("no reason given").to_owned())
            );
        }
        Ok((response.auth_bytes.to_vec(), response.session_lifetime_ms))
    }

    /// Asks a broker without SaslAuthenticate, which hangs up if the login fails.
    fn ask_raw(&mut self, token: &[u8], wait: &Wait) -> Result<(Vec<u8>, i64)> {
        match self.exchange_token(token, wait) {
            Ok(answer) => Ok((answer.to_vec(), 0)),
            Err(Error::Closed { .. }) => Err(self.refused("it closed the connection".to_owned())),
            Err(other) => Err(other),
        }
    }

    fn refused(&self, reason: String) -> Error {
        Error::Login { address: self.address().to_string(), reason }
    }
}
