//! Binds addresses, and counts connections (Kafka's ConnectionQuotas).
//!
//! A host name or an empty host stands for several addresses. With port 0 all of them share the
//! port that the first address was given. If the machine lacks an address family, the server warns
//! once and leaves it out, as long as one address is bound.
//! Connections leave the last descriptors of the process (`sys::reserved_descriptors`) to files,
//! modules and pipes, because the broker needs those to serve its open connections.
//! When the process is out of other descriptors, or `max.connections` are open, accepting pauses:
//! new connections wait in the kernel's queue until one closes or a short time has passed. No
//! thread spins.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::net::sockopt;
use thiserror::Error;

use crate::sys;

/// How many connections may wait in the kernel to be accepted.
const BACKLOG: i32 = 1024;
/// How many free ports of the first address are tried on the other addresses.
const PORT_ATTEMPTS: usize = 16;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The listener's name, as in `listeners`.
    pub name: Arc<str>,
    /// A name or an address. Empty: all addresses. `localhost`: 127.0.0.1 and ::1.
    pub host: String,
    /// The port; 0: a free one.
    pub port: u16,
}

/// An address that the server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundListener {
    /// The listener's name.
    pub name: Arc<str>,
    /// The address, with the real port.
    pub address: SocketAddr,
}

/// The error of an address that the server cannot listen on.
#[derive(Debug, Error)]
#[error("cannot listen on {host}:{port} (listener {name}): {reason}")]
pub struct BindError {
    name: Arc<str>,
    host: String,
    port: u16,
    reason: String,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

/// A bound socket.
pub(super) struct Listener {
    pub(super) socket: TcpListener,
    pub(super) bound: BoundListener,
}

/// The open connections of one server, counted over all its threads, and their limits.
pub(super) struct ConnectionQuotas {
    all: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    max: AtomicUsize,
    max_per_address: AtomicUsize,
    /// Whether the accepting thread waits for a connection to close.
    pub(super) paused: AtomicBool,
}

/// Binds every address.
pub(super) fn bind(endpoints: &[ListenAddress]) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::new();
    for endpoint in endpoints {
        let sockets = bind_endpoint(endpoint).map_err(|source| BindError {
            name: Arc::clone(&endpoint.name),
            host: endpoint.host.clone(),
            port: endpoint.port,
            reason: reason(&source),
            source,
        })?;
        listeners.extend(sockets);
    }
    Ok(listeners)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use by another process".to_owned(),
        io::ErrorKind::PermissionDenied => "not permitted (ports below 1024 need it)".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        _ => error.to_string(),
    }
}

fn bind_endpoint(endpoint: &ListenAddress) -> io::Result<Vec<Listener>> {
    let hosts = addresses(&endpoint.host)?;
    let mut attempts = if endpoint.port == 0 { PORT_ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        match bind_together(endpoint, &hosts) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {}
            result => return result,
        }
    }
}

fn addresses(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok(match host {
        "" => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        name => {
            let mut found: Vec<IpAddr> =
                (name, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
            found.dedup();
            found
        }
    })
}

/// Binds all of `hosts` to one port. A missing address family is not an error if another address is
/// bound.
fn bind_together(endpoint: &ListenAddress, hosts: &[IpAddr]) -> io::Result<Vec<Listener>> {
    let mut bound: Vec<Listener> = Vec::new();
    let mut missing = None;
    for host in hosts {
        let port = bound.first().map_or(endpoint.port, |first| first.bound.address.port());
        match bind_one(SocketAddr::new(*host, port)) {
            Ok(socket) => {
                let address = socket.local_addr()?;
                let name = Arc::clone(&endpoint.name);
                bound.push(Listener { socket, bound: BoundListener { name, address } });
            }
            Err(error) if is_missing(&error) => missing = Some((host, error)),
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some((_, error)) if bound.is_empty() => Err(error),
        Some((host, error)) => {
            tracing::warn!(%host, %error, listener = %endpoint.name, "not listening there");
            Ok(bound)
        }
        None => Ok(bound),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = sys::tcp_socket(address.is_ipv6())?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

impl ConnectionQuotas {
    pub(super) fn new(max: usize, max_per_address: usize) -> Self {
        Self {
            all: AtomicUsize::new(0),
            by_address: Mutex::default(),
            max: AtomicUsize::new(max),
            max_per_address: AtomicUsize::new(max_per_address),
            paused: AtomicBool::new(false),
        }
    }

    /// Changes the limits; open connections stay open. Returns whether the accepting thread waits
    /// for a change.
    pub(super) fn set_limits(&self, max: usize, max_per_address: usize) -> bool {
        self.max.store(max, Ordering::SeqCst);
        self.max_per_address.store(max_per_address, Ordering::Relaxed);
        self.paused.swap(false, Ordering::SeqCst)
    }

    /// How many connections are open.
    pub(super) fn count(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }

    /// Whether the limit is reached. If so, accepting pauses until `paused` is false again.
    pub(super) fn pause_if_full(&self) -> bool {
        let is_full = || self.count() >= self.max.load(Ordering::SeqCst);
        is_full() && {
            self.paused.store(true, Ordering::SeqCst);
            is_full()
        }
    }

    /// Counts a new connection from `address`; false if that address has reached its limit.
    pub(super) fn try_increment(&self, address: IpAddr) -> bool {
        let mut by_address = self.by_address.lock();
        let count = by_address.get(&address).copied().unwrap_or_default();
        if count >= self.max_per_address.load(Ordering::Relaxed) {
            return false;
        }
        by_address.insert(address, count + 1);
        self.all.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Counts a closed connection. Returns whether the accepting thread waits for it.
    pub(super) fn decrement(&self, address: IpAddr) -> bool {
        let mut by_address = self.by_address.lock();
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
        self.all.fetch_sub(1, Ordering::SeqCst);
        self.paused.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str, port: u16) -> ListenAddress {
        ListenAddress { name: "PLAINTEXT".into(), host: host.into(), port }
    }

    #[test]
    fn port_zero_binds_both_address_families_to_the_same_port() {
        let listeners = bind(&[endpoint("localhost", 0)]).unwrap();
        let port = listeners[0].bound.address.port();
        assert_ne!(port, 0);
        assert!(listeners.iter().all(|listener| listener.bound.address.port() == port));
    }

    #[test]
    fn the_error_of_a_port_in_use_names_the_address_and_the_listener() {
        let first = bind(&[endpoint("127.0.0.1", 0)]).unwrap();
        let port = first[0].bound.address.port();
        let Err(error) = bind(&[endpoint("127.0.0.1", port)]) else { panic!("bound twice") };
        assert_eq!(
            error.to_string(),
            format!(
                "cannot listen on 127.0.0.1:{port} (listener PLAINTEXT): \
                 the port is in use by another process"
            )
        );
    }

    #[test]
    fn each_address_has_its_own_limit_of_connections() {
        let connection_quotas = ConnectionQuotas::new(3, 1);
        let here = IpAddr::from([127, 0, 0, 1]);
        let there = IpAddr::from([127, 0, 0, 2]);
        assert!(
            connection_quotas.try_increment(here)
                && !connection_quotas.try_increment(here)
                && connection_quotas.try_increment(there)
        );
        assert_eq!(connection_quotas.count(), 2);
        connection_quotas.decrement(here);
        assert!(connection_quotas.try_increment(here));
    }

    #[test]
    fn a_changed_limit_counts_the_connections_that_are_open() {
        let connection_quotas = ConnectionQuotas::new(usize::MAX, usize::MAX);
        let here = IpAddr::from([127, 0, 0, 1]);
        assert!(
            connection_quotas.try_increment(here)
                && connection_quotas.try_increment(here)
                && !connection_quotas.pause_if_full()
        );
        assert!(!connection_quotas.set_limits(2, 2));
        assert!(connection_quotas.pause_if_full() && !connection_quotas.try_increment(here));
        assert!(connection_quotas.decrement(here));
        assert!(
            !connection_quotas.pause_if_full()
                && connection_quotas.try_increment(here)
                && connection_quotas.pause_if_full()
        );
        assert!(connection_quotas.set_limits(3, 2));
        assert!(!connection_quotas.pause_if_full() && !connection_quotas.try_increment(here));
    }
}
