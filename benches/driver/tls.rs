//! Connections with TLS: full handshakes alone, each with a new key exchange and signature.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::link::Run;
use crate::usage::Usage;

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A client that trusts the authority in a PEM file, and resumes no session.
pub fn client(authority: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority).expect("--tls AUTHORITY.pem") {
        roots.add(certificate.expect("a certificate")).expect("an authority");
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// A connection whose handshake is over.
pub fn connect(address: &str, config: &Arc<ClientConfig>) -> TlsStream {
    let mut stream = TcpStream::connect(address).expect("connect to --bootstrap");
    stream.set_nodelay(true).expect("nodelay");
    let ip = stream.peer_addr().expect("an address").ip();
    let name = ServerName::IpAddress(IpAddr::from(ip));
    let mut tls = ClientConnection::new(config.clone(), name).expect("a client");
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).expect("a handshake");
    }
    StreamOwned::new(tls, stream)
}

/// As many handshakes, one after the other.
pub fn handshakes(address: &str, config: &Arc<ClientConfig>, count: usize, usage: &Usage) -> Run {
    let before = usage.cpu_s();
    let start = Instant::now();
    let mut run = Run { requests: count, ..Run::default() };
    for _ in 0..count {
        let at = Instant::now();
        drop(connect(address, config));
        run.latencies.push(at.elapsed().as_nanos() as u64);
    }
    run.seconds = start.elapsed().as_secs_f64();
    run.cpu_s = before.and_then(|before| usage.cpu_s().map(|after| after - before));
    if let Some(cpu_s) = run.cpu_s {
        run.more.push(("handshakes_core_s", count as f64 / cpu_s));
    }
    run
}
