//! The options of the network layer: the addresses to listen on, and all limits that can be
//! configured.

use std::collections::HashMap;
use std::sync::Arc;

use super::listener::ListenAddress;
use crate::broker::quotas::bucket::QuotaWindows;
use crate::transport::tls::ServerTls;

/// A limit of connections that is none: Kafka's default.
pub(super) const UNLIMITED: usize = i32::MAX as usize;

/// The limits of connections. They may change while a server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// `max.connections`: further connections wait in the kernel to be accepted.
    pub max: usize,
    /// `max.connections.per.ip`: further connections of one address are closed at once.
    pub max_per_ip: usize,
    /// `max.connections.per.ip.overrides`: the same for single hosts, by name or address.
    pub max_per_ip_overrides: Vec<(String, usize)>,
    /// `max.connection.creation.rate`: how many a second are accepted; further ones wait.
    pub creation_rate: usize,
    /// The limits of listeners that have their own.
    pub by_listener: HashMap<Arc<str>, ListenerLimits>,
}

/// The limits of one listener: `listener.name.NAME.max.connections` and the rate of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Its connections.
    pub max: usize,
    /// Its new connections in a second.
    pub creation_rate: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max: UNLIMITED,
            max_per_ip: UNLIMITED,
            max_per_ip_overrides: Vec::new(),
            creation_rate: UNLIMITED,
            by_listener: HashMap::new(),
        }
    }
}

impl ConnectionLimits {
    /// The limits of the listener `name`: its own, or the broker's.
    pub(super) fn of_listener(&self, name: &str) -> ListenerLimits {
        let brokers = ListenerLimits { max: self.max, creation_rate: self.creation_rate };
        self.by_listener.get(name).copied().unwrap_or(brokers)
    }
}

/// The addresses that a server listens on, and its limits. Times are in milliseconds, sizes in
/// bytes.
#[derive(Clone)]
pub struct NetworkOptions {
    /// The addresses to listen on.
    pub endpoints: Vec<ListenAddress>,
    /// The TLS of listeners, by their names. The others are served in plain text.
    pub tls: HashMap<Arc<str>, Arc<ServerTls>>,
    /// The listeners that other brokers use. The broker's limits of connections are for the others.
    pub inter_broker_listeners: Vec<Arc<str>>,
    /// The limits of connections at the start.
    pub limits: ConnectionLimits,
    /// The time windows in which new connections are counted.
    pub connection_rate_windows: QuotaWindows,
    /// `connections.max.idle.ms`: a connection without traffic for this long is closed.
    pub idle_ms: i64,
    /// `socket.request.max.bytes`: a longer frame closes its connection.
    pub request_max_bytes: usize,
    /// `queued.max.request.bytes`, or a default: the read buffers of all connections together. Each
    /// thread gets at least two frames of the largest size.
    pub request_memory: usize,
    /// How long a TLS handshake and a login may take together.
    pub login_ms: i64,
    /// `sasl.server.max.receive.size`: a longer frame before the login closes its connection.
    pub login_frame_max_bytes: usize,
    /// `krust.login.memory.bytes`: what all connections that have not logged in may hold together.
    pub login_memory: usize,
    /// How far a frame may fall behind the minimum rate before its connection is closed.
    pub frame_ms: i64,
    /// The minimum rate of a frame in bytes a second. Earlier bytes that came faster do not count.
    /// When the read buffers are used up, the slowest connection is closed to make room.
    pub frame_rate: usize,
    /// A connection that accepts none of the bytes sent to it is closed after this time.
    pub stalled_ms: i64,
    /// A connection with this many bytes of unsent replies is not read from.
    pub out_max_bytes: usize,
    /// A connection with this many requests delayed is not read from.
    pub delayed_max: usize,
    /// For how many microseconds a thread polls before it blocks; 0: it does not poll. Polling
    /// costs CPU and saves the wake-up of a halted core.
    pub busy_poll_us: u64,
    /// `SO_SNDBUF` for peers on loopback and private networks. The kernel tunes the others.
    pub near_send_buffer: usize,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            tls: HashMap::new(),
            inter_broker_listeners: Vec::new(),
            limits: ConnectionLimits::default(),
            connection_rate_windows: QuotaWindows::default(),
            idle_ms: 600_000,
            request_max_bytes: 104_857_600,
            request_memory: 512 << 20,
            login_ms: 10_000,
            login_frame_max_bytes: 512 << 10,
            login_memory: 64 << 20,
            frame_ms: 30_000,
            frame_rate: 16 << 10,
            stalled_ms: 600_000,
            out_max_bytes: 1 << 20,
            delayed_max: 1024,
            busy_poll_us: 0,
            near_send_buffer: 256 << 10,
        }
    }
}
