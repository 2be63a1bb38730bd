//! The options of a client: bootstrap addresses, timeouts and limits.
//!
//! All limits of the client are here. A broker can make it hold one frame of `max_frame_bytes` for
//! each connection.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, Result};
use super::reachability::Reachability;
use crate::transport::ClientSecurity;

/// The longest time that a waiting call sleeps before it checks [`Interrupt`] again.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// Ends calls early. A waiting call checks it at least every 100 ms, on its own thread, and returns
/// [`Error::Interrupted`] if it is true.
pub trait Interrupt: Send + Sync {
    /// Whether the caller wants to end the call.
    fn interrupted(&self) -> bool;
}

/// An [`Interrupt`] that is never true.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoInterrupt;

impl Interrupt for NoInterrupt {
    fn interrupted(&self) -> bool {
        false
    }
}

/// The address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// A name or an IP literal, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl Address {
    /// Reads `host`, `host:port`, `[::1]:port`, each with an optional `PLAINTEXT://` before it.
    pub fn parse(text: &str) -> Result<Self> {
        let bare = text.trim();
        let bare = bare.split_once("://").map_or(bare, |(_, rest)| rest);
        let bad = || Error::Invalid(format!("{text:?} is not a valid HOST:PORT"));
        let (host, port) = match bare.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or_else(bad)?;
                (host, after.strip_prefix(':').unwrap_or("9092"))
            }
            None => match bare.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => (bare, "9092"),
                Some(pair) => pair,
                None => (bare, "9092"),
            },
        };
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| bad())? })
    }

    /// Reads a list with commas between the addresses; at least one.
    pub fn parse_list(text: &str) -> Result<Vec<Self>> {
        let list: Vec<_> = text
            .split(',')
            .filter(|part| !part.trim().is_empty())
            .map(Self::parse)
            .collect::<Result<_>>()?;
        if list.is_empty() {
            return Err(Error::Invalid("no broker is named".to_owned()));
        }
        Ok(list)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The options of every connection of one client.
#[derive(Clone)]
pub struct ClientOptions {
    /// The bootstrap addresses.
    pub bootstrap: Vec<Address>,
    /// The client id (`client.id`).
    pub client_id: String,
    /// How long one TCP connect may take (`socket.connection.setup.timeout.ms`).
    pub connect_timeout: Duration,
    /// How long one answer may take (`request.timeout.ms`).
    pub request_timeout: Duration,
    /// The pause before a refused request is sent again (`retry.backoff.ms`).
    pub retry_backoff: Duration,
    /// The largest response that is accepted, in bytes.
    pub max_frame_bytes: usize,
    /// The TLS and the login of every connection (`security.protocol`).
    pub security: ClientSecurity,
    /// Ends waits.
    pub interrupt: Arc<dyn Interrupt>,
    /// The brokers that cannot be reached.
    pub reachability: Arc<Reachability>,
}

impl ClientOptions {
    /// Kafka's defaults for a client of `bootstrap`.
    pub fn new(bootstrap: Vec<Address>) -> Self {
        Self {
            bootstrap,
            client_id: "krust".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            retry_backoff: Duration::from_millis(100),
            max_frame_bytes: 128 << 20,
            security: ClientSecurity::default(),
            interrupt: Arc::new(NoInterrupt),
            reachability: Arc::default(),
        }
    }

    /// A wait that ends `timeout` from now.
    pub fn wait(&self, timeout: Duration) -> Wait {
        Wait::new(timeout, Arc::clone(&self.interrupt))
    }
}

/// The time that one call may still wait.
#[derive(Clone)]
pub struct Wait {
    deadline: Instant,
    interrupt: Arc<dyn Interrupt>,
}

impl Wait {
    /// A wait that ends `timeout` from now, or when `interrupt` is true.
    pub fn new(timeout: Duration, interrupt: Arc<dyn Interrupt>) -> Self {
        Self { deadline: Instant::now() + timeout, interrupt }
    }

    /// The next time to sleep, at most [`SLICE`]. Errors: the time is up, or the caller was
    /// interrupted.
    pub(super) fn slice(&self, subject: &dyn fmt::Display) -> Result<Duration> {
        if self.interrupt.interrupted() {
            return Err(Error::Interrupted);
        }
        let left = self.left();
        if left.is_zero() {
            return Err(Error::Timeout { subject: subject.to_string() });
        }
        Ok(left.min(SLICE))
    }

    /// The remaining time.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// This wait, but ending `timeout` from now at the latest.
    pub(super) fn at_most(&self, timeout: Duration) -> Self {
        let deadline = self.deadline.min(Instant::now() + timeout);
        Self { deadline, interrupt: Arc::clone(&self.interrupt) }
    }

    /// Sleeps for `pause`, or until the time is up.
    pub fn pause(&self, pause: Duration, subject: &dyn fmt::Display) -> Result<()> {
        let end = Instant::now() + pause;
        loop {
            let slice = self.slice(subject)?.min(end.saturating_duration_since(Instant::now()));
            if slice.is_zero() {
                return Ok(());
            }
            std::thread::sleep(slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_form_people_write_them() {
        for (text, host, port) in [
            ("localhost", "localhost", 9092),
            ("kafka.prod:19092", "kafka.prod", 19092),
            ("[::1]:9093", "::1", 9093),
            ("::1", "::1", 9092),
            ("PLAINTEXT://127.0.0.1:1", "127.0.0.1", 1),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port), "{text}");
        }
        for text in ["", ":9092", "host:port", "host:70000", "[::1"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
        assert_eq!(Address::parse_list("a:1, b:2").unwrap().len(), 2);
        assert!(Address::parse_list(" , ").is_err());
    }
}
