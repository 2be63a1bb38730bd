//! Binds addresses.
//!
//! A host name or an empty host stands for several addresses. With port 0 all of them share the
//! port that the first address was given. If the machine lacks an address family, the server warns
//! once and leaves it out, as long as one address is bound.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

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
}
