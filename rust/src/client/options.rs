//! The options of a client: bootstrap addresses, timeouts and limits.
//!
//! All limits are here. A broker can make the client hold one frame of `max_frame_bytes` per
//! connection.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, Result};
use super::reachability::Reachability;

/// The longest time that a waiting call sleeps before it asks [`Interrupt`] again.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// Asked at least every 100 ms while a call waits; `true` ends the call with
/// [`Error::Interrupted`]. Threads: called on the thread that made the call.
pub trait Interrupt: Send + Sync {
    /// Whether the caller wants to end the call.
    fn interrupted(&self) -> bool;
}

/// An interrupt that never comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Never;

impl Interrupt for Never {
    fn interrupted(&self) -> bool {
        false
    }
}

/// Where a broker listens.
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
pub struct Options {
    /// The bootstrap addresses.
    pub bootstrap: Vec<Address>,
    /// The name the broker sees (`client.id`).
    pub client_id: String,
    /// How long one TCP connect may take (`socket.connection.setup.timeout.ms`).
    pub connect_timeout: Duration,
    /// How long one answer may take (`request.timeout.ms`).
    pub request_timeout: Duration,
    /// The pause before a refused request is sent again (`retry.backoff.ms`).
    pub retry_backoff: Duration,
    /// The largest answer taken, in bytes.
    pub max_frame_bytes: usize,
    /// Ends waits.
    pub interrupt: Arc<dyn Interrupt>,
    /// Which brokers cannot be reached.
    pub reachability: Arc<Reachability>,
}

impl Options {
    /// Kafka's defaults for a client of `bootstrap`.
    pub fn new(bootstrap: Vec<Address>) -> Self {
        Self {
            bootstrap,
            client_id: "krust".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            retry_backoff: Duration::from_millis(100),
            max_frame_bytes: 128 << 20,
            interrupt: Arc::new(Never),
            reachability: Arc::default(),
        }
    }

    /// A wait that ends `timeout` from now.
    pub fn wait(&self, timeout: Duration) -> Wait {
        Wait::new(timeout, Arc::clone(&self.interrupt))
    }
}

/// How long one call may still wait.
#[derive(Clone)]
pub struct Wait {
    deadline: Instant,
    interrupt: Arc<dyn Interrupt>,
}

impl Wait {
    /// A wait that ends `timeout` from now, or when `interrupt` says so.
    pub fn new(timeout: Duration, interrupt: Arc<dyn Interrupt>) -> Self {
        Self { deadline: Instant::now() + timeout, interrupt }
    }

    /// The next stretch to sleep: at most [`SLICE`]; `Err` when the time is up or the caller left.
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

    /// What is left of the time; zero when it is up.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The same wait, but over `timeout` from now at the latest.
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
